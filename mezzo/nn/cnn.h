#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"

namespace mezzo::nn {

/// Options of CNN.
struct CNNOptions {
  std::int64_t in_channels = 1;
  std::int64_t num_classes = 10;
  /// Keeps activations and the weights of convolutions in memory with the channels innermost, which
  /// many convolution kernels prefer. The numbers are the same up to rounding.
  bool channels_last = false;
};

/// A VGG-like network for small images: 14 convolutions without bias from 32 to 1024 channels, of
/// which three halve the image, each followed by batch normalization and ReLU; the mean over what
/// is left of the image; three linear layers with ReLU between. 14.7 million parameters.
///
/// Parameters, in this order: `conv0.weight` [32, in_channels, 3, 3], `norm0.weight` and
/// `norm0.bias` [32], ..., `norm13.bias` [1024], `linear0.weight` [1000, 1024], `linear0.bias`,
/// ..., `linear2.bias` [num_classes]; buffers `norm0.running_mean`, `norm0.running_var`,
/// `norm0.num_batches_tracked`, .... As libtorch initialises them, drawn in the order of the names.
class MEZZO_API CNNImpl : public torch::nn::Module {
 public:
  /// The least height and width of an image.
  static constexpr std::int64_t kLeastExtent = 12;
  /// While training, a batch of one image needs so much height or width, since batch normalization
  /// needs more than one value a channel.
  static constexpr std::int64_t kLeastExtentOfOne = 20;

  /// Throws InvalidArgument unless the sizes are positive.
  explicit CNNImpl(CNNOptions options = {});

  /// x: floating [B, in_channels, H, W], H, W >= kLeastExtent. Returns the logits
  /// [B, num_classes]. Throws InvalidArgument for other shapes, and while training for one image
  /// that is smaller than kLeastExtentOfOne both ways.
  at::Tensor forward(const at::Tensor& x);

  CNNOptions options;

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  std::vector<torch::nn::Linear> linears_;
};
TORCH_MODULE(CNN);

}  // namespace mezzo::nn
