#include "mezzo/nn/layer_norm.h"

#include <torch/nn/modules/normalization.h>

#include "support/module_gradcheck.h"
#include "support/peer_case.h"
#include "support/tensors.h"

namespace mezzo::test::layer_norm_test {
namespace {

constexpr std::int64_t kWidth = 3;

torch::nn::LayerNorm make_norm(at::ScalarType dtype) {
  torch::nn::LayerNorm norm(std::vector<std::int64_t>{kWidth});
  norm->to(test_device(), dtype);
  return norm;
}

/// The dtypes of rows, each with every dtype that parameters may have beside it.
template <class Check>
void for_each_dtype(Check check) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    check(dtype.scalar, dtype.scalar);
  }
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name + " with float32 parameters");
    check(dtype.scalar, at::kFloat);
  }
}

/// The gradients of weight and bias for the upstream gradient.
std::vector<at::Tensor> parameter_gradients(const torch::nn::LayerNorm& norm, const at::Tensor& h,
                                            const at::Tensor& upstream) {
  return torch::autograd::grad({nn::detail::layer_norm(*norm, h)}, {norm->weight, norm->bias},
                               {upstream});
}

// A 16-bit sum of ones ends at 256 (bfloat16) or 2048 (float16). The rows are (1, 0, -1), whose
// normalized columns are c, 0 and -c.
TEST(LayerNorm, adds_the_gradients_of_many_rows) {
  constexpr std::int64_t kRows = 4096;
  for_each_dtype([&](at::ScalarType rows, at::ScalarType parameters) {
    const torch::nn::LayerNorm norm = make_norm(parameters);
    const at::Tensor row = numbers({1, 0, -1}).to(rows);
    const auto gradients =
        parameter_gradients(norm, row.expand({kRows, kWidth}), at::ones({kRows, kWidth}, rows));
    const at::Tensor c = numbers({1, 0, -1}) / std::sqrt(2.0 / 3 + norm->options.eps());
    EXPECT_TRUE(at::equal(gradients[1], at::full({kWidth}, kRows, gradients[1].options())));
    // Each float32 sum adds at most 1024 and then 4 numbers, beside five operations for each.
    EXPECT_TRUE(near(gradients[0], c * kRows,
                     sum_bound(c.abs() * kRows, 1024 + 4 + 5, gradients[0].scalar_type())));
  });
}

TEST(LayerNorm, rows_and_their_gradient_equal_libtorchs) {
  for_each_dtype([&](at::ScalarType rows, at::ScalarType parameters) {
    const torch::nn::LayerNorm norm = make_norm(parameters);
    const at::ScalarType wide = rows == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor h = leaf(uniform({50, kWidth}, rows, 1)), other = leaf(h);
    const at::Tensor got = nn::detail::layer_norm(*norm, h);
    const at::Tensor expected = at::layer_norm(other, {kWidth}, norm->weight.to(wide),
                                               norm->bias.to(wide), norm->options.eps());
    EXPECT_TRUE(same_bits(got.detach(), expected.detach()));
    const at::Tensor upstream = uniform({50, kWidth}, rows, 2);
    got.backward(upstream);
    expected.backward(upstream);
    EXPECT_TRUE(same_bits(h.grad(), other.grad()));
  });
}

TEST(LayerNorm, gradients_agree_with_differences) {
  const torch::nn::LayerNorm norm = make_norm(at::kDouble);
  EXPECT_TRUE(module_gradcheck(*norm.ptr(),
                               [&](const std::vector<at::Tensor>& inputs) {
                                 return nn::detail::layer_norm(*norm, inputs[0]);
                               },
                               {uniform({12, kWidth}, at::kDouble, 3)}));
}

TEST(LayerNorm, gradients_have_the_same_bits_for_any_number_of_threads) {
  constexpr std::int64_t kRows = 5000;
  for_each_dtype([&](at::ScalarType rows, at::ScalarType parameters) {
    const torch::nn::LayerNorm norm = make_norm(parameters);
    const at::Tensor h = uniform({kRows, kWidth}, rows, 4),
                     upstream = uniform({kRows, kWidth}, rows, 5);
    expect_bits_for_any_threads([&] { return parameter_gradients(norm, h, upstream); });
  });
}

TEST(LayerNorm, takes_no_rows) {
  const torch::nn::LayerNorm norm = make_norm(at::kFloat);
  const at::Tensor none = at::empty({0, kWidth});
  for (const at::Tensor& gradient : parameter_gradients(norm, none, none)) {
    EXPECT_TRUE(at::equal(gradient, at::zeros({kWidth})));
  }
}

}  // namespace
}  // namespace mezzo::test::layer_norm_test
