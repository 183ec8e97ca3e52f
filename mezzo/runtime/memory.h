#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// The most bytes of tensors that were alive at once on `device` since the last reset. CPU: what
/// libtorch's CPU allocator handed out since this library was loaded (which then put a counter, two
/// atomic additions, in front of it). CUDA: what libtorch's caching allocator handed out, as it
/// counts; does not synchronise. Throws InvalidArgument for any other device and for one that is
/// not there.
MEZZO_API std::int64_t peak_memory_bytes(c10::Device device);

/// Bytes of tensors alive now on `device`; counts and throws as peak_memory_bytes.
MEZZO_API std::int64_t current_memory_bytes(c10::Device device);

/// Starts a new peak from what is alive now; throws as peak_memory_bytes.
MEZZO_API void reset_peak_memory(c10::Device device);

/// Bytes that a CUDA device has free, without those that libtorch's caching allocator keeps. Throws
/// InvalidArgument for any other device and for one that is not there.
MEZZO_API std::int64_t free_memory_bytes(c10::Device device);

/// The device with this index of the first kind there is: CUDA where the CUDA kernels are loaded
/// and libtorch sees a GPU, else the CPU. Does not check that there is a device of this index.
MEZZO_API c10::Device default_device(std::int64_t index = 0);

}  // namespace mezzo
