#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/state.h"

namespace mezzo {

/// The part of a data set that a checkpoint remembers, to refuse another one.
struct DatasetFacts {
  std::string name;
  std::int64_t num_nodes = 0, num_edges = 0, num_features = 0, num_classes = 0;
  bool is_multi_label = false;
};

/// The weights of a checkpoint and what is needed to use them.
struct Checkpoint {
  TrainOptions options;  ///< the recipe; device, epochs, patience and files are defaults
  DatasetFacts data;
  std::int64_t epoch = 0;       ///< epochs done
  std::int64_t best_epoch = 0;  ///< the epoch of best_weights; before any evaluation: `epoch`
  std::vector<std::string> names;
  std::vector<at::Tensor> weights;  ///< after the last step, on the CPU, one a name
  /// Of the best epoch, likewise; before any evaluation the same as `weights`.
  std::vector<at::Tensor> best_weights;
};

/// Reads a checkpoint. Throws IoError that names the file where it is missing, truncated, corrupt
/// or of another format.
MEZZO_API Checkpoint read_checkpoint(const std::string& path);

/// A model with the best weights of a checkpoint, on its options' device, for `problem` made by
/// make_problem or make_inference_problem (with num_classes and is_multi_label set) with the
/// checkpoint's options. Throws InvalidArgument where the checkpoint is of data with another number
/// of features or classes, or only one of the two is multi-label.
MEZZO_API nn::Model model_of(const Checkpoint& checkpoint, const Problem& problem);

/// Writes everything that a run needs to go on bit for bit: weights, optimizer, scaler, random
/// number generators, history, recipe. The file is replaced as a whole (replace_file) and carries a
/// checksum. Throws IoError.
void write_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                      const TrainState& state);

/// Puts `state`, freshly made from `options`, where the checkpoint stopped. Throws IoError as
/// read_checkpoint does; InvalidArgument that names the first field in which the recipe or the data
/// differ.
void resume_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                       TrainState& state);
/// The same from what read_archive(path) gave, here or in another process.
void resume_checkpoint(const std::string& path, const std::string& bytes,
                       const TrainOptions& options, const Dataset& dataset, TrainState& state);

}  // namespace mezzo
