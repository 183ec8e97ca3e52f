#pragma once

#include <string>

#include "mezzo/core/export.h"

namespace mezzo {

/// Describes the kernel backends in one line: the CPU backends that this machine supports, the one
/// in use, and what the machine lacks for the others; the path of the CUDA kernels or why they are
/// not loaded. Throws InvalidArgument if MEZZO_CPU_BACKEND is unknown.
MEZZO_API std::string describe_backends();

}  // namespace mezzo
