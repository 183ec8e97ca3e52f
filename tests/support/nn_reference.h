#pragma once

#include <algorithm>
#include <set>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/graph_conv.h"

#include "support/tensors.h"
#include "support/tolerance.h"

/// References for layers in float64, with dense adjacency matrices and loops over the destinations,
/// on the operands' device. They do not call the library's operations.
namespace mezzo::test {

/// Whether a definition is evaluated on the operands or on their absolute values. kAbsolute gives
/// the sum of absolute terms: rounding errors are relative to it.
enum class Numbers { kGiven, kAbsolute };

inline at::Tensor take(const at::Tensor& tensor, Numbers numbers) {
  const at::Tensor wide = tensor.detach().to(at::kDouble);
  return numbers == Numbers::kAbsolute ? wide.abs() : wide;
}

/// out = x W^T + bias.
inline at::Tensor dense_linear(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Numbers numbers) {
  const at::Tensor out = at::matmul(x, take(weight, numbers).t());
  return bias.defined() ? out + take(bias, numbers) : out;
}

/// [num_dst, num_src]: the number, or the total weight, of the edges from column to row.
inline at::Tensor adjacency(const Topology& topology, const at::Tensor& edge_weight = {}) {
  const at::Tensor weight =
      edge_weight.defined() ? edge_weight.cpu() : at::ones({topology.num_edges()}, at::kDouble);
  at::Tensor dense = at::zeros({topology.num_dst(), topology.num_src()}, at::kDouble);
  const at::Tensor src = topology.src().cpu().to(at::kLong);
  const at::Tensor dst = topology.dst().cpu().to(at::kLong);
  for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
    dense[dst[e].item<std::int64_t>()][src[e].item<std::int64_t>()] += weight[e];
  }
  return on_device(dense);
}

/// The sources of the edges into node v, int64 [in-degree of v].
inline at::Tensor sources_of(const Topology& topology, std::int64_t v) {
  const at::Tensor edges = (topology.dst() == v).nonzero().squeeze(1);
  return topology.src().to(at::kLong).index_select(0, edges);
}

inline at::Tensor define(const nn::GraphConv& layer, const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight = {}, Numbers numbers = Numbers::kGiven) {
  using nn::DegreeNorm;
  const DegreeNorm norm = layer->options.norm;
  const at::Tensor counts = adjacency(topology);
  const double power = norm == DegreeNorm::kBoth ? -0.5 : -1.0;
  at::Tensor matrix =
      edge_weight.defined() ? adjacency(topology, take(edge_weight, numbers)) : counts;
  if (norm == DegreeNorm::kBoth || norm == DegreeNorm::kLeft) {
    matrix = matrix * counts.sum(0).clamp_min(1).pow(power);
  }
  if (norm == DegreeNorm::kBoth || norm == DegreeNorm::kRight) {
    matrix = matrix * counts.sum(1).clamp_min(1).pow(power).unsqueeze(1);
  }
  return dense_linear(at::matmul(matrix, take(h, numbers)), layer->weight.t(), layer->bias,
                      numbers);
}

namespace internal {

inline at::Tensor pooled(const nn::SAGEConv& layer, const Topology& topology, const at::Tensor& h,
                         Numbers numbers) {
  const at::Tensor messages =
      dense_linear(h, layer->fc_pool->weight, layer->fc_pool->bias, numbers).clamp_min(0);
  at::Tensor out = at::zeros({topology.num_dst(), h.size(1)}, on_device(at::kDouble));
  for (std::int64_t v = 0; v < topology.num_dst(); ++v) {
    const at::Tensor sources = sources_of(topology, v);
    if (sources.numel() > 0) out[v] = messages.index_select(0, sources).amax(0);
  }
  return out;
}

}  // namespace internal

