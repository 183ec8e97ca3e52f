#pragma once

#include <string_view>

#include "mezzo/core/export.h"

namespace mezzo {

/// Throws InvalidArgument where MEZZO_LOG holds a word that is neither a topic nor "all". For the
/// command; the library passes over such words.
MEZZO_API void check_log_topics();

/// Whether MEZZO_LOG names `topic` (a comma-separated list, or "all"). Read once per process.
/// Topics: `dispatch` (which kernel backend was chosen and why the others were refused), `libtorch`
/// (its own warnings, which the command keeps back).
MEZZO_API bool log_enabled(std::string_view topic);

namespace detail {

/// Writes one line "mezzo <topic>: <text>" to the standard error if the topic is enabled.
MEZZO_API void log(std::string_view topic, std::string_view text);

}  // namespace detail

}  // namespace mezzo
