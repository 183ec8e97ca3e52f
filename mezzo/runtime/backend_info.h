#pragma once

#include <string>

#include "mezzo/core/export.h"

namespace mezzo {

/// One line on the kernel backends: the CPU's that this machine runs, the chosen one and, for the
/// others, what the machine lacks; the file of the CUDA kernels or why there are none. Throws
/// InvalidArgument if MEZZO_CPU_BACKEND names none of them.
MEZZO_API std::string describe_backends();

}  // namespace mezzo
