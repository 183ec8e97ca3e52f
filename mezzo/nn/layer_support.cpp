#include "mezzo/nn/layer_support.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"

namespace mezzo::nn::detail {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "),
                     c10::toString(tensor.scalar_type()));
}

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

void check_in_degrees(std::string_view layer, const Topology& topology, bool allow_zero) {
  if (allow_zero || !topology.has_zero_in_degree()) return;
  const at::Tensor* whole = topology.parent_in_degrees();
  MEZZO_CHECK(whole != nullptr && whole->ne(0).all().item<bool>(),
              "{}: the graph has nodes without in-edges, whose output would be that of no "
              "neighbours; add self loops (add_self_loop), or set allow_zero_in_degree",
              layer);
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

at::ScalarType scale_dtype(const at::Tensor& h) {
  return h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace mezzo::nn::detail
