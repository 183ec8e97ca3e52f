#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/device.h"

// Rows of very many slots would each keep one warp busy long after all others are done. The row
// kernels leave these hubs out. Two more kernels take them, with no look at the graph from the
// host: one over pieces of equal length of all slots, which stores what each piece adds to a hub,
// and one that adds a hub's partial results in the order of the pieces.

namespace mezzo::kernels::cuda {

/// The fewest slots of a piece, and the most pieces: what they store is memory of so many rows, and
/// half of them still give each of 132 multiprocessors some 120.
inline constexpr std::int64_t kShortestPiece = 1024;
inline constexpr std::int64_t kMostPieces = 1 << 15;

/// The slots of one piece, by the number of all slots alone: the order of a sum follows from it.
/// Rows of more are hubs, so that a piece meets two hubs at most: one that holds its first slot,
/// and one that begins inside it and reaches its end.
constexpr std::int64_t piece_length(std::int64_t num_slots) {
  std::int64_t length = kShortestPiece;
  while (num_slots > kMostPieces * length) length *= 2;
  return length;
}

__device__ inline bool is_hub(SlotRange range, std::int64_t length_of_piece) {
  return range.end - range.begin > length_of_piece;
}

/// Whether there can be hubs; if not, the row kernel does everything.
inline bool may_have_hubs(const Slots& slots, std::int64_t num_slots) {
  return slots.indptr != nullptr && num_slots > kShortestPiece;
}

constexpr std::int64_t num_pieces(std::int64_t num_slots) {
  return ceil_div(num_slots, piece_length(num_slots));
}

/// How many partial results the workspace has room for: two a piece.
inline std::int64_t num_partials(const Slots& slots, std::int64_t num_slots) {
  return may_have_hubs(slots, num_slots) ? 2 * num_pieces(num_slots) : 0;
}

/// The slots of a hub that lie in one piece.
struct HubPart {
  std::int64_t row = -1;     ///< -1: no hub, nothing to do
  SlotRange range = {0, 0};  ///< of the part
  std::int64_t partial = 0;  ///< which of the partial results is theirs
};

/// What piece `piece` has of the hub that holds its first slot (`side` 0), or of the hub that
/// begins inside it (`side` 1).
__device__ inline HubPart hub_part(const Slots& slots, std::int64_t num_rows,
                                   std::int64_t num_slots, std::int64_t piece, int side) {
  const std::int64_t length = piece_length(num_slots), begin = piece * length;
  const std::int64_t end = min(begin + length, num_slots);
  const std::int64_t row = row_of_slot(slots.indptr, num_rows, side == 0 ? begin : end - 1);
  const SlotRange range = slots_of(slots, row);
  if (!is_hub(range, length) || (side == 1 && range.begin <= begin)) return {};
  return {row, {max(range.begin, begin), min(range.end, end)}, 2 * piece + side};
}

/// A hub and where its partial results are: in piece p of [first_piece, last_piece], in ascending
/// order, at hub_partial(hub, p).
struct Hub {
  std::int64_t row = -1;  ///< -1: no hub, nothing to do
  SlotRange range = {0, 0};
  std::int64_t first_piece = 0, last_piece = -1;
  std::int64_t piece_length = 0;
};

/// The hub whose first slot lies in piece `piece` of `length` slots; there is one at most, so that
/// a loop over the pieces meets every hub once.
__device__ inline Hub hub_beginning_in(const Slots& slots, std::int64_t num_rows,
                                       std::int64_t num_slots, std::int64_t piece,
                                       std::int64_t length) {
  const std::int64_t begin = piece * length, end = min(begin + length, num_slots);
  const std::int64_t row = row_of_slot(slots.indptr, num_rows, end - 1);
  const SlotRange range = slots_of(slots, row);
  if (!is_hub(range, length) || range.begin < begin) return {};
  return {row, range, piece, (range.end - 1) / length, length};
}
__device__ inline Hub hub_beginning_in(const Slots& slots, std::int64_t num_rows,
                                       std::int64_t num_slots, std::int64_t piece) {
  return hub_beginning_in(slots, num_rows, num_slots, piece, piece_length(num_slots));
}

__device__ inline std::int64_t hub_partial(const Hub& hub, std::int64_t piece) {
  return 2 * piece + (hub.range.begin > piece * hub.piece_length ? 1 : 0);
}

}  // namespace mezzo::kernels::cuda
