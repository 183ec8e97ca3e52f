#pragma once

#include "mezzo/cli/commands/commands.h"

namespace mezzo::cli {

/// `mezzo data partition`: cuts a data set into parts with halos, one for each training process. An
/// interrupt leaves nothing. Returns the exit code.
int partition_command(const Arguments& arguments);

}  // namespace mezzo::cli
