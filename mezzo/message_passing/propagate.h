#pragma once

#include <string>

#include "mezzo/graph/functions.h"

// One step of message passing, before anything is written; internal to message_passing.

namespace mezzo {

/// The structure and the rows that a step reads. `operation` opens the texts of the errors.
struct Sides {
  std::string operation;
  const Topology& topology;
  FrameRows src, edge, dst;
};

/// Throws InvalidArgument unless the three have the rows of the topology, on its device.
void check_sides(const Sides& sides);

/// The messages of every edge.
Columns messages_of(const Sides& sides, const MessageFunction& message);

/// The columns that `apply` makes of the nodes `rows`, whose columns `fresh` were just computed.
Columns applied(const std::string& operation, const FrameRows& rows, const ApplyFunction& apply,
                const Columns& fresh);

/// What update_all gives every destination: the reduced columns and, over them, the applied ones.
/// Synchronises on CUDA for a user-defined `reduce`.
Columns propagate(const Sides& sides, const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply);

}  // namespace mezzo
