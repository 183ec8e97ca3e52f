#pragma once

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

/// References and checks for layers with edge features.
namespace mezzo::test {

/// The rows of the edges' sources, [E, ...].
inline at::Tensor rows_of_sources(const Topology& g, const at::Tensor& rows) {
  return rows.index_select(0, g.src().to(at::kLong));
}
/// The rows of the edges' destinations, [E, ...].
inline at::Tensor rows_of_destinations(const Topology& g, const at::Tensor& rows) {
  return rows.index_select(0, g.dst().to(at::kLong));
}
/// The sum of the messages, [E, ...], into each destination.
inline at::Tensor sums_of_messages(const Topology& g, const at::Tensor& messages) {
  std::vector<std::int64_t> shape = messages.sizes().vec();
  shape[0] = g.num_dst();
  return at::zeros(shape, messages.options()).index_add(0, g.dst().to(at::kLong), messages);
}
/// The softmax of the logits, [E, ...], over the edges into each destination.
inline at::Tensor shares_of_messages(const Topology& g, const at::Tensor& logits) {
  return logits.exp() / rows_of_destinations(g, sums_of_messages(g, logits.exp()));
}
/// The layer's product in float64.
inline at::Tensor plain(const torch::nn::Linear& linear, const at::Tensor& x) {
  return dense_linear(x, linear->weight, linear->bias, Numbers::kGiven);
}

/// What a layer returns.
using Outputs = std::vector<at::Tensor>;
inline Outputs outputs_of(const at::Tensor& one) {
  return {one};
}
inline Outputs outputs_of(const std::pair<at::Tensor, at::Tensor>& both) {
  return {both.first, both.second};
}

/// Expects outputs of `dtype` within 16 roundings of the definition's largest number, and 64 steps
/// of the accumulator on that.
inline void expect_near_outputs(const Outputs& got, const Outputs& expected, at::ScalarType dtype) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double largest = 1 + expected[i].abs().max().item<double>();
    const double rounding = dtype == at::kDouble ? 0 : 16 * info(dtype).epsilon;
    EXPECT_EQ(got[i].scalar_type(), dtype) << "output " << i;
    EXPECT_TRUE(near(got[i], expected[i],
                     sum_bound(at::full_like(expected[i], largest), 512, dtype, rounding)))
        << "output " << i;
  }
}

/// Expects the outputs of `run` near the definition in float64, after that in float32, and in a
/// region of each 16-bit type with float32 parameters, whose gradients must be float32 and finite
/// (`bn_` may be without one).
/// run(dtype) calls the layer with inputs of that dtype.
template <class Run, class Define>
void expect_in_every_precision(torch::nn::Module& module, Run run, Define define) {
  module.to(test_device(), at::kDouble);
  expect_near_outputs(run(at::kDouble), define(), at::kDouble);
  module.to(at::kFloat);
  expect_near_outputs(run(at::kFloat), define(), at::kFloat);
  for (const auto& [precision, dtype] : {std::pair(amp::Precision::kBFloat16, at::kBFloat16),
                                         std::pair(amp::Precision::kFloat16, at::kHalf)}) {
    SCOPED_TRACE(c10::toString(dtype));
    module.zero_grad();
    Outputs got;
    {
      const amp::PrecisionScope scope(precision, test_device());
      got = run(at::kFloat);
    }
    expect_near_outputs(got, define(), dtype);
    at::Tensor total = got[0].sum().to(at::kFloat);
    for (std::size_t i = 1; i < got.size(); ++i) total = total + got[i].sum();
    total.backward();
    for (const auto& parameter : module.named_parameters()) {
      if (parameter.key().starts_with("bn_") && !parameter.value().grad().defined()) continue;
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_EQ(parameter.value().grad().scalar_type(), at::kFloat) << parameter.key();
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
  module.to(at::kDouble);
}

/// gradcheck of all outputs side by side, for the inputs and the parameters.
template <class Run>
testing::AssertionResult edge_gradcheck(torch::nn::Module& module, Run run,
                                        const std::vector<at::Tensor>& inputs) {
  return module_gradcheck(
      module,
      [&](const std::vector<at::Tensor>& in) {
        at::Tensor all;
        for (const at::Tensor& one : run(in)) {
          all = all.defined() ? at::cat({all, one.flatten()}) : one.flatten();
        }
        return all;
      },
      inputs);
}

}  // namespace mezzo::test
