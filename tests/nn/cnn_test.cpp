#include "mezzo/nn/cnn.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/pooling.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/error.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"

namespace mezzo::test::cnn_test {
namespace {

using nn::CNN;
using nn::CNNOptions;

/// Equal but for the order of sums in up to 17 layers: a share of the largest element.
testing::AssertionResult near_in_other_order(const at::Tensor& got, const at::Tensor& expected) {
  constexpr double kTerms = 17 * 512;
  const double largest = expected.detach().abs().max().item<double>();
  const at::Tensor sizes = at::full(expected.sizes(), largest, on_device(at::kDouble));
  return near(got, expected.detach().to(at::kDouble), sum_bound(sizes, kTerms, at::kFloat));
}

/// The network as a list of libtorch's modules.
torch::nn::Sequential plain_modules() {
  struct Convolution {
    std::int64_t in, out, kernel, stride, padding;
  };
  const std::vector<Convolution> convolutions = {
      {1, 32, 3, 1, 1},    {32, 64, 3, 1, 1},   {64, 64, 2, 2, 0},   {64, 128, 3, 1, 1},
      {128, 128, 3, 1, 1}, {128, 128, 3, 1, 1}, {128, 128, 2, 2, 0}, {128, 256, 3, 1, 1},
      {256, 256, 2, 1, 0}, {256, 512, 3, 1, 1}, {512, 512, 3, 1, 1}, {512, 512, 3, 1, 1},
      {512, 512, 2, 2, 0}, {512, 1024, 3, 1, 1}};
  torch::nn::Sequential model;
  for (const Convolution& c : convolutions) {
    model->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(c.in, c.out, c.kernel)
                                           .stride(c.stride)
                                           .padding(c.padding)
                                           .bias(false)));
    model->push_back(torch::nn::BatchNorm2d(c.out));
    model->push_back(torch::nn::ReLU());
  }
  model->push_back(torch::nn::AdaptiveAvgPool2d(1));
  model->push_back(torch::nn::Flatten());
  model->push_back(torch::nn::Linear(1024, 1000));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(1000, 1000));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(1000, 10));
  return model;
}

CNN seeded(const CNNOptions& options = {}) {
  // A TF32 product rounds more than the bound of float32 allows.
  at::globalContext().setAllowTF32CuDNN(false);
  at::manual_seed(3);
  CNN model(options);
  model->to(test_device());
  return model;
}

TEST(CNN, equals_libtorchs_modules_in_a_row_with_gradients) {
  at::manual_seed(3);
  torch::nn::Sequential plain = plain_modules();
  plain->to(test_device());
  CNN model = seeded();
  const std::vector<at::Tensor> expected = plain->parameters(), given = model->parameters();
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    ASSERT_TRUE(same_bits(given[i], expected[i])) << i;
  }
  const at::Tensor x = uniform({2, 1, 28, 28}, at::kFloat, 1, 0, 1);
  const at::Tensor logits = model->forward(x), reference = plain->forward(x);
  EXPECT_TRUE(same_bits(logits, reference));
  logits.square().sum().backward();
  reference.square().sum().backward();
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_TRUE(near_in_other_order(given[i].grad(), expected[i].grad())) << i;
  }
  const std::vector<at::Tensor> statistics = model->buffers(), wanted = plain->buffers();
  ASSERT_EQ(statistics.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(same_bits(statistics[i], wanted[i])) << i;
  }
}

TEST(CNN, has_the_parameters_that_its_header_names) {
  const CNN model(CNNOptions{.in_channels = 3, .num_classes = 7});
  const auto parameters = model->named_parameters();
  const auto shape = [&](const char* name) { return parameters[name].sizes().vec(); };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape("conv0.weight"), (Shape{32, 3, 3, 3}));
  EXPECT_EQ(shape("conv13.weight"), (Shape{1024, 512, 3, 3}));
  EXPECT_EQ(shape("norm13.bias"), (Shape{1024}));
  EXPECT_EQ(shape("linear0.weight"), (Shape{1000, 1024}));
  EXPECT_EQ(shape("linear2.weight"), (Shape{7, 1000}));
  EXPECT_FALSE(parameters.contains("conv0.bias"));
  EXPECT_TRUE(model->named_buffers().contains("norm0.running_mean"));
  std::int64_t count = 0;
  for (const at::Tensor& parameter : CNN()->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 14736266);
}

TEST(CNN, channels_last_has_the_same_parameters_and_stays_so) {
  CNN plain = seeded(), last = seeded({.channels_last = true});
  const auto given = last->parameters(), expected = plain->parameters();
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(exact(given[i], expected[i])) << i;
  const at::Tensor weight = last->named_parameters()["conv5.weight"];
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor x = uniform({4, 1, 28, 28}, at::kFloat, 2, 0, 1);
  const at::Tensor a = last->forward(x);
  EXPECT_TRUE(near_in_other_order(a, plain->forward(x)));
  a.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(CNN, runs_in_every_precision_on_any_size_of_image) {
  CNN model = seeded();
  for (const amp::Precision precision : amp::kPrecisions) {
    for (const auto& [height, width] : {std::pair{12, 12}, {13, 30}}) {
      const at::Tensor x = uniform({2, 1, height, width}, at::kFloat, 4, 0, 1);
      const amp::PrecisionScope scope(precision, test_device());
      const at::Tensor logits = model->forward(x);
      EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 10}));
      EXPECT_TRUE(logits.isfinite().all().item<bool>()) << amp::to_string(precision);
    }
  }
}

TEST(CNN, other_shapes_and_options_are_invalid_arguments) {
  CNN model = seeded();
  const auto refused = [&](at::IntArrayRef sizes, const std::string& part) {
    return throws<InvalidArgument>([&] { model->forward(at::zeros(sizes, on_device())); },
                                   {"CNN", part});
  };
  EXPECT_TRUE(refused({2, 3, 28, 28}, "[B, 1, H, W]"));
  EXPECT_TRUE(refused({2, 1, 11, 28}, "at least 12"));
  EXPECT_TRUE(refused({1, 28, 28}, "[B, 1, H, W]"));
  EXPECT_TRUE(refused({0, 1, 28, 28}, "[B, 1, H, W]"));
  EXPECT_TRUE(refused({1, 1, 19, 19}, "at least 2 images"));
  EXPECT_EQ(model->forward(at::zeros({1, 1, 12, 20}, on_device())).size(0), 1);
  model->eval();
  EXPECT_EQ(model->forward(at::zeros({1, 1, 12, 12}, on_device())).size(0), 1);
  EXPECT_TRUE(throws<InvalidArgument>([&] { model->forward(at::Tensor()); }, {"CNN"}));
  EXPECT_TRUE(throws<InvalidArgument>([] { CNN(CNNOptions{.in_channels = 0}); }, {"in_channels"}));
  EXPECT_TRUE(throws<InvalidArgument>([] { CNN(CNNOptions{.num_classes = 0}); }, {"num_classes"}));
}

}  // namespace
}  // namespace mezzo::test::cnn_test
