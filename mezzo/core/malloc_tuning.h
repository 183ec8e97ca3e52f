#pragma once

#include <malloc.h>

namespace mezzo {

/// Stops malloc from returning freed memory to the system. Call it at the start of a program that
/// trains on the CPU: every step frees and allocates the same large tensors, and by default glibc
/// unmaps and maps their pages each time (40 % of an epoch on WordNet). The process then keeps its
/// peak memory until it ends.
inline void keep_freed_pages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never; the largest int would be 2 GiB
}

}  // namespace mezzo
