#include "mezzo/nn/cnn.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kName = "CNN";
constexpr std::int64_t kHidden = 1000;  // width of the linear layers

struct Convolution {
  std::int64_t out, kernel, stride, padding;
};
constexpr std::array<Convolution, 14> kConvolutions = {{{32, 3, 1, 1},
                                                        {64, 3, 1, 1},
                                                        {64, 2, 2, 0},
                                                        {128, 3, 1, 1},
                                                        {128, 3, 1, 1},
                                                        {128, 3, 1, 1},
                                                        {128, 2, 2, 0},
                                                        {256, 3, 1, 1},
                                                        {256, 2, 1, 0},
                                                        {512, 3, 1, 1},
                                                        {512, 3, 1, 1},
                                                        {512, 3, 1, 1},
                                                        {512, 2, 2, 0},
                                                        {1024, 3, 1, 1}}};

void check_images(const at::Tensor& x, const CNNOptions& options, bool training) {
  constexpr std::int64_t kLeast = CNNImpl::kLeastExtent;
  MEZZO_CHECK(x.defined() && x.dim() == 4 && x.is_floating_point() && x.size(0) >= 1 &&
                  x.size(1) == options.in_channels && x.size(2) >= kLeast && x.size(3) >= kLeast,
              "{}: expected floating images [B, {}, H, W], H and W at least {}, got {}", kName,
              options.in_channels, kLeast, detail::describe(x));
  MEZZO_CHECK(
      !training || x.size(0) > 1 || std::max(x.size(2), x.size(3)) >= CNNImpl::kLeastExtentOfOne,
      "{}: batch normalization expects at least 2 images of {} x {} while training, got 1", kName,
      x.size(2), x.size(3));
}

}  // namespace

CNNImpl::CNNImpl(CNNOptions given) : options(given) {
  detail::check_positive(kName, "in_channels", options.in_channels);
  detail::check_positive(kName, "num_classes", options.num_classes);
  std::int64_t in = options.in_channels;
  for (const Convolution& layer : kConvolutions) {
    const std::string index = std::to_string(convolutions_.size());
    convolutions_.push_back(register_module(
        "conv" + index, torch::nn::Conv2d(torch::nn::Conv2dOptions(in, layer.out, layer.kernel)
                                              .stride(layer.stride)
                                              .padding(layer.padding)
                                              .bias(false))));
    norms_.push_back(register_module("norm" + index, torch::nn::BatchNorm2d(layer.out)));
    at::Tensor& weight = convolutions_.back()->weight;
    if (options.channels_last) {
      weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
    in = layer.out;
  }
  for (const std::int64_t out : {kHidden, kHidden, options.num_classes}) {
    linears_.push_back(
        register_module("linear" + std::to_string(linears_.size()), torch::nn::Linear(in, out)));
    in = out;
  }
}

at::Tensor CNNImpl::forward(const at::Tensor& x) {
  check_images(x, options, is_training());
  at::Tensor h = options.channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    // In place: the backward of the normalization needs its input, not its output.
    h = norms_[i]->forward(convolutions_[i]->forward(h)).relu_();
  }
  h = at::adaptive_avg_pool2d(h, {1, 1}).flatten(1);
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    if (i > 0) h = at::relu(h);
    h = mezzo::linear(h, linears_[i]->weight, linears_[i]->bias);
  }
  return h;
}

}  // namespace mezzo::nn
