#include "mezzo/nn/layer_support.h"

#include <string>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn::detail {

void check_positive(std::string_view layer, std::string_view name, std::int64_t value) {
  MEZZO_CHECK(value >= 1, "{}: expected {} of at least 1, got {}", layer, name, value);
}

void check_probability(std::string_view layer, std::string_view name, double value) {
  MEZZO_CHECK(value >= 0 && value < 1, "{}: expected {} in [0, 1), got {}", layer, name, value);
}

void check_rows(std::string_view layer, const at::Tensor& h, std::int64_t num_rows,
                std::int64_t in_features) {
  MEZZO_CHECK(h.defined() && at::isFloatingType(h.scalar_type()) && h.dim() == 2 &&
                  h.size(0) == num_rows && h.size(1) == in_features,
              "{}: expected floating h [{}, {}], one row per source node, got {}", layer, num_rows,
              in_features, describe(h));
  MEZZO_CHECK(h.layout() == at::kStrided || h.layout() == at::kSparseCsr,
              "{}: expected h strided or sparse CSR, got another layout", layer);
}

void check_input(std::string_view layer, const Topology& topology, const at::Tensor& h,
                 std::int64_t in_features) {
  check_rows(layer, h, topology.num_src(), in_features);
  MEZZO_CHECK(h.device() == topology.device(), "{}: expected h on the graph's device {}, got {}",
              layer, topology.device().str(), h.device().str());
}

void check_prefix(std::string_view layer, const Topology& topology) {
  MEZZO_CHECK(topology.num_dst() <= topology.num_src(),
              "{}: expected a topology whose destinations are a prefix of its sources, got {} "
              "destinations and {} sources",
              layer, topology.num_dst(), topology.num_src());
  MEZZO_CHECK(!topology.has_separate_destinations(),
              "{}: expected a topology whose destinations are a prefix of its sources, got a block "
              "without them among the sources (to_block with include_dst_in_src = false)",
              layer);
}

std::int64_t width_of_destinations(std::string_view layer, std::int64_t in_features,
                                   std::int64_t in_features_dst) {
  MEZZO_CHECK(in_features_dst >= 0, "{}: expected in_features_dst of at least 0, got {}", layer,
              in_features_dst);
  return in_features_dst == 0 ? in_features : in_features_dst;
}

void check_destinations(std::string_view layer, const Topology& topology, const NodeRows& h,
                        at::IntArrayRef shape) {
  const at::Tensor& dst = h.dst();
  MEZZO_CHECK(dst.defined() && at::isFloatingType(dst.scalar_type()) && dst.sizes() == shape &&
                  (dst.layout() == at::kStrided || is_sparse(dst)),
              "{}: expected floating h of the destinations [{}], one row per destination node, "
              "strided or sparse CSR, got {}",
              layer, fmt::join(shape, ", "), describe(dst));
  MEZZO_CHECK(dst.device() == topology.device(),
              "{}: expected h of the destinations on the graph's device {}, got {}", layer,
              topology.device().str(), dst.device().str());
  MEZZO_CHECK(dst.scalar_type() == h.src().scalar_type(),
              "{}: expected rows of sources and destinations of one dtype, got {} and {}", layer,
              c10::toString(h.src().scalar_type()), c10::toString(dst.scalar_type()));
}

void check_node_rows(std::string_view layer, const Topology& topology, const NodeRows& h,
                     std::int64_t in_features, std::int64_t in_features_dst) {
  check_input(layer, topology, h.src(), in_features);
  if (!h.is_pair()) {
    check_prefix(layer, topology);
    MEZZO_CHECK(in_features == in_features_dst,
                "{}: expected a pair of rows, [{}, {}] of the sources and [{}, {}] of the "
                "destinations, got one tensor {}",
                layer, topology.num_src(), in_features, topology.num_dst(), in_features_dst,
                describe(h.src()));
    return;
  }
  check_destinations(layer, topology, h, {topology.num_dst(), in_features_dst});
}

void check_edge_features(std::string_view layer, const Topology& topology,
                         const at::Tensor& edge_features, const at::Tensor& h,
                         at::IntArrayRef shape) {
  MEZZO_CHECK(edge_features.defined() && at::isFloatingType(edge_features.scalar_type()) &&
                  edge_features.sizes() == shape && edge_features.layout() == at::kStrided,
              "{}: expected floating, strided edge_features [{}], one row per edge, got {}", layer,
              fmt::join(shape, ", "), describe(edge_features));
  MEZZO_CHECK(edge_features.device() == topology.device(),
              "{}: expected edge_features on the graph's device {}, got {}", layer,
              topology.device().str(), edge_features.device().str());
  const bool is_double = edge_features.scalar_type() == at::kDouble;
  MEZZO_CHECK(is_double == (h.scalar_type() == at::kDouble),
              "{}: expected edge_features of the dtype of h, {}, got {}", layer,
              c10::toString(h.scalar_type()), c10::toString(edge_features.scalar_type()));
}

