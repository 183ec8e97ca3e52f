#pragma once

#include <cstdint>

#include "mezzo/core/export.h"

namespace mezzo::dist {

/// The memory that this process accounts for: a page that n processes share counts as 1/n of it, so
/// that the sum over processes is what they need together (the proportional set size of
/// /proc/self/smaps_rollup). Walks all pages: milliseconds. Throws IoError if the system does
/// not report it.
MEZZO_API std::int64_t proportional_bytes();

}  // namespace mezzo::dist
