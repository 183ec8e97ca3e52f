#include "mezzo/nn/conv/conv_support.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn::detail {
namespace {

void check_device(std::string_view layer, std::string_view name, const Topology& topology,
                  const at::Tensor& tensor) {
  MEZZO_CHECK(tensor.device() == topology.device(),
              "{}: expected {} on the graph's device {}, got {}", layer, name,
              topology.device().str(), tensor.device().str());
}

}  // namespace

void check_node_rows(std::string_view layer, const Topology& topology, const at::Tensor& h) {
  MEZZO_CHECK(h.defined() && at::isFloatingType(h.scalar_type()) && h.dim() >= 1 &&
                  h.size(0) == topology.num_src(),
              "{}: expected floating h [{}, ...], one row per source node, got {}", layer,
              topology.num_src(), describe(h));
  MEZZO_CHECK(h.layout() == at::kStrided || h.layout() == at::kSparseCsr,
              "{}: expected h strided or sparse CSR, got another layout", layer);
  check_device(layer, "h", topology, h);
}

void check_one_node_set(std::string_view layer, const Topology& topology) {
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "{}: expected a topology of one set of nodes, got {} sources and {} destinations",
              layer, topology.num_src(), topology.num_dst());
  check_prefix(layer, topology);
}

ReduceOp reduction(Aggregator aggregator) {
  if (aggregator == Aggregator::kMean) return ReduceOp::kMean;
  return aggregator == Aggregator::kMax ? ReduceOp::kMax : ReduceOp::kSum;
}

std::optional<at::Tensor> edge_factors(std::string_view layer, const Topology& topology,
                                       const at::Tensor& edge_weight, at::ScalarType dtype) {
  if (!edge_weight.defined()) return std::nullopt;
  const bool is_column = edge_weight.dim() == 2 && edge_weight.size(1) == 1;
  MEZZO_CHECK((edge_weight.dim() == 1 || is_column) &&
                  edge_weight.size(0) == topology.num_edges() &&
                  at::isFloatingType(edge_weight.scalar_type()),
              "{}: expected floating edge_weight [{}] or [{}, 1], one number per edge, got {}",
              layer, topology.num_edges(), topology.num_edges(), describe(edge_weight));
  check_device(layer, "edge_weight", topology, edge_weight);
  return (is_column ? edge_weight.squeeze(1) : edge_weight).to(dtype);
}

at::Tensor linear_of_terms(std::vector<at::Tensor> terms, const at::Tensor& weight,
                           const at::Tensor& bias) {
  // Inside a 16-bit region the input rows are still float32, the later terms 16-bit.
  terms.front() = terms.front().to(terms.back().scalar_type());
  return mezzo::linear(at::cat(terms, 1), weight, bias);
}

std::vector<at::Tensor> linear_by_blocks(const at::Tensor& h, const at::Tensor& weight,
                                         std::int64_t count) {
  const std::int64_t out = weight.size(0), in = weight.size(1) / count;
  const at::Tensor stacked = weight.reshape({out, count, in}).transpose(0, 1).flatten(0, 1);
  return mezzo::linear(h, stacked).split(out, 1);
}

}  // namespace mezzo::nn::detail
