#pragma once

#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

/// Code shared by the layers: checks of options and inputs, linear layers, and float32 parameters
/// with 16-bit rows. Internal to nn; not exported. All checks throw InvalidArgument with the name
/// of the layer.
namespace mezzo::nn::detail {

using mezzo::detail::describe;

/// Checks that `value` is at least 1.
void check_positive(std::string_view layer, std::string_view name, std::int64_t value);

/// Checks in_features and out_features in the same way.
template <class Options>
void check_in_and_out(std::string_view layer, const Options& options) {
  check_positive(layer, "in_features", options.in_features);
  check_positive(layer, "out_features", options.out_features);
}

/// Checks that `value` is in [0, 1).
void check_probability(std::string_view layer, std::string_view name, double value);

/// Checks that h is a floating [num_rows, in_features], strided or sparse CSR.
void check_rows(std::string_view layer, const at::Tensor& h, std::int64_t num_rows,
                std::int64_t in_features);

/// Like check_rows with one row for each source; also checks that h is on the topology's device.
void check_input(std::string_view layer, const Topology& topology, const at::Tensor& h,
                 std::int64_t in_features);

/// Checks that the destinations can be a prefix of the sources: num_dst <= num_src, and not
/// Topology::has_separate_destinations().
void check_prefix(std::string_view layer, const Topology& topology);

/// Returns `in_features_dst`, or `in_features` if it is 0. Throws if it is negative.
std::int64_t width_of_destinations(std::string_view layer, std::int64_t in_features,
                                   std::int64_t in_features_dst);

/// The same of a layer's options.
template <class Options>
std::int64_t width_of_destinations(std::string_view layer, const Options& options) {
  return width_of_destinations(layer, options.in_features, options.in_features_dst);
}

/// Checks the destinations' rows of a pair: floating of this shape, strided or sparse CSR, of the
/// sources' dtype and on the topology's device.
void check_destinations(std::string_view layer, const Topology& topology, const NodeRows& h,
                        at::IntArrayRef shape);

/// One tensor: does check_input and check_prefix, and checks that both widths are equal. A pair:
/// does check_input for the sources and check_destinations with [num_dst, in_features_dst].
void check_node_rows(std::string_view layer, const Topology& topology, const NodeRows& h,
                     std::int64_t in_features, std::int64_t in_features_dst);

/// Checks that edge_features are strided, floating of this shape, on the topology's device, and
/// float64 only beside rows h of float64.
void check_edge_features(std::string_view layer, const Topology& topology,
                         const at::Tensor& edge_features, const at::Tensor& h,
                         at::IntArrayRef shape);

/// Applies feature_dropout to the tensor, or to both tensors of a pair.
NodeRows drop_features(const NodeRows& h, double probability, bool training);

/// Checks that every destination has an in-edge, unless `allow_zero`. Reads the degrees once per
/// topology.
void check_in_degrees(std::string_view layer, const Topology& topology, bool allow_zero);

torch::nn::Linear linear_layer(std::int64_t in_features, std::int64_t out_features, bool bias);

/// The gain for initial weights in front of relu, as in DGL: sqrt(2).
inline constexpr double kReluGain = std::numbers::sqrt2;
/// Reinitializes the weights, not the biases: Glorot normal with kReluGain. Skips empty layers.
void reset_weights(std::initializer_list<const torch::nn::Linear*> layers);

/// mezzo::linear with the layer's weight and bias, which is fast in 16 bits, unlike its forward().
at::Tensor apply_linear(const torch::nn::LinearImpl& layer, const at::Tensor& x);

/// Whether h is sparse CSR: it can be multiplied, but neither aggregated nor sliced.
bool is_sparse(const at::Tensor& h);

/// Returns the first `num_rows` rows of h: h itself if it has no more, else a view if h is strided.
at::Tensor first_rows(const at::Tensor& h, std::int64_t num_rows);

/// mezzo::linear of the first `num_rows` rows of h, strided or sparse CSR.
at::Tensor linear_first_rows(const at::Tensor& h, std::int64_t num_rows, const at::Tensor& weight,
                             const at::Tensor& bias = {});

/// The first `num_rows` rows of h for a residual: strided, in `dtype`.
at::Tensor residual_rows(const at::Tensor& h, std::int64_t num_rows, at::ScalarType dtype);

/// h + parameter in h's dtype: rounds the small parameter and never converts h to float32. Returns
/// h if `parameter` is undefined.
at::Tensor add_parameter(const at::Tensor& h, const at::Tensor& parameter);

/// activation(h), or h if the activation is empty.
at::Tensor activate(const Activation& activation, const at::Tensor& h);

/// Checks that h is a floating, strided [N, in_features], one row for each node, on the graph's
/// device. in_features: -1 for any width.
void check_dense_rows(std::string_view layer, const Graph& graph, const at::Tensor& h,
                      std::int64_t in_features);

/// A topology with rows as sources, their graphs as destinations and one edge for each row. sizes:
/// int64 [number of graphs] on the CPU; the rows of a graph are contiguous.
Topology rows_to_graphs(const at::Tensor& sizes, at::Device device);

/// A topology with `num_rows` rows as sources and one destination. An operand of the destination is
/// shared by the rows; its gradient has the same bits for any number of threads, unlike that of
/// libtorch's broadcasts.
Topology rows_to_one(std::int64_t num_rows, at::Device device);

/// The dtype of row factors in scaled_sum for rows like h: float64 for float64, else float32.
at::ScalarType scale_dtype(const at::Tensor& h);

/// The same if h may be multiplied by `weight` first: the product of sparse rows has the dtype of
/// the weight.
at::ScalarType scale_dtype(const at::Tensor& h, const at::Tensor& weight);

}  // namespace mezzo::nn::detail
