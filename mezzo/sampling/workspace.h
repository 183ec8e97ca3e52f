#pragma once

#include <cstdint>
#include <memory>

#include "mezzo/core/export.h"

namespace mezzo {

/// The scratch memory with which one thread samples: a table of 4 bytes for each node of the graph,
/// by which sampled nodes are renumbered (on the graph's device), and buffers that grow to the
/// largest batch met. Used by one thread at a time; kept from batch to batch, so that sampling on
/// the CPU allocates nothing but its results. What is drawn does not depend on what it was used for
/// before.
class MEZZO_API Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  /// Bytes of the tables by node (the part that grows with the graph).
  std::int64_t table_bytes() const;
  /// Bytes of the buffers (the part that grows with the batch).
  std::int64_t buffer_bytes() const;

  struct State;  ///< sampling's own: mezzo/sampling/workspace_state.h
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace mezzo
