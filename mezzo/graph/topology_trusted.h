#pragma once

#include <cstdint>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::detail {

/// A structure whose rows by destination are right already, as samplers make them: nothing is
/// checked, copied or read. csc: as Adjacency says, with num_dst rows, indices below num_src in
/// int32 or int64, which becomes id_dtype(), and edge_ids, if any, in the same dtype; one device.
MEZZO_API Topology topology_from_rows(Adjacency csc, std::int64_t num_src, std::int64_t num_dst);

}  // namespace mezzo::detail