NodeRows drop_features(const NodeRows& h, double probability, bool training) {
  const at::Tensor src = mezzo::feature_dropout(h.src(), probability, training);
  if (!h.is_pair()) return src;
  return {src, mezzo::feature_dropout(h.dst(), probability, training)};
}

void check_in_degrees(std::string_view layer, const Topology& topology, bool allow_zero) {
  MEZZO_CHECK(
      allow_zero || !topology.has_zero_in_degree(),
      "{}: expected an in-edge of every destination, got nodes without in-edges; add self loops "
      "(add_self_loop) or set allow_zero_in_degree",
      layer);
}

torch::nn::Linear linear_layer(std::int64_t in_features, std::int64_t out_features, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in_features, out_features).bias(bias));
}

void reset_weights(std::initializer_list<const torch::nn::Linear*> layers) {
  for (const torch::nn::Linear* layer : layers) {
    if (!layer->is_empty()) torch::nn::init::xavier_normal_((*layer)->weight, kReluGain);
  }
}

at::Tensor apply_linear(const torch::nn::LinearImpl& layer, const at::Tensor& x) {
  return mezzo::linear(x, layer.weight, layer.bias);
}

bool is_sparse(const at::Tensor& h) {
  return h.layout() == at::kSparseCsr;
}

at::Tensor first_rows(const at::Tensor& h, std::int64_t num_rows) {
  // The backward of a slice allocates and fills all rows.
  if (h.size(0) == num_rows) return h;
  if (!is_sparse(h)) return h.narrow(0, 0, num_rows);
  const at::Tensor indptr = h.crow_indices().narrow(0, 0, num_rows + 1);
  const auto count = indptr[num_rows].item<std::int64_t>();
  return at::_sparse_csr_tensor_unsafe(indptr, h.col_indices().narrow(0, 0, count),
                                       h.values().narrow(0, 0, count), {num_rows, h.size(1)},
                                       h.options());
}

at::Tensor linear_first_rows(const at::Tensor& h, std::int64_t num_rows, const at::Tensor& weight,
                             const at::Tensor& bias) {
  return mezzo::linear(first_rows(h, num_rows), weight, bias);
}

at::Tensor residual_rows(const at::Tensor& h, std::int64_t num_rows, at::ScalarType dtype) {
  const at::Tensor rows = first_rows(h, num_rows);
  return (is_sparse(rows) ? rows.to_dense() : rows).to(dtype);
}

at::Tensor add_parameter(const at::Tensor& h, const at::Tensor& parameter) {
  return parameter.defined() ? h + parameter.to(h.scalar_type()) : h;
}

at::Tensor activate(const Activation& activation, const at::Tensor& h) {
  return activation ? activation(h) : h;
}

void check_dense_rows(std::string_view layer, const Graph& graph, const at::Tensor& h,
                      std::int64_t in_features) {
  MEZZO_CHECK(h.defined() && h.layout() == at::kStrided && at::isFloatingType(h.scalar_type()) &&
                  h.dim() == 2 && h.size(0) == graph.num_nodes() &&
                  (in_features < 0 || h.size(1) == in_features),
              "{}: expected floating, strided h [{}, {}], one row per node, got {}{}", layer,
              graph.num_nodes(), in_features < 0 ? "in" : std::to_string(in_features), describe(h),
              mezzo::detail::dense_hint(h));
  MEZZO_CHECK(h.device() == graph.device(), "{}: expected h on the graph's device {}, got {}",
              layer, graph.device().str(), h.device().str());
}

Topology rows_to_graphs(const at::Tensor& sizes, at::Device device) {
  const at::Tensor ends = at::constant_pad_nd(sizes.cumsum(0), {1, 0});
  const auto num_rows = ends[-1].item<std::int64_t>();
  const at::ScalarType dtype = mezzo::detail::choose_id_dtype("rows_to_graphs", IdWidth::kAutomatic,
                                                              num_rows, sizes.numel(), num_rows);
  return mezzo::detail::topology_from_rows(
      {ends.to(device), at::arange(num_rows, at::dtype(dtype).device(device)), at::Tensor()},
      num_rows, sizes.numel());
}

Topology rows_to_one(std::int64_t num_rows, at::Device device) {
  return rows_to_graphs(at::full({1}, num_rows, at::kLong), device);
}

at::ScalarType scale_dtype(const at::Tensor& h) {
  return h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType scale_dtype(const at::Tensor& h, const at::Tensor& weight) {
  return scale_dtype(is_sparse(h) ? weight : h);
}

}  // namespace mezzo::nn::detail
