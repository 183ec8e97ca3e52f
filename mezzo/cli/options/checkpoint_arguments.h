#pragma once

#include <string>

#include "mezzo/cli/options/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/trained_model.h"

namespace mezzo::cli {

/// The options of evaluate and predict; choose_dataset() completes them.
struct CheckpointArguments {
  std::string checkpoint;
  DataArguments data{.dataset = ""};
  MachineArguments machine;
};

/// Adds the options that both have.
void add_checkpoint_options(OptionParser& app, CheckpointArguments& arguments);

/// The model of a checkpoint, with its options overridden by the arguments, and the data.
struct LoadedCheckpoint {
  TrainedModel trained;
  Dataset dataset;
  /// bool [T], the targets that the run trained on; undefined unless the data set and the kind of
  /// its splits are the run's.
  at::Tensor training_targets;
};

/// Reads both. Throws as load_checkpoint, choose_dataset and load_dataset; InvalidArgument if no
/// checkpoint is named.
LoadedCheckpoint load(const CheckpointArguments& arguments);

}  // namespace mezzo::cli
