#pragma once

#include <cstdint>
#include <memory>

#include "mezzo/core/export.h"

namespace mezzo {

/// What the random numbers of a mini-batch depend on. They depend neither on the number of workers
/// nor on earlier draws.
struct BatchKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t batch = 0;  ///< from 0
};

/// Epochs and batches below these bounds have distinct draws.
inline constexpr std::int64_t kMostEpochs = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostBatches = std::int64_t{1} << 32;

/// The scratch memory of one sampling thread: a table of 4 bytes per node of the graph, which
/// renumbers sampled nodes (on the graph's device), and buffers that grow to the largest batch. If
/// one is reused, sampling on the CPU allocates only its results. Earlier uses do not change what
/// is drawn. One thread at a time.
class MEZZO_API Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  std::int64_t table_bytes() const;   ///< of the tables by node, which grow with the graph
  std::int64_t buffer_bytes() const;  ///< of the buffers, which grow with the batch

  struct State;  ///< internal: mezzo/sampling/workspace_state.h
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace mezzo
