#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/device.h"

// A very long row would keep one warp busy after all others are done. The row kernels skip these
// long rows (hubs). Two more kernels process them without a host synchronization: one works on
// chunks of equal length of all edges and stores each chunk's contribution to a long row; the other
// adds the partial results of a long row in chunk order.

namespace mezzo::kernels::cuda {

/// Minimum edges per chunk, and maximum number of chunks. The maximum bounds the workspace, one row
/// per partial result; half of it still gives each of 132 multiprocessors about 120 chunks.
inline constexpr std::int64_t kShortestChunk = 1024;
inline constexpr std::int64_t kMostChunks = 1 << 15;

/// Edges per chunk. Depends only on the total number of edges, and so does the order of sums. Rows
/// with more edges are long, so a chunk overlaps at most two of them: one that contains its first
/// edge, and one that begins inside it and reaches its end.
constexpr std::int64_t chunk_length(std::int64_t num_entries) {
  std::int64_t length = kShortestChunk;
  while (num_entries > kMostChunks * length) length *= 2;
  return length;
}

__device__ inline bool is_hub(EntryRange range, std::int64_t length_of_chunk) {
  return range.end - range.begin > length_of_chunk;
}

/// Whether long rows are possible; if not, the row kernel processes all rows and there are no other
/// launches and no partial results.
inline bool may_have_hubs(const Entries& entries, std::int64_t num_entries) {
  const std::int64_t longest = entries.longest_row < 0 ? num_entries : entries.longest_row;
  return entries.indptr != nullptr && longest > chunk_length(num_entries);
}

constexpr std::int64_t num_chunks(std::int64_t num_entries) {
  return ceil_div(num_entries, chunk_length(num_entries));
}

/// Number of partial results in the workspace: two per chunk.
inline std::int64_t num_partials(const Entries& entries, std::int64_t num_entries) {
  return may_have_hubs(entries, num_entries) ? 2 * num_chunks(num_entries) : 0;
}

/// The edges of a long row in one chunk.
struct HubPart {
  std::int64_t row = -1;      ///< -1: no long row, nothing to do
  EntryRange range = {0, 0};  ///< edges of the part
  std::int64_t partial = 0;   ///< index of the partial result
};

/// The part in chunk `chunk` of the long row that contains its first edge (`side` 0) or that begins
/// inside it (`side` 1).
__device__ inline HubPart hub_part(const Entries& entries, std::int64_t num_rows,
                                   std::int64_t num_entries, std::int64_t chunk, int side) {
  const std::int64_t length = chunk_length(num_entries), begin = chunk * length;
  const std::int64_t end = min(begin + length, num_entries);
  const std::int64_t row = row_of_entry(entries.indptr, num_rows, side == 0 ? begin : end - 1);
  const EntryRange range = entries_of(entries, row);
  if (!is_hub(range, length) || (side == 1 && range.begin <= begin)) return {};
  return {row, {max(range.begin, begin), min(range.end, end)}, 2 * chunk + side};
}

/// A long row. Its partial results are at hub_partial(hub, p) for each chunk p of
/// [first_chunk, last_chunk], in ascending order.
struct Hub {
  std::int64_t row = -1;  ///< -1: no long row, nothing to do
  EntryRange range = {0, 0};
  std::int64_t first_chunk = 0, last_chunk = -1;
  std::int64_t chunk_length = 0;
};

/// The long row whose first edge is in chunk `chunk`; at most one, so that a loop over the chunks
/// visits every long row once.
__device__ inline Hub hub_beginning_in(const Entries& entries, std::int64_t num_rows,
                                       std::int64_t num_entries, std::int64_t chunk) {
  const std::int64_t length = chunk_length(num_entries);
  const std::int64_t begin = chunk * length, end = min(begin + length, num_entries);
  const std::int64_t row = row_of_entry(entries.indptr, num_rows, end - 1);
  const EntryRange range = entries_of(entries, row);
  if (!is_hub(range, length) || range.begin < begin) return {};
  return {row, range, chunk, (range.end - 1) / length, length};
}

__device__ inline std::int64_t hub_partial(const Hub& hub, std::int64_t chunk) {
  return 2 * chunk + (hub.range.begin > chunk * hub.chunk_length ? 1 : 0);
}

}  // namespace mezzo::kernels::cuda
