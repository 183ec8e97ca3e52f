#pragma once

#include <cstddef>

#include "mezzo/core/export.h"

namespace mezzo {

/// Asks the system to back the memory [data, data + bytes) with huge pages where it is 4 MiB or
/// more (Linux: MADV_HUGEPAGE; elsewhere nothing). Rows are gathered at random places, so that
/// misses of the page tables cost as much as those of the caches, and a fresh array is faulted in
/// 2 MiB at a time. To be called before the memory is first written. A hint: failure is ignored.
MEZZO_API void advise_huge_pages(void* data, std::size_t bytes);

}  // namespace mezzo
