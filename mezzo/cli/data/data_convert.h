#pragma once

#include "mezzo/cli/commands/commands.h"

namespace mezzo::cli {

/// `mezzo data convert`: writes a data set as a mapped dataset. Shows progress on the standard
/// error; an interrupt removes what was written so far. Returns the exit code.
int convert_command(const Arguments& arguments);

}  // namespace mezzo::cli
