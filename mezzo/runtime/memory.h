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

/// CUDA device `index` if the CUDA kernels are loaded and this process sees a GPU, else the CPU.
/// Does not check that the index exists, nor initialize the driver: a program may fork afterwards
/// (dist::spawn).
MEZZO_API c10::Device default_device(std::int64_t index = 0);

/// Proportional set size of this process, in bytes (/proc/self/smaps_rollup): a page shared by n
/// processes counts as 1/n, so the sum over processes is their total. Walks all pages:
/// milliseconds. Throws IoError if the system does not report it.
MEZZO_API std::int64_t proportional_bytes();

/// Stops malloc from returning freed memory to the system. Call it at the start of a program that
/// trains on the CPU: every step frees and allocates the same large tensors, and by default glibc
/// unmaps and maps their pages each time (40 % of an epoch on WordNet). The process then keeps its
/// peak memory until it ends. Leave it out in a server whose tensors grow: they do not fit into the
/// pages of smaller ones.
MEZZO_API void keep_freed_pages();

}  // namespace mezzo
