#pragma once

#include <algorithm>
#include <optional>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/propagation_layers.h"

#include "support/nn_reference.h"

/// References in float64, with dense matrices, for layers without attention and without a weight
/// before the sum.
namespace mezzo::test {

/// D^(-1/2) A D^(-1/2) [N, N]: unweighted, the in-degrees of the destinations and those, or the
/// out-degrees, of the sources, of at least 1; weighted, the sums of the weights. Never negative.
inline at::Tensor propagation_matrix(const Topology& topology, const at::Tensor& edge_weight = {},
                                     bool sources_by_out_degree = false) {
  const bool weighted = edge_weight.defined();
  const at::Tensor matrix =
      weighted ? adjacency(topology, take(edge_weight, Numbers::kGiven)) : adjacency(topology);
  const auto filled = [&](const at::Tensor& degrees) {
    return weighted ? at::where(degrees == 0, at::ones_like(degrees), degrees)
                    : degrees.clamp_min(1);
  };
  const at::Tensor received = filled(matrix.sum(1));
  const at::Tensor sent = weighted || sources_by_out_degree ? filled(matrix.sum(0)) : received;
  return matrix * sent.pow(-0.5) * received.pow(-0.5).unsqueeze(1);
}

inline at::Tensor define(const nn::SGConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight = {}, Numbers numbers = Numbers::kGiven) {
  const at::Tensor matrix = propagation_matrix(topology, edge_weight);
  at::Tensor rows = take(h, numbers);
  for (std::int64_t hop = 0; hop < layer->options.k; ++hop) rows = at::matmul(matrix, rows);
  return dense_linear(rows, layer->fc->weight, layer->fc->bias, numbers);
}

/// h: a matrix. No edge is dropped.
inline at::Tensor define(const nn::APPNPConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight = {}, Numbers numbers = Numbers::kGiven) {
  const at::Tensor matrix = propagation_matrix(topology, edge_weight, true);
  const at::Tensor first = take(h, numbers);
  const double alpha = layer->options.alpha;
  at::Tensor rows = first;
  for (std::int64_t step = 0; step < layer->options.k; ++step) {
    rows = (1 - alpha) * at::matmul(matrix, rows) + alpha * first;
  }
  return rows;
}

/// Before the activation.
inline at::Tensor define(const nn::TAGConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight = {}, Numbers numbers = Numbers::kGiven) {
  const at::Tensor matrix = propagation_matrix(topology, edge_weight);
  std::vector<at::Tensor> hops = {take(h, numbers)};
  for (std::int64_t hop = 0; hop < layer->options.k; ++hop) {
    hops.push_back(at::matmul(matrix, hops.back()));
  }
  return dense_linear(at::cat(hops, 1), layer->lin->weight, layer->lin->bias, numbers);
}

/// Before the activation. lambda_max: [N] or undefined.
inline at::Tensor define(const nn::ChebConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& lambda_max = {}, Numbers numbers = Numbers::kGiven) {
  const std::int64_t num_nodes = topology.num_src();
  const at::Tensor largest = lambda_max.defined()
                                 ? take(lambda_max, numbers)
                                 : at::full({num_nodes}, 2, on_device(at::kDouble));
  const at::Tensor ratio = (2 / largest).unsqueeze(1);
  const double sign = numbers == Numbers::kGiven ? -1 : 1;
  const at::Tensor laplacian =
      sign * ratio * propagation_matrix(topology) +
      take(ratio - 1, numbers) * at::eye(num_nodes, on_device(at::kDouble));
  std::vector<at::Tensor> terms = {take(h, numbers)};
  if (layer->options.k > 1) terms.push_back(at::matmul(laplacian, terms[0]));
  for (std::size_t i = 2; i < static_cast<std::size_t>(layer->options.k); ++i) {
    terms.push_back(2 * at::matmul(laplacian, terms[i - 1]) + sign * terms[i - 2]);
  }
  return dense_linear(at::cat(terms, 1), layer->linear->weight, layer->linear->bias, numbers);
}

/// Before apply_func and the activation, of matrices h.
inline at::Tensor define(const nn::GINConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight = {}, Numbers numbers = Numbers::kGiven) {
  using nn::Aggregator;
  const at::Tensor rows = take(h, numbers);
  const at::Tensor weight = edge_weight.defined()
                                ? take(edge_weight, numbers)
                                : at::ones({topology.num_edges()}, on_device(at::kDouble));
  const at::Tensor messages =
      rows.index_select(0, topology.src().to(at::kLong)) * weight.unsqueeze(1);
  at::Tensor received = at::zeros({topology.num_dst(), rows.size(1)}, on_device(at::kDouble));
  for (std::int64_t v = 0; v < topology.num_dst(); ++v) {
    const at::Tensor of_v = messages.index_select(0, (topology.dst() == v).nonzero().squeeze(1));
    if (of_v.size(0) == 0) continue;
    received[v] = layer->options.aggregator == Aggregator::kMax    ? of_v.amax(0)
                  : layer->options.aggregator == Aggregator::kMean ? of_v.mean(0)
                                                                   : of_v.sum(0);
  }
  return take(1 + take(layer->eps, Numbers::kGiven), numbers) *
             rows.slice(0, 0, topology.num_dst()) +
         received;
}

/// Compares a layer's result with its definition, within `roundings` stores of rows to its dtype
/// and `terms` steps of the accumulator.
struct Expected {
  at::Tensor value, abs_sum;
  double terms;
  double roundings;
};

inline testing::AssertionResult near_definition(const at::Tensor& got, const Expected& expected) {
  const at::ScalarType dtype = got.scalar_type();
  // A rounding errs by half an epsilon; twice that covers the products of such errors.
  return near(got, expected.value,
              {.abs_sum = expected.abs_sum,
               .terms = expected.terms,
               .storage = dtype,
               .operand_epsilon = expected.roundings * info(dtype).epsilon});
}

/// The definition of `layer` and the size of its terms; `arguments` follow h.
template <class Layer>
Expected expected_of(const Layer& layer, const Topology& topology, const at::Tensor& h,
                     const at::Tensor& argument, double terms, double roundings) {
  return {.value = define(layer, topology, h, argument),
          .abs_sum = define(layer, topology, h, argument, Numbers::kAbsolute),
          .terms = terms,
          .roundings = roundings};
}

}  // namespace mezzo::test
