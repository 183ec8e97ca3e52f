#pragma once

#include <string>

#include "mezzo/graph/functions.h"

// User-defined reductions.

namespace mezzo {

/// Throws InvalidArgument, which starts with `context`, unless every column has `num_rows` rows on
/// `device`. owner: the owner of a row in the error, such as "an edge".
void check_returned(const std::string& context, const Columns& columns, std::int64_t num_rows,
                    const char* owner, at::Device device);

/// Calls `reduce` once for each distinct non-zero in-degree, on its nodes and their messages.
/// Returns its columns for all destinations: [num_dst, ...], 0 for those without in-edges; without
/// edges, no column. messages: one row an edge; dst: one row a destination. Throws InvalidArgument,
/// which starts with `context`, if `reduce` returns columns without one row a node or columns that
/// differ between in-degrees. The host reads the in-degrees (synchronizes on CUDA).
Columns reduce_by_degree(const std::string& context, const Topology& topology, const FrameRows& dst,
                         const Columns& messages, const ReduceFunction::Custom& reduce);

}  // namespace mezzo
