#pragma once

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/topology.h"
#include "mezzo/message_passing/functions.h"

namespace mezzo {

/// DGL's update_all on the two sides of any topology: what Graph::update_all, blocks and node flows
/// run. Reads `src`, `edge`, `dst`; writes the reduced (and applied) columns to `dst`. For a graph
/// src and dst are one frame.
MEZZO_API void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                          const MessageFunction& message, const ReduceFunction& reduce,
                          const ApplyFunction& apply = {});

/// DGL's apply_edges: computes columns of `edge`.
MEZZO_API void apply_edges(const Topology& topology, const Frame& src, Frame& edge,
                           const Frame& dst, const MessageFunction& message);

}  // namespace mezzo
