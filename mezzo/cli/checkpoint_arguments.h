#pragma once

#include <string>

#include "mezzo/cli/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/files/checkpoint.h"

namespace mezzo::cli {

/// The options of evaluate and predict. Without a data set: the checkpoint's.
struct CheckpointArguments {
  std::string checkpoint;
  DataArguments data{.dataset = "", .split = "", .split_index = std::nullopt};
  MachineArguments machine;
};

/// Adds all but --split-index.
void add_checkpoint_options(OptionParser& app, CheckpointArguments& arguments);

/// A checkpoint, with its options overridden by the arguments, and the data.
struct LoadedCheckpoint {
  Checkpoint checkpoint;
  Dataset dataset;
  /// bool [N], the nodes that the run trained on; undefined unless the data set and the kind of its
  /// splits are the run's.
  at::Tensor training_nodes;
};

/// Reads both. Throws as read_checkpoint and load_dataset; InvalidArgument if no checkpoint or no
/// data set is named.
LoadedCheckpoint load(const CheckpointArguments& arguments, const LoadOptions& load_options = {});

}  // namespace mezzo::cli
