#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/nn_reference.h"
#include "support/tensors.h"

/// A batch, rows and parameters of exact numbers for modules over the graphs of a batch, for which
/// the tests state results of a peer.
namespace mezzo::test {

/// Graphs of 4, 0, 1, 7 and 0 nodes.
inline Graph mixed_batch() {
  return batch({four_node_graph(), empty_graph(), one_node_graph(), cycle_graph(7), empty_graph()});
}

/// Quarters in [-5/4, 5/4]: ((a i + b j) mod 11 - 5) / 4 for row i, column j; float64.
inline at::Tensor quarters(std::int64_t rows, std::int64_t columns, std::uint64_t a,
                           std::uint64_t b) {
  const auto width = static_cast<std::uint64_t>(columns);
  return filled({rows, columns}, at::kDouble, [=](std::uint64_t i) {
    return (static_cast<double>((a * (i / width) + b * (i % width)) % 11) - 5) / 4;
  });
}

/// What a peer computes for the rows quarters(12, 3, 7, 3) of mixed_batch(), with quarters(1, size,
/// 0, k + 4) as parameter k, in float64.
struct PeerResult {
  double loss;                                 ///< the sum of the result times quarters(n, 3, 2, 5)
  double input_gradient;                       ///< the sum of the rows' times quarters(12, 3, 4, 1)
  std::vector<std::vector<double>> gradients;  ///< of the parameters
};

/// Expects that `forward`, of rows [12, 3], gives these results with the parameters of `module`.
template <class Forward>
void expect_peer(torch::nn::Module& module, Forward forward, const PeerResult& expected) {
  module.to(test_device(), at::kDouble);
  std::vector<at::Tensor> inputs = {leaf(quarters(12, 3, 7, 3))};
  std::uint64_t number = 4;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.set_data(quarters(1, parameter.numel(), 0, number++).view(parameter.sizes()));
    inputs.push_back(parameter);
  }
  const at::Tensor out = forward(inputs[0]);
  const at::Tensor loss = (out * quarters(out.size(0), 3, 2, 5)).sum();
  const auto gradients = torch::autograd::grad({loss}, inputs);
  EXPECT_TRUE(near_terms(loss.detach().view({1}), numbers({expected.loss}), 100));
  EXPECT_TRUE(near_terms((gradients[0] * quarters(12, 3, 4, 1)).sum().view({1}),
                         numbers({expected.input_gradient}), 100));
  ASSERT_EQ(gradients.size(), expected.gradients.size() + 1);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(near_terms(gradients[i + 1].flatten(), numbers(expected.gradients[i]), 100)) << i;
  }
}

/// Expects the same bits of `run`, which returns tensors, for several numbers of threads.
template <class Run>
void expect_bits_for_any_threads(Run run) {
  const auto with = [&](int threads) {
    const ThreadCount count(threads);
    return run();
  };
  const std::vector<at::Tensor> expected = with(1);
  for (const int threads : {2, 3, 7}) {
    const std::vector<at::Tensor> got = with(threads);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(got[i], expected[i])) << threads << " threads, result " << i;
    }
  }
}

/// A batch of graphs of 0 to 4 nodes without edges, and one of 60,000.
inline Graph many_graphs() {
  const at::Tensor sizes =
      at::cat({at::arange(3000).remainder(5), at::full({1}, 60'000, at::kLong)}).to(at::kLong);
  Graph graph = isolated_graph(sizes.sum().item<std::int64_t>());
  graph.set_batch(sizes, at::zeros_like(sizes));
  return graph;
}

}  // namespace mezzo::test
