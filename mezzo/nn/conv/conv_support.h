#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/ops/ops.h"

/// Code shared by convolutions of several kinds: checks, edge weights and products of several
/// terms. Internal to nn; not exported. All checks throw InvalidArgument with the name of the
/// layer.
namespace mezzo::nn::detail {

/// Checks that h is floating [num_src, ...] on the topology's device, strided or sparse CSR.
void check_node_rows(std::string_view layer, const Topology& topology, const at::Tensor& h);

/// Checks that sources and destinations are one set of nodes: num_src == num_dst.
void check_one_node_set(std::string_view layer, const Topology& topology);

/// The reducer of one of GinAggregators.
ReduceOp reduction(Aggregator aggregator);

/// Returns edge_weight, floating [num_edges] or [num_edges, 1] on the topology's device, in
/// `dtype`; nullopt if undefined.
std::optional<at::Tensor> edge_factors(std::string_view layer, const Topology& topology,
                                       const at::Tensor& edge_weight, at::ScalarType dtype);

/// A layer of several terms has its weight [out, count * in] as blocks of columns. Two ways to
/// compute the sum of products:

/// All terms, [N, in] each, times the weight: [N, out]. The first may have another dtype.
at::Tensor linear_of_terms(std::vector<at::Tensor> terms, const at::Tensor& weight,
                           const at::Tensor& bias);
/// h, strided or sparse CSR, times each block, in one product: `count` tensors [N, out].
std::vector<at::Tensor> linear_by_blocks(const at::Tensor& h, const at::Tensor& weight,
                                         std::int64_t count);

}  // namespace mezzo::nn::detail
