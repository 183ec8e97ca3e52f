#include "mezzo/cli/options/checkpoint_arguments.h"

#include "mezzo/core/error.h"
#include "mezzo/train/dataset_choice.h"

namespace mezzo::cli {

void add_checkpoint_options(OptionParser& app, CheckpointArguments& arguments) {
  OptionGroup(app, "Files")
      .text("--checkpoint", arguments.checkpoint, "FILE", "Checkpoint of mezzo train (required)");
  DataArguments& data = arguments.data;
  OptionGroup(app, "Data")
      .text("--dataset", data.dataset, "PATH|NAME", "Data set (default: the checkpoint's)")
      .text("--split", data.load.split, "NAME",
            "Which of the splits that have names, as for train (default: the checkpoint's, of its "
            "own data set)");
  add_format_options(app, data.load.task, data.load.csv);
  add_machine_options(app, arguments.machine);
}

LoadedCheckpoint load(const CheckpointArguments& arguments) {
  MEZZO_CHECK(!arguments.checkpoint.empty(), "--checkpoint is required");
  const at::Device device = use_machine(arguments.machine);
  LoadedCheckpoint loaded;
  loaded.trained = load_checkpoint(arguments.checkpoint, device);
  TrainOptions& options = loaded.trained.options;

  DataArguments data = arguments.data;
  choose_dataset(loaded.trained, data.dataset, data.load);
  loaded.dataset = load(data);
  const bool is_own =
      absolute_dataset(data.dataset) == options.dataset && data.load.split == options.split;
  if (is_own && options.split_index < loaded.dataset.num_splits()) {
    loaded.training_targets = loaded.dataset.split(options.split_index).train;
  }
  options.split_index = data.split_index.value_or(options.split_index);
  return loaded;
}

}  // namespace mezzo::cli
