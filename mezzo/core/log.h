#pragma once

#include <string_view>

#include "mezzo/core/export.h"

namespace mezzo {

/// Whether MEZZO_LOG names `topic` (a comma-separated list, or "all"). Read once per process.
/// Topics: `dispatch` (which kernel backend was chosen and why the others were refused), `libtorch`
/// (its own warnings, which the command keeps back).
MEZZO_API bool log_enabled(std::string_view topic);

/// Writes one line "mezzo <topic>: <text>" to the standard error if the topic is enabled.
MEZZO_API void log(std::string_view topic, std::string_view text);

}  // namespace mezzo
