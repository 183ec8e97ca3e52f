#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// Peak bytes of live tensors on `device` since the last reset. CPU: allocations of libtorch's CPU
/// allocator since this library was loaded (its counter costs two atomic additions). CUDA: the
/// statistics of libtorch's caching allocator; does not synchronize. Throws InvalidArgument for
/// other or missing devices.
MEZZO_API std::int64_t peak_memory_bytes(c10::Device device);

/// Bytes of live tensors on `device`; counts and throws as peak_memory_bytes.
MEZZO_API std::int64_t current_memory_bytes(c10::Device device);

/// Resets the peak to the current bytes; throws as peak_memory_bytes.
MEZZO_API void reset_peak_memory(c10::Device device);

/// Free bytes of a CUDA device, excluding those cached by libtorch's allocator. Throws
/// InvalidArgument for other or missing devices.
MEZZO_API std::int64_t free_memory_bytes(c10::Device device);

/// CUDA device `index` if the CUDA kernels are loaded and libtorch sees a GPU, else the CPU. Does
/// not check that the index exists.
MEZZO_API c10::Device default_device(std::int64_t index = 0);

}  // namespace mezzo
