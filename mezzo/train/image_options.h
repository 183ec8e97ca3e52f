#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/export.h"
#include "mezzo/data/image_dataset.h"
#include "mezzo/train/options.h"

namespace mezzo {

/// The word of the command line, of reports and of checkpoints for nn::CNN.
inline constexpr auto kImageModel = "cnn";

/// Everything that decides a training run on images, as plain values.
struct ImageOptions {
  std::int64_t epochs = 10;       ///< >= 1
  std::int64_t batch_size = 128;  ///< >= 1
  double learning_rate = 1e-4;    ///< > 0, within check_rates
  double weight_decay = 0;        ///< >= 0, likewise, of every parameter
  OptimizerKind optimizer = OptimizerKind::kAdam;
  amp::Precision precision = amp::Precision::kFloat32;
  LossScale loss_scale;
  bool channels_last = false;  ///< how the model keeps activations in memory, see nn::CNNOptions
  amp::CpuPolicy cpu_policy = amp::CpuPolicy::kMeasure;  ///< of a 16-bit precision on the CPU
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;  ///< of the weights and of the order of the images

  /// How load_images finds the data, also for later commands on a checkpoint.
  std::string dataset = kFashionMnist;
  std::optional<std::int64_t> images;  ///< the first so many for training; default: all

  std::string checkpoint;  ///< file to write; empty: none
  std::string resume;      ///< file to go on from; empty: none
};

/// Throws InvalidArgument that names the first option out of its range.
MEZZO_API void check_options(const ImageOptions& options);

/// As recipe_to_json(const TrainOptions&): all options except epochs and the files.
std::string recipe_to_json(const ImageOptions& options);
/// The reverse. Throws IoError that names a missing or unreadable field.
ImageOptions image_recipe_from_json(std::string_view json);

/// What images are trained on and judged by.
struct ImageData {
  ImageDataset train, test;
};

/// Reads both parts that options.dataset names, as options.images limits them. Throws as
/// image_folder() and load_idx(); InvalidArgument where there are fewer images.
MEZZO_API ImageData load_images(const ImageOptions& options);

}  // namespace mezzo
