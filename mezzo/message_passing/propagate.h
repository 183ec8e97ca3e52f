#pragma once

#include <string>

#include "mezzo/graph/functions.h"

// One step of message passing, up to but not including the writes to frames.

namespace mezzo {

/// The graph and the rows that a step reads. Errors start with `operation`.
struct MessagePassingArgs {
  std::string operation;
  const Topology& topology;
  FrameRows src, edge, dst;
};

/// Throws InvalidArgument unless the frames have the topology's numbers of rows and device.
void check_frames(const MessagePassingArgs& args);

/// The messages of every edge.
Columns messages_of(const MessagePassingArgs& args, const MessageFunction& message);

/// The columns that `apply` returns for the nodes `rows`. It reads `fresh`, the columns that were
/// just computed, before the frame's columns.
Columns apply_to(const std::string& operation, const FrameRows& rows, const ApplyFunction& apply,
                 const Columns& fresh);

/// The columns that update_all writes to the destinations: the reduced columns, overridden by the
/// columns that `apply` returns. Synchronizes on CUDA for a user-defined `reduce`.
Columns propagate(const MessagePassingArgs& args, const MessageFunction& message,
                  const ReduceFunction& reduce, const ApplyFunction& apply);

}  // namespace mezzo
