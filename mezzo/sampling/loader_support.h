#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/frame.h"
#include "mezzo/graph/topology.h"

/// What the loaders share. Internal to sampling; not exported.
namespace mezzo::detail {

/// The columns `names` of the nodes, whose rows can be gathered. operation opens the text of the
/// errors, option is what names the columns. Throws InvalidArgument for a column that is not there
/// and for a layout other than dense and, of a matrix, sparse CSR.
Columns chosen_columns(std::string_view operation, std::string_view option, const Frame& nodes,
                       const std::vector<std::string>& names);

/// The rows `ids` of each column; see gather_rows. device: where they go next, so for a CUDA device
/// those of columns on the CPU are in pinned memory.
Columns gathered_columns(const Columns& columns, const at::Tensor& ids, at::Device device);

/// Builds, where the topology lives, the rows by destination, which layers read, and, for
/// `backward`, those by source, which gradients read.
void prepare_rows(const Topology& topology, bool backward);

}  // namespace mezzo::detail
