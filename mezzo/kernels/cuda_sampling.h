#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"
#include "mezzo/kernels/sampling.h"

namespace mezzo::kernels {

/// Draws neighbours of a list of nodes on the GPU, the same as draw_uniform for the same
/// key: without weights, with or without replacement. Two runs, with a running sum of `counts`
/// between them: the first (without `offsets`) fills begins, degrees and counts, the second slots
/// and neighbors; CudaLaunch::num_slots is the last offset then.
struct CudaDrawArgs {
  const std::int64_t* indptr = nullptr;  ///< rows of the graph
  Ids indices;                           ///< [edges], the neighbour of each slot
  Ids nodes;                   ///< [num_nodes], whose neighbours are drawn; first run only
  std::int64_t num_nodes = 0;  ///< below 2^30
  DrawCount count;
  DrawKey key;
  std::int64_t* begins = nullptr;         ///< [num_nodes], the first slot of each
  std::int64_t* degrees = nullptr;        ///< [num_nodes]
  std::int64_t* counts = nullptr;         ///< [num_nodes], how many are drawn; first run only
  const std::int64_t* offsets = nullptr;  ///< [num_nodes + 1], sums of counts; null: first run
  void* slots = nullptr;                  ///< ids of the width of `indices`; ascending in each row
  void* neighbors = nullptr;              ///< likewise, the neighbour of each slot
};

/// Numbers nodes in the order in which they first come, on the GPU, as renumber does. The
/// table `first_at` holds the number of each node that has one and INT32_MAX for the others;
/// between batches no node has one. A list of ids is numbered by kMark, kFlag, a running sum of
/// is_first, and kNumber; kRemember then puts the numbers into the table for the next list of the
/// batch.
struct CudaRenumberArgs {
  enum class Step : std::uint8_t {
    kMark,      ///< first_at[id] = num_known + the smallest position of each id without a number
    kFlag,      ///< is_first[i] = whether position i is the first of an id without a number
    kNumber,    ///< ids[i] = its number, and nodes[number] = id for the new ones
    kRemember,  ///< first_at[ids[i]] = i
    kForget,    ///< first_at[ids[i]] = INT32_MAX
  };
  Step step = Step::kMark;
  void* ids = nullptr;  ///< [count], in [0, nodes of the graph)
  bool wide = false;    ///< whether ids and nodes are int64 rather than int32
  std::int64_t count = 0;
  std::int64_t num_known = 0;             ///< nodes with a number; with `count` at most 2^31 - 1
  std::int32_t* first_at = nullptr;       ///< [nodes of the graph]
  std::int32_t* is_first = nullptr;       ///< [count], of kFlag
  const std::int32_t* running = nullptr;  ///< [count], sums of is_first up to each, for kNumber
  void* nodes = nullptr;                  ///< [numbers], of kNumber
};

}  // namespace mezzo::kernels
