#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

// DGL's message passing on the two sides of any topology: what the functions of the same names of
// Graph, blocks and node flows run. `src`, `edge` and `dst` have a row for each source, edge and
// destination of the topology, on its device; for a graph src and dst are one frame. Errors are
// InvalidArgument, which names the operation and the function; what a user-defined function throws
// passes through. Nothing is written before everything is computed. On CUDA what takes edges, nodes
// or ids synchronises, and so does a user-defined reduction.

/// Reads `src`, `edge`, `dst`; writes the reduced (and applied) columns to `dst`.
MEZZO_API void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                          const MessageFunction& message, const ReduceFunction& reduce,
                          const ApplyFunction& apply = {});

/// Along `edges` (integers [n], or bool [num_edges]); writes the rows of their destinations.
MEZZO_API void send_and_recv(const Topology& topology, const Frame& src, const Frame& edge,
                             Frame& dst, const at::Tensor& edges, const MessageFunction& message,
                             const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Along the edges into `nodes` (integers [n], or bool [num_dst]); writes the rows of `nodes`.
MEZZO_API void pull(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                    const at::Tensor& nodes, const MessageFunction& message,
                    const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Along the edges out of `nodes` (integers [n], or bool [num_src]); writes the rows of their
/// destinations.
MEZZO_API void push(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                    const at::Tensor& nodes, const MessageFunction& message,
                    const ReduceFunction& reduce, const ApplyFunction& apply = {});

/// Computes columns of `edge`, or of them the rows `edges` alone (distinct integers [n], or bool
/// [num_edges]).
MEZZO_API void apply_edges(const Topology& topology, const Frame& src, Frame& edge,
                           const Frame& dst, const MessageFunction& function,
                           const std::optional<at::Tensor>& edges = std::nullopt);

/// Computes columns of `nodes` from its own, or of them the rows `ids` alone (distinct integers
/// [n], or bool [num_rows]).
MEZZO_API void apply_nodes(Frame& nodes, const ApplyFunction& function,
                           const std::optional<at::Tensor>& ids = std::nullopt);

}  // namespace mezzo
