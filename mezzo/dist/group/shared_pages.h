#pragma once

#include <cstdint>

#include "mezzo/core/export.h"

namespace mezzo::dist {

/// Memory of this process where a page shared by n processes counts as 1/n, so that the sum over
/// processes is their total (proportional set size, /proc/self/smaps_rollup). Walks all pages:
/// milliseconds. Throws IoError if the system does not report it.
MEZZO_API std::int64_t proportional_bytes();

}  // namespace mezzo::dist
