#pragma once

#include <cstddef>

#include "mezzo/core/export.h"

namespace mezzo {

/// Advises Linux (MADV_HUGEPAGE) to use huge pages for [data, data + bytes) if that is at least
/// 4 MiB; does nothing on other systems. Reduces TLB misses of random gathers and page faults of
/// new arrays. Call it before the first write. Ignores failure.
MEZZO_API void advise_huge_pages(void* data, std::size_t bytes);

}  // namespace mezzo
