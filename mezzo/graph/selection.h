#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

/// The library's own: the nodes and edges that a caller names. `operation` opens the text of the
/// error, `name` is that of the argument.
namespace mezzo::detail {

/// int64 [n]: `ids` themselves, an integer vector in [0, bound), or where a mask (bool [bound]) is
/// true, ascending. Throws InvalidArgument for others, and for those on another device.
/// Synchronises on CUDA.
at::Tensor selected_ids(std::string_view operation, std::string_view name, const at::Tensor& ids,
                        std::int64_t bound, at::Device device);

/// Throws InvalidArgument that names the lowest of `ids` (int64 [n]) that is there more than once.
/// Synchronises on CUDA.
void check_distinct(std::string_view operation, std::string_view name, const at::Tensor& ids);

/// The edges into `nodes` (int64 [n], destinations): int64, node by node in the given order,
/// ascending within one. A node named twice gives its edges twice. Synchronises on CUDA.
at::Tensor edges_into(const Topology& topology, const at::Tensor& nodes);

/// For each pair (src[i], dst[i]) the lowest edge from one to the other: int64 [n]. Throws
/// InvalidArgument for a pair without. Reads the out-edges of each source one by one, on the host:
/// from CUDA it copies all of them there.
at::Tensor edges_between(std::string_view operation, const Topology& topology,
                         const at::Tensor& src, const at::Tensor& dst);

/// For each pair (src[i], dst[i]) whether an edge runs from one to the other: bool [n]. Reads as
/// edges_between.
at::Tensor are_joined(std::string_view operation, const Topology& topology, const at::Tensor& src,
                      const at::Tensor& dst);

}  // namespace mezzo::detail
