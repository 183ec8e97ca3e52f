#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"
#include "mezzo/kernels/sampling.h"

namespace mezzo::kernels {

/// Samples neighbours on the GPU without weights, with or without replacement: the same result as
/// draw_uniform() for the same key. Takes two runs. The first (`offsets` null) fills begins,
/// degrees and counts; the caller computes the prefix sums of counts. The second fills entries and
/// neighbors, with the last offset as CudaLaunch::num_entries.
struct CudaDrawArgs {
  const std::int64_t* indptr = nullptr;  ///< rows of the graph
  Ids indices;                           ///< [edges], the neighbour of each entry
  Ids nodes;                             ///< [num_nodes], to sample neighbours of; first run only
  std::int64_t num_nodes = 0;            ///< below 2^30
  DrawCount count;
  DrawKey key;
  std::int64_t* begins = nullptr;         ///< [num_nodes], the first entry of each
  std::int64_t* degrees = nullptr;        ///< [num_nodes]
  std::int64_t* counts = nullptr;         ///< [num_nodes], sampled neighbours; first run only
  const std::int64_t* offsets = nullptr;  ///< [num_nodes + 1], sums of counts; null: first run
  void* entries = nullptr;    ///< sampled entries, dtype of `indices`; ascending in a row
  void* neighbors = nullptr;  ///< the neighbour of each of them
};

/// Numbers nodes in order of first occurrence on the GPU, as renumber() does. `first_at` holds the
/// number of each numbered node and INT32_MAX for the others; between batches no node has a number.
/// To number a list of ids run kMark, kFlag, prefix sums of is_first, and kNumber; then kRemember
/// records the numbers for the next list of the batch.
struct CudaRenumberArgs {
  enum class Step : std::uint8_t {
    kMark,      ///< first_at[id] = num_known + first position of each id without a number
    kFlag,      ///< is_first[i] = whether position i is the first of an id without a number
    kNumber,    ///< ids[i] = its number, and nodes[number] = id for new nodes
    kRemember,  ///< first_at[ids[i]] = i
    kForget,    ///< first_at[ids[i]] = INT32_MAX
  };
  Step step = Step::kMark;
  void* ids = nullptr;    ///< [count], in [0, nodes of the graph)
  bool is_int64 = false;  ///< ids and nodes, else int32
  std::int64_t count = 0;
  std::int64_t num_known = 0;             ///< numbered nodes; num_known + count <= 2^31 - 1
  std::int32_t* first_at = nullptr;       ///< [nodes of the graph]
  std::int32_t* is_first = nullptr;       ///< [count], written by kFlag
  const std::int32_t* running = nullptr;  ///< [count], prefix sums of is_first, for kNumber
  void* nodes = nullptr;                  ///< [numbers], written by kNumber
};

/// Copies rows of a table on the GPU: out[i] = table[ids[i]], bit for bit.
struct CudaGatherArgs {
  const void* table = nullptr;  ///< [rows of the table, row_bytes]
  Ids ids;                      ///< [num_rows]; null data: 0, 1, ...
  std::int64_t num_rows = 0;
  std::int64_t row_bytes = 0;
  void* out = nullptr;  ///< [num_rows, row_bytes]
};

}  // namespace mezzo::kernels
