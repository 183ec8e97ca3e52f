#pragma once

#include <malloc.h>

namespace mezzo::cli {

/// Tells malloc to keep what is freed. An epoch frees and takes the same large tensors over and
/// over; by default malloc gives each back to the system and gets fresh pages, zeroed one fault at
/// a time: 40 % of an epoch on WordNet. For the start of a program: it concerns the whole process.
inline void keep_freed_pages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never; the largest int would be 2 GiB
}

}  // namespace mezzo::cli
