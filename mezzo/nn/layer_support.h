#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/node_rows.h"

/// What the layers share: checks of options and inputs, and float32 parameters beside 16-bit rows.
/// Internal to nn; not exported. All checks throw InvalidArgument that names the layer.
namespace mezzo::nn::detail {

using mezzo::detail::describe;

/// `value` is at least 1.
void check_positive(std::string_view layer, std::string_view name, std::int64_t value);

/// `value` is in [0, 1).
void check_probability(std::string_view layer, std::string_view name, double value);

/// The sizes are positive, the dropouts in [0, 1), the slope is finite: of GATConv and GATv2Conv.
template <class Options>
void check_attention_options(std::string_view layer, const Options& options) {
  check_positive(layer, "in_features", options.in_features);
  check_positive(layer, "out_features", options.out_features);
  check_positive(layer, "num_heads", options.num_heads);
  check_probability(layer, "feature_dropout", options.feature_dropout);
  check_probability(layer, "attention_dropout", options.attention_dropout);
  MEZZO_CHECK(std::isfinite(options.negative_slope), "{}: expected a finite negative_slope, got {}",
              layer, options.negative_slope);
}

/// h is a floating [num_rows, in_features], strided or sparse CSR.
void check_rows(std::string_view layer, const at::Tensor& h, std::int64_t num_rows,
                std::int64_t in_features);

/// As check_rows with one row per source, on the topology's device.
void check_input(std::string_view layer, const Topology& topology, const at::Tensor& h,
                 std::int64_t in_features);

/// The destinations can be a prefix of the sources: num_dst <= num_src, and it is not known that
/// they are others (Topology::has_separate_destinations).
void check_prefix(std::string_view layer, const Topology& topology);

/// `in_features_dst`, or `in_features` where it is 0, which stands for one width; not negative.
std::int64_t width_of_destinations(std::string_view layer, std::int64_t in_features,
                                   std::int64_t in_features_dst);

/// The destinations' rows of a pair are floating of this shape, strided or sparse CSR, of the
/// sources' dtype and on the topology's device.
void check_destinations(std::string_view layer, const Topology& topology, const NodeRows& h,
                        at::IntArrayRef shape);

/// One tensor: as check_input and check_prefix, and both widths are one. A pair: the sources' rows
/// as check_input, and the destinations' [num_dst, in_features_dst] as check_destinations.
void check_node_rows(std::string_view layer, const Topology& topology, const NodeRows& h,
                     std::int64_t in_features, std::int64_t in_features_dst);

/// feature_dropout of one tensor, or of each of two.
NodeRows drop_features(const NodeRows& h, double probability, bool training);

/// Every destination has an in-edge, unless `allow_zero`. Reads the degrees once per topology.
void check_in_degrees(std::string_view layer, const Topology& topology, bool allow_zero);

/// Whether h is sparse CSR, whose rows can be multiplied but neither aggregated nor sliced.
bool is_sparse(const at::Tensor& h);

/// The first `num_rows` rows of a strided tensor: a view, or h itself if it has no others.
at::Tensor first_rows(const at::Tensor& h, std::int64_t num_rows);

/// mezzo::linear of the first `num_rows` rows of h, in either layout.
at::Tensor linear_first_rows(const at::Tensor& h, std::int64_t num_rows, const at::Tensor& weight,
                             const at::Tensor& bias = {});

/// The first `num_rows` rows of h, strided, in `dtype`: a residual that can be added.
at::Tensor residual_rows(const at::Tensor& h, std::int64_t num_rows, at::ScalarType dtype);

/// h + parameter in h's dtype: the small parameter is rounded, the rows are never widened.
/// h itself if `parameter` is undefined.
at::Tensor add_parameter(const at::Tensor& h, const at::Tensor& parameter);

/// The norm as in DGL's options: both, right, left or none.
std::string_view norm_name(DegreeNorm norm);

/// activation(h), or h if there is none.
at::Tensor activate(const Activation& activation, const at::Tensor& h);

/// From rows as sources, one edge each, to the graphs they belong to as destinations. sizes: int64
/// [number of graphs] on the CPU, of rows that lie one graph after another. Synchronises on CUDA.
Topology rows_to_graphs(const at::Tensor& sizes, at::Device device);

/// The dtype in which scaled_sum takes the factors of rows like h: float32, of float64 float64.
at::ScalarType scale_dtype(const at::Tensor& h);

/// The same of rows of h that `weight` may multiply first: the product of sparse rows has the dtype
/// of the weight, whatever theirs is.
at::ScalarType scale_dtype(const at::Tensor& h, const at::Tensor& weight);

}  // namespace mezzo::nn::detail