inline at::Tensor define(const nn::SAGEConv& layer, const Topology& topology, const at::Tensor& x,
                         Numbers numbers = Numbers::kGiven) {
  const at::Tensor h = take(x, numbers), own = h.slice(0, 0, topology.num_dst());
  const at::Tensor matrix = adjacency(topology), degrees = matrix.sum(1).unsqueeze(1);
  const at::Tensor& neigh = layer->fc_neigh->weight;
  if (layer->options.aggregator == nn::Aggregator::kGcn) {
    const at::Tensor mean = (at::matmul(matrix, h) + own) / (degrees + 1);
    return dense_linear(mean, neigh, layer->bias, numbers);
  }
  const at::Tensor received = layer->options.aggregator == nn::Aggregator::kPool
                                  ? internal::pooled(layer, topology, h, numbers)
                                  : at::matmul(matrix, h) / degrees.clamp_min(1);
  return dense_linear(received, neigh, {}, numbers) +
         dense_linear(own, layer->fc_self->weight, layer->fc_self->bias, numbers);
}

/// The scores attn . z of each node and head: [N, heads].
inline at::Tensor attention_scores(const nn::GATConv& layer, const at::Tensor& h,
                                   const at::Tensor& attn, Numbers numbers = Numbers::kGiven) {
  const auto& options = layer->options;
  const at::Tensor z = dense_linear(take(h, numbers), layer->fc->weight, {}, numbers);
  const at::Tensor heads = z.view({h.size(0), options.num_heads, options.out_features});
  return (heads * take(attn, numbers)).sum(-1);
}

/// Attention uses the original operands in both cases; its factors are positive.
inline at::Tensor define(const nn::GATConv& layer, const Topology& topology, const at::Tensor& h,
                         Numbers numbers = Numbers::kGiven) {
  const auto& options = layer->options;
  const std::int64_t num_dst = topology.num_dst();
  const at::Tensor sent = attention_scores(layer, h, layer->attn_l);
  const at::Tensor received = attention_scores(layer, h, layer->attn_r);
  const at::Tensor x = take(h, numbers);
  const at::Tensor z = dense_linear(x, layer->fc->weight, {}, numbers)
                           .view({h.size(0), options.num_heads, options.out_features});
  at::Tensor out =
      at::zeros({num_dst, options.num_heads, options.out_features}, on_device(at::kDouble));
  for (std::int64_t v = 0; v < num_dst; ++v) {
    const at::Tensor sources = sources_of(topology, v);
    const at::Tensor sum = sent.index_select(0, sources) + received[v];
    const at::Tensor logits = at::where(sum > 0, sum, sum * options.negative_slope);
    const at::Tensor share = logits.exp() / logits.exp().sum(0);
    out[v] = (share.unsqueeze(-1) * z.index_select(0, sources)).sum(0);
  }
  if (options.residual) {
    const at::Tensor own = x.slice(0, 0, num_dst);
    const at::Tensor kept = layer->res_fc.is_empty() ? own
                                                     : dense_linear(own, layer->res_fc->weight,
                                                                    layer->res_fc->bias, numbers);
    out = out + kept.reshape(out.sizes());
  }
  if (!layer->bias.defined()) return out;
  return out + take(layer->bias, numbers).view({options.num_heads, options.out_features});
}

/// Two ways, in float64, to one sum of `terms` products of numbers in [-1, 1]: its size is at most
/// `terms`, and so is the number of roundings.
inline testing::AssertionResult near_terms(const at::Tensor& got, const at::Tensor& expected,
                                           double terms) {
  if (got.scalar_type() != at::kDouble) {
    return testing::AssertionFailure() << "expected float64, got " << got.toString();
  }
  return near(got, expected, sum_bound(at::full_like(expected, terms), terms, at::kDouble));
}

/// Moves the module to the test device and fills every parameter, including biases, with numbers in
/// [-1, 1] that `dtype` represents, stored in `stored`.
inline void randomise(torch::nn::Module& module, at::ScalarType stored, std::uint64_t seed = 1,
                      at::ScalarType dtype = at::kDouble) {
  module.to(test_device());  // buffers too
  for (auto& parameter : module.named_parameters()) {
    parameter.value().set_data(
        uniform(parameter.value().sizes(), at::kDouble, ++seed).to(dtype).to(stored));
  }
}

