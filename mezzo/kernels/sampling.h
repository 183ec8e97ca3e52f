#pragma once

#include <cstdint>
#include <limits>

/// Loops of the neighbour samplers, one thread each. Ids are int32 or int64; every array is the
/// caller's. Numbers come from philox() with the key's seed and stream, at indices
/// (position of the row in its list) * 2^32 + (number of the call): lists have below 2^32 rows.
namespace mezzo::kernels {

/// The neighbours of every node in compressed rows: row v holds slots [indptr[v], indptr[v + 1]).
template <class Id>
struct NeighborRows {
  const std::int64_t* indptr = nullptr;  ///< [num_rows + 1]
  const Id* indices = nullptr;           ///< [num_edges], the neighbour of each slot
  std::int64_t num_rows = 0;
  const float* weights = nullptr;  ///< [num_edges] by slot, >= 0 and finite; nullptr: uniform
  /// [num_rows], what nodes are called where a number is drawn for each; nullptr: as they are.
  const std::int64_t* names = nullptr;
};

/// Which bits a draw uses: those of philox(seed, stream, ...). Equal keys draw equally.
struct DrawKey {
  std::uint64_t seed = 0, stream = 0;
};

/// How many neighbours of each row are drawn.
struct DrawCount {
  std::int64_t fanout = 0;  ///< >= 0; more than any degree: every neighbour
  bool replace = false;     ///< exactly `fanout` of each row that has a neighbour

