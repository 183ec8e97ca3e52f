#pragma once

#include <string>

#include "mezzo/graph/functions.h"

// User-defined reductions; internal to message_passing.

namespace mezzo {

/// Throws InvalidArgument that opens with `context` unless every column has `num_rows` rows on
/// `device`. owner: what a row belongs to ("an edge"), in the error.
void check_returned(const std::string& context, const Columns& columns, std::int64_t num_rows,
                    const char* owner, at::Device device);

/// Calls `reduce` once for each distinct non-zero in-degree, the nodes of one in-degree together
/// with their messages, and puts its columns together: [num_dst, ...], 0 for destinations without
/// in-edges. messages: columns of one row an edge; dst: one row a destination. Throws
/// InvalidArgument that opens with `context` where the columns it returns are no rows of the nodes,
/// or differ between in-degrees. Without edges there is no column. The in-degrees are read on the
/// host (synchronises on CUDA).
Columns reduce_by_degree(const std::string& context, const Topology& topology, const FrameRows& dst,
                         const Columns& messages, const ReduceFunction::Custom& reduce);

}  // namespace mezzo
