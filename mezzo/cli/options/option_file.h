#pragma once

#include <string>

#include "mezzo/cli/options/arguments.h"
#include "mezzo/train/options/options.h"

namespace mezzo::cli {

/// The text of a TOML file with which `mezzo train --config` runs the job: the data, the device,
/// and every option that has a value, also a default one; no files. Throws InvalidArgument for a
/// text that --config cannot read.
std::string option_file(const DataArguments& data, const MachineArguments& machine,
                        const TrainOptions& options);

}  // namespace mezzo::cli