/// The module, moved to the test device.
template <class Module>
Module placed(Module module) {
  module->to(test_device());
  return module;
}

/// "name [shape]" of every parameter.
inline std::set<std::string> parameter_shapes(const torch::nn::Module& module) {
  std::set<std::string> shapes;
  for (const auto& parameter : module.named_parameters()) {
    shapes.insert(
        fmt::format("{} [{}]", parameter.key(), fmt::join(parameter.value().sizes(), ", ")));
  }
  return shapes;
}

/// Random edges and one from each destination's own source row, so that each has an in-edge.
inline Topology connected(std::int64_t num_src, std::int64_t num_dst, std::int64_t num_edges,
                          std::uint64_t seed) {
  const Topology drawn = random_topology(num_src, num_dst, num_edges, seed);
  const at::Tensor own = at::arange(num_dst, on_device());
  return Topology::from_coo(at::cat({drawn.src().to(at::kLong), own}),
                            at::cat({drawn.dst().to(at::kLong), own}), num_src, num_dst);
}

/// A matrix with about two thirds zeros.
inline at::Tensor sparse_numbers(at::IntArrayRef sizes, std::uint64_t seed) {
  return uniform(sizes, at::kDouble, seed) * (integers(sizes, at::kDouble, seed, 0, 2) == 0);
}

/// Expects the output and the parameter gradients of layer(g, h, rest...) for sparse rows h as for
/// dense ones, within near_terms() of `terms`.
template <class Layer, class... Rest>
void expect_sparse_like_dense(Layer layer, const Topology& g, std::int64_t in, double terms,
                              const Rest&... rest) {
  const at::Tensor h = sparse_numbers({g.num_src(), in}, 11);
  const auto run = [&](const at::Tensor& rows) {
    std::vector<at::Tensor> results = {layer(g, rows, rest...)};
    const at::Tensor upstream = uniform(results[0].sizes(), at::kDouble, 12);
    const auto gradients = torch::autograd::grad({results[0]}, layer->parameters(), {upstream});
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  };
  const auto dense = run(h), sparse = run(h.to_sparse_csr());
  for (std::size_t i = 0; i < dense.size(); ++i) {
    EXPECT_TRUE(near_terms(sparse[i], dense[i], terms)) << "result " << i;
  }
}

/// Calls check(graph, dtype) for graphs of 0 and 5 nodes without edges, in every dtype.
template <class Check>
void for_each_bare_graph(Check check) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t num_nodes : {0, 5}) {
      SCOPED_TRACE(testing::Message() << dtype.name << ", " << num_nodes << " nodes");
      check(topology_of({}, {}, num_nodes, num_nodes), dtype.scalar);
    }
  }
}

/// Expects that in a region of each 16-bit type the layer, a float32 module, gives that type for
/// dense and sparse rows of width `in`, and finite float32 gradients of all its parameters.
template <class Layer>
void expect_sixteen_bit_region(Layer layer, const Topology& g, std::int64_t in) {
  const at::Tensor h = uniform({g.num_src(), in}, at::kFloat, 5);
  for (const auto& [precision, dtype] : {std::pair(amp::Precision::kBFloat16, at::kBFloat16),
                                         std::pair(amp::Precision::kFloat16, at::kHalf)}) {
    for (const at::Tensor& rows : {h, h.to(dtype), h.to_sparse_csr()}) {
      layer->zero_grad();
      at::Tensor out;
      {
        const amp::PrecisionScope scope(precision, test_device());
        out = layer(g, rows);
      }
      EXPECT_EQ(out.scalar_type(), dtype);
      out.sum().backward();
      for (const auto& parameter : layer->named_parameters()) {
        ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
        EXPECT_EQ(parameter.value().grad().scalar_type(), at::kFloat) << parameter.key();
        EXPECT_TRUE(parameter.value().grad().isfinite().all().template item<bool>())
            << parameter.key();
      }
    }
  }
}

}  // namespace mezzo::test
