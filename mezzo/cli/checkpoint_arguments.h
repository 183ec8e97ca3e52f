#pragma once

#include <string>

#include "mezzo/cli/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/files/checkpoint.h"

namespace mezzo::cli {

/// What evaluate and predict share, and the split index of evaluate. The data set is the
/// checkpoint's unless one is given.
struct CheckpointArguments {
  std::string checkpoint;
  DataArguments data{.dataset = "", .split = "", .split_index = std::nullopt};
  MachineArguments machine;
};

/// All but --split-index.
void add_checkpoint_options(OptionParser& app, CheckpointArguments& arguments);

/// A checkpoint, its options overridden by the arguments, and the data to use it on.
struct LoadedCheckpoint {
  Checkpoint checkpoint;
  Dataset dataset;
};

/// load_options: as for load(const DataArguments&). Throws as read_checkpoint and load_dataset;
/// InvalidArgument if no checkpoint or no data set is named.
LoadedCheckpoint load(const CheckpointArguments& arguments, const LoadOptions& load_options = {});

}  // namespace mezzo::cli
