#pragma once

#include <string_view>

#include "mezzo/core/export.h"

namespace mezzo {

/// Throws InvalidArgument if MEZZO_LOG has a word that is neither a topic nor "all". Only the
/// command calls it; the library ignores such words.
MEZZO_API void check_log_topics();

/// Whether MEZZO_LOG, a comma-separated list, contains `topic` or "all". Read once per process.
/// Topics: `dispatch` (which backend of kernels or collectives was chosen and why others were
/// refused), `libtorch` (its warnings, which the command hides by default).
MEZZO_API bool log_enabled(std::string_view topic);

namespace detail {

/// Writes a line "mezzo <topic>: <text>" to standard error if the topic is enabled.
MEZZO_API void log(std::string_view topic, std::string_view text);

}  // namespace detail

}  // namespace mezzo
