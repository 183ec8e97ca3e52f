#pragma once

#include <cstdint>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::detail {

/// Builds a structure from valid rows by destination, as samplers produce them, without checks,
/// copies or reads. csc: a valid Adjacency on one device with num_dst rows; indices below num_src,
/// int32 or int64, which becomes id_dtype(); edge_ids, if defined, of the same dtype.
MEZZO_API Topology topology_from_rows(Adjacency csc, std::int64_t num_src, std::int64_t num_dst);

}  // namespace mezzo::detail
