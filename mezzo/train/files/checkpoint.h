#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/state.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {

/// The weights of a checkpoint and what is needed to use them.
struct Checkpoint {
  TrainOptions options;  ///< device, capture, files, and how batches are drawn are defaults
  DatasetFacts data;
  std::int64_t epoch = 0;       ///< epochs done
  std::int64_t best_epoch = 0;  ///< the epoch of best_weights; before any evaluation: `epoch`
  std::vector<std::string> names;
  std::vector<at::Tensor> weights;  ///< after the last step, on the CPU, one for each name
  /// The weights of the best epoch; before any evaluation equal to `weights`.
  std::vector<at::Tensor> best_weights;
};

/// Reads a checkpoint. Throws IoError that names the file if it is missing, truncated, corrupt or
/// of another format.
MEZZO_API Checkpoint read_checkpoint(const std::string& path);

/// The options of a checkpoint as JSON, for config_from_json(). Throws as read_checkpoint.
MEZZO_API std::string read_config(const std::string& path);

/// The facts about the data in such a text. Throws IoError for missing ones.
MEZZO_API DatasetFacts facts_from_config(const std::string& config);

/// Throws InvalidArgument that lists all options that prevent resuming. written: the options of the
/// run that wrote `path`; options: of the resumed run.
MEZZO_API void check_resumable(const std::string& path, const TrainOptions& written,
                               const TrainOptions& options);

/// Sets the weights of the model, one of `options`, to the best ones of a checkpoint. Throws as
/// read_checkpoint, and InvalidArgument that names the first option that gives the two models
/// different shapes.
void init_from_checkpoint(const std::string& path, const nn::ModelOptions& options,
                          torch::nn::Module& model);

/// The facts about the whole data set; number_scale keeps its default.
DatasetFacts facts_of(const Dataset& dataset);

/// Writes everything that a run needs to continue bit for bit: weights, optimizer, scaler, random
/// number generators, history, config. Replaces the file as a whole (replace_file), with a
/// checksum. Throws IoError.
void write_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                      const TrainState& state);

/// Sets `state`, newly constructed from `options`, to the checkpoint. Throws IoError as
/// read_checkpoint does; InvalidArgument that lists the fields of config or data that differ. The
/// learning rate may differ: that of `options` is used.
void resume_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                       TrainState& state);
/// The same for the result of read_checkpoint_bytes(path), here or in another process.
void resume_checkpoint(const std::string& path, const std::string& bytes,
                       const TrainOptions& options, const Dataset& dataset, TrainState& state);

}  // namespace mezzo
