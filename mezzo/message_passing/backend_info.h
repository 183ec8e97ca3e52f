#pragma once

#include <string>

#include "mezzo/core/export.h"

namespace mezzo {

/// One line on the kernel backends: those this machine runs, the chosen one and, for the others,
/// what the machine lacks. Throws InvalidArgument if MEZZO_CPU_BACKEND names none of them.
MEZZO_API std::string describe_backends();

}  // namespace mezzo
