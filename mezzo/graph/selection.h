#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

/// Internal: selection of nodes and edges. Errors start with `operation` and name the argument
/// `name`.
namespace mezzo::detail {

/// Returns int64 [n]: `ids` if it is an integer vector in [0, bound), or the ascending positions of
/// true in a bool mask [bound]. Throws InvalidArgument for anything else and for another device.
/// Synchronises on CUDA.
at::Tensor selected_ids(std::string_view operation, std::string_view name, const at::Tensor& ids,
                        std::int64_t bound, at::Device device);

/// Throws InvalidArgument that names the lowest repeated id of `ids` (int64 [n]). Synchronises on
/// CUDA.
void check_distinct(std::string_view operation, std::string_view name, const at::Tensor& ids);

/// Returns the edges into `nodes` (int64 [n], destinations): int64, in the order of `nodes`,
/// ascending per node. A repeated node repeats its edges. Synchronises on CUDA.
at::Tensor edges_into(const Topology& topology, const at::Tensor& nodes);

/// Returns the lowest edge id for each pair (src[i], dst[i]): int64 [n]. Throws InvalidArgument for
/// a pair without an edge. Scans the out-edges of each source on the host; from CUDA it copies all
/// of them.
at::Tensor edges_between(std::string_view operation, const Topology& topology,
                         const at::Tensor& src, const at::Tensor& dst);

/// Returns whether an edge runs from src[i] to dst[i]: bool [n]. Cost as edges_between.
at::Tensor are_joined(std::string_view operation, const Topology& topology, const at::Tensor& src,
                      const at::Tensor& dst);

}  // namespace mezzo::detail
