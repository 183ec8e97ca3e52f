#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/nn/cnn.h"
#include "mezzo/train/image_options.h"
#include "mezzo/train/inference.h"
#include "mezzo/train/state.h"

namespace mezzo {

/// An epoch that has begun.
struct PartialEpoch {
  std::int64_t batches = 0;  ///< done
  std::int64_t images = 0;   ///< in them
  std::int64_t correct = 0;  ///< predictions that were right
  double loss_sum = 0;       ///< over the images
  double milliseconds = 0;   ///< of the steps

  double mean_loss() const { return loss_sum / static_cast<double>(images); }
};

/// Everything that moves while images are trained on.
class ImageState {
 public:
  /// Seeds libtorch's generators with options.seed, then makes the model (float32, on the device),
  /// the optimizer and the scaler.
  ImageState(const ImageOptions& options, const ImageDataset& train);
  ~ImageState();
  ImageState(const ImageState&) = delete;
  ImageState& operator=(const ImageState&) = delete;

  nn::CNN model{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  amp::GradScaler scaler;
  History history;       ///< of complete epochs; steps and skipped ones: of all
  PartialEpoch partial;  ///< of the epoch after them
};

/// As write_checkpoint() and resume_checkpoint().
void write_image_checkpoint(const std::string& path, const ImageOptions& options,
                            const ImageData& data, const ImageState& state);
void resume_image_checkpoint(const std::string& path, const ImageOptions& options,
                             const ImageData& data, ImageState& state);

/// The weights of a checkpoint of images and what is needed to use them.
struct ImageCheckpoint {
  ImageOptions options;  ///< the recipe; device, epochs and files are defaults
  std::int64_t num_classes = 0, channels = 0;
  std::int64_t epoch = 0;           ///< complete epochs
  std::vector<std::string> names;   ///< of the weights
  std::vector<at::Tensor> weights;  ///< after the last step, on the CPU
};

/// Whether train_images() wrote the checkpoint, and not train(). Throws IoError as
/// read_checkpoint().
MEZZO_API bool is_image_checkpoint(const std::string& path);

/// As read_checkpoint().
MEZZO_API ImageCheckpoint read_image_checkpoint(const std::string& path);

/// The predictions of the checkpoint's weights for every image, by batches of its options' size, on
/// their device and in their precision (which the caller may change). Throws InvalidArgument where
/// the images do not fit the model.
MEZZO_API Predictions predict(const ImageDataset& dataset, const ImageCheckpoint& checkpoint);

/// The share of them that is right.
MEZZO_API double evaluate(const ImageDataset& dataset, const ImageCheckpoint& checkpoint);

/// Logits float32 [B, classes] of `model` in evaluation mode and without gradient, batch by batch,
/// as the options have them, on their device: `each` is called with them and the labels there. The
/// modes of the model's parts are restored. Ends early, and returns false, where should_stop (if
/// any), asked before each batch, says so.
bool for_each_batch_logits(nn::CNN& model, const ImageDataset& dataset, const ImageOptions& options,
                           const std::function<bool()>& should_stop,
                           const std::function<void(const at::Tensor&, const at::Tensor&)>& each);

/// How many rows have their largest logit at their label; a row with a NaN is wrong. logits:
/// floating [B, C]; labels: int64 [B]. Synchronises.
std::int64_t count_correct(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace mezzo
