#pragma once

#include <string>
#include <vector>

#include "mezzo/cli/options/arguments.h"
#include "mezzo/train/options/options.h"

namespace mezzo::cli {

/// The line of an option file below which are the options that `mezzo tune` has chosen.
inline constexpr const char* kChosenByTune = "# chosen by mezzo tune";

/// The text of a TOML file with which `mezzo train --config` runs the job: the data, the device,
/// and every option that has a value, also a default one; no files. Below kChosenByTune are those
/// that tune chooses, except `fixed`: without them `mezzo tune --config` reads the file. Throws
/// InvalidArgument for a text that --config cannot read.
std::string option_file(const DataArguments& data, const MachineArguments& machine,
                        const TrainOptions& options, const std::vector<std::string>& fixed);

}  // namespace mezzo::cli
