#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

/// The network of 07_cnn_mixed_precision.cpp: 14 convolutions, each followed by batch normalization
/// and ReLU, the mean over the image, three linear layers. 14.7 million parameters.
/// Takes images [B, 1, H, W] of at least 12 x 12 pixels, returns logits [B, 10].
/// channels_last: stores the weights of the convolutions with the channels innermost; activations
/// follow. The numbers are the same up to rounding.
inline torch::nn::Sequential make_network(bool channels_last = false) {
  struct Convolution {
    std::int64_t in, out, kernel, stride, padding;
  };
  constexpr Convolution kConvolutions[] = {
      {1, 32, 3, 1, 1},    {32, 64, 3, 1, 1},   {64, 64, 2, 2, 0},   {64, 128, 3, 1, 1},
      {128, 128, 3, 1, 1}, {128, 128, 3, 1, 1}, {128, 128, 2, 2, 0}, {128, 256, 3, 1, 1},
      {256, 256, 2, 1, 0}, {256, 512, 3, 1, 1}, {512, 512, 3, 1, 1}, {512, 512, 3, 1, 1},
      {512, 512, 2, 2, 0}, {512, 1024, 3, 1, 1}};
  // In place, because the previous layer's backward needs its input, not its output.
  const auto relu = [] { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); };
  torch::nn::Sequential network;
  for (const Convolution& c : kConvolutions) {
    torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(c.in, c.out, c.kernel)
                                      .stride(c.stride)
                                      .padding(c.padding)
                                      .bias(false));
    if (channels_last) {
      at::Tensor& weight = convolution->weight;
      weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
    network->push_back(convolution);
    network->push_back(torch::nn::BatchNorm2d(c.out));
    network->push_back(relu());
  }
  network->push_back(torch::nn::AdaptiveAvgPool2d(1));
  network->push_back(torch::nn::Flatten());
  network->push_back(torch::nn::Linear(1024, 1000));
  network->push_back(relu());
  network->push_back(torch::nn::Linear(1000, 1000));
  network->push_back(relu());
  network->push_back(torch::nn::Linear(1000, 10));
  return network;
}
