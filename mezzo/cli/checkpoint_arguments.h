#pragma once

#include <string>

#include "mezzo/cli/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/checkpoint.h"

namespace mezzo::cli {

/// What evaluate and predict share. The data set is the checkpoint's unless one is given.
struct CheckpointArguments {
  std::string checkpoint;
  DataArguments data{.dataset = "", .split = "", .split_index = std::nullopt};
  MachineArguments machine;
};

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments);

/// The checkpoint's file. Throws InvalidArgument where none is named.
const std::string& required_checkpoint(const CheckpointArguments& arguments);

/// A checkpoint, its options overridden by the arguments, and the data to use it on.
struct LoadedCheckpoint {
  Checkpoint checkpoint;
  Dataset dataset;
};

/// Throws as read_checkpoint and load_dataset; InvalidArgument where no data set is named.
LoadedCheckpoint load(const CheckpointArguments& arguments);

}  // namespace mezzo::cli
