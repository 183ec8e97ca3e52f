#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

// DGL's message passing on any topology, as run by the functions of the same names of Graph, blocks
// and node flows. `src`, `edge` and `dst` have a row for each source, edge and destination of the
// topology, on its device; for a graph, src and dst are one frame. Errors: InvalidArgument, which
// names the operation and the function; exceptions of user-defined functions pass through. Frames
// are written only after all columns are computed. On CUDA, functions that take edges, nodes or ids
// and user-defined reductions synchronize.

/// Reads `src`, `edge`, `dst`; writes the reduced (and applied) columns to `dst`.
MEZZO_API void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                          const MessageFunction& message, const ReduceFunction& reduce,
                          const ApplyFunction& apply = {});

/// Sends along `edges` (integers [n], or bool [num_edges]); writes the rows of their destinations.
MEZZO_API void send_and_recv(const Topology& topology, const Frame& src, const Frame& edge,
                             Frame& dst, const at::Tensor& edges, const MessageFunction& message,
                             const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Sends along the edges into `nodes` (integers [n], or bool [num_dst]); writes the rows of
/// `nodes`.
MEZZO_API void pull(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                    const at::Tensor& nodes, const MessageFunction& message,
                    const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Sends along the edges out of `nodes` (integers [n], or bool [num_src]); writes the rows of their
/// destinations.
MEZZO_API void push(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                    const at::Tensor& nodes, const MessageFunction& message,
                    const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Computes columns of `edge`; with `edges` (distinct integers [n], or bool [num_edges]), only
/// those rows.
MEZZO_API void apply_edges(const Topology& topology, const Frame& src, Frame& edge,
                           const Frame& dst, const MessageFunction& function,
                           const std::optional<at::Tensor>& edges = std::nullopt);

/// Computes columns of `nodes` from its own; with `ids` (distinct integers [n], or bool
/// [num_rows]), only those rows.
MEZZO_API void apply_nodes(Frame& nodes, const ApplyFunction& function,
                           const std::optional<at::Tensor>& ids = std::nullopt);

}  // namespace mezzo
