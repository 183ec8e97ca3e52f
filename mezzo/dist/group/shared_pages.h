#pragma once

#include <cstdint>

#include "mezzo/core/export.h"

namespace mezzo::dist {

/// Proportional set size of this process, in bytes (/proc/self/smaps_rollup): a page shared by n
/// processes counts as 1/n, so the sum over processes is their total. Walks all pages:
/// milliseconds. Throws IoError if the system does not report it.
MEZZO_API std::int64_t proportional_bytes();

}  // namespace mezzo::dist