  constexpr std::int64_t of(std::int64_t degree) const {
    if (replace) return degree == 0 ? 0 : fanout;
    return degree < fanout ? degree : fanout;
  }
};

/// Rows up to this degree are drawn as the bits of a word.
inline constexpr std::int64_t kBitsOfWord = 64;
/// Fan-outs up to this are sorted as vectors, by ranks, without branches.
inline constexpr int kSmallFanout = 32;
/// Larger ones mark slots in a bit map while that has at most so many words a draw.
inline constexpr std::int64_t kWordsPerDraw = 4;
/// Below this degree a draw takes one 32-bit word, else two.
inline constexpr std::int64_t kNarrowDegree = std::int64_t{1} << 16;

/// How slots of a row are drawn with equal probability. All but the first take numbers; of kBits,
/// kFew and kMarked draw i is a number up to its last slot, degree - draws + i, which stands in for
/// a slot that was drawn before (Bentley and Floyd, 1987).
enum class RowDraw : std::uint8_t {
  kAll,        ///< none is left out
  kReplacing,  ///< each by itself
  kBits,       ///< the chosen or, where these are fewer, those left out
  kFew,        ///< few and not of a huge row
  kMarked,     ///< many for the row's degree
  kSparse,     ///< the first `fanout` different ones of a sequence of numbers
};

constexpr RowDraw row_draw(DrawCount count, std::int64_t degree) {
  if (count.replace) return degree > 0 ? RowDraw::kReplacing : RowDraw::kAll;
  if (degree <= count.fanout) return RowDraw::kAll;
  if (degree <= kBitsOfWord) return RowDraw::kBits;
  const bool is_huge = degree > std::numeric_limits<std::int32_t>::max();
  if (count.fanout <= kSmallFanout && !is_huge) return RowDraw::kFew;
  return degree / kBitsOfWord / kWordsPerDraw < count.fanout ? RowDraw::kMarked : RowDraw::kSparse;
}

/// The index of philox() for a call of the row at `position`.
constexpr std::uint64_t call_index(std::int64_t position, std::int64_t call) {
  return (static_cast<std::uint64_t>(position) << 32) | static_cast<std::uint64_t>(call);
}

/// The rows of a list of nodes.
struct FoundRows {
  std::int64_t* begins = nullptr;   ///< [n], the first slot of each
  std::int64_t* degrees = nullptr;  ///< [n]
  std::int64_t* offsets = nullptr;  ///< [n + 1]: what is drawn for row i stands from offsets[i] on
};

/// Fills `found` for the n nodes; offsets are those of a draw of `count` without weights. Returns
/// the largest degree.
template <class Id>
std::int64_t find_rows(const NeighborRows<Id>& rows, const Id* nodes, std::int64_t n,
                       DrawCount count, const FoundRows& found);

/// Words of scratch that draw_uniform needs for rows of at most `max_degree` neighbours.
std::int64_t uniform_scratch_words(DrawCount count, std::int64_t max_degree);

/// A draw for the rows [first, last) of `found`.
template <class Id>
struct UniformDraws {
  NeighborRows<Id> rows;
  FoundRows found;
  std::int64_t first = 0, last = 0;
  DrawCount count;
  DrawKey key;
  std::uint64_t* scratch = nullptr;  ///< [uniform_scratch_words()]
  Id* slots = nullptr;               ///< written from offsets[first] to offsets[last]
  Id* neighbors = nullptr;           ///< likewise
};

/// Draws with equal probability, by cpu_backend(): slots and neighbours, ascending by slot in each
/// row, the same by every backend. Without replacement every set of `fanout` slots is equally
/// likely; a draw among d slots has a relative bias below 2^-16 (d < 2^16: one 32-bit word times d,
/// the upper half) or below d / 2^64 (others). O(drawn).
template <class Id>
void draw_uniform(const UniformDraws<Id>& draws);

/// One row of a list, for draws that look at each of its neighbours.
struct DrawRow {
  std::int64_t position = 0;  ///< in the list
  std::int64_t begin = 0;     ///< first slot
  std::int64_t degree = 0;
};

/// A slot and the number by which it is chosen.
struct RankedSlot {
  double rank;
  std::int64_t slot;
};

/// Successive draws without replacement, each in proportion to the weights that are left: the
/// `fanout` smallest of the exponential variables -log(u) / weight (Efraimidis and Spirakis, 2006),
/// equal ones by slot. Slots of weight 0 are never drawn; where no more than `fanout` others are
/// left, all of these are. Writes the slots, ascending, and returns how many.
/// scratch: [fanout] where that is below the degree. O(degree) on average, for fan-outs far below
/// the degree.
template <class Id>
std::int64_t draw_weighted(const float* weights, const DrawRow& row, std::int64_t fanout,
                           DrawKey key, RankedSlot* scratch, Id* slots);

/// `fanout` independent draws in proportion to the weights; none where no weight is positive.
/// Writes the slots, ascending, and returns how many. scratch: [fanout]. O(degree + fanout log
/// fanout).
template <class Id>
std::int64_t draw_weighted_replacing(const float* weights, const DrawRow& row, std::int64_t fanout,
                                     DrawKey key, double* scratch, Id* slots);

/// LABOR-0: neighbour t by slot i is drawn where r_t < p_i, r_t = random_uniform(key, t), t by its
/// name, and
/// p_i = fanout / degree, or with weights p_i = min(1, c w_i) whose sum is the smaller of fanout
/// and the number of positive weights; at most 1. Writes slots (ascending), neighbours and 1 / p_i,
/// and returns how many; each array needs room for `degree`. O(degree), with weights times a few
/// (at most `fanout`) rounds that find c.
template <class Id>
std::int64_t draw_labor(const NeighborRows<Id>& rows, const DrawRow& row, std::int64_t fanout,
                        DrawKey key, Id* slots, Id* neighbors, float* inverse_probabilities);

/// Numbers for the nodes of one batch: node v has number stamps[v] - base where stamps[v] >= base,
/// else none.
struct StampTable {
  std::int32_t* stamps = nullptr;  ///< [nodes of the graph]
  std::int32_t base = 1;
};

/// Replaces ids[0, n) by their numbers. Nodes without one are numbered from `num_nodes` on in the
/// order in which they come and written to nodes[num_nodes], ... (room for num_nodes + n + 1).
/// Returns how many have numbers then; base plus that number is at most 2^31 - 1.
template <class Id>
std::int64_t renumber(const StampTable& table, Id* ids, std::int64_t n, Id* nodes,
                      std::int64_t num_nodes);

/// out[i] = values[ids[i]], fetched ahead.
template <class Id>
void gather(const Id* values, const Id* ids, std::int64_t n, Id* out);

}  // namespace mezzo::kernels
