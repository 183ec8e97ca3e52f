#pragma once

#include <cstdint>
#include <limits>

/// Single-threaded loops of the neighbour samplers. Ids are int32 or int64; the caller owns every
/// array. Random numbers come from philox() with the key's seed and stream, at the index
/// (position of the row in its list) * 2^32 + (number of the call). Lists have fewer than 2^32
/// rows.
namespace mezzo::kernels {

/// The neighbours of every node as CSR: node v has the entries [indptr[v], indptr[v + 1]).
template <class Id>
struct NeighborRows {
  const std::int64_t* indptr = nullptr;  ///< [num_rows + 1]
  const Id* indices = nullptr;           ///< [num_edges], the neighbour of each entry
  std::int64_t num_rows = 0;
  const float* weights = nullptr;  ///< [num_edges] in CSR order, >= 0 and finite; null: uniform
  /// [num_rows], the node ids that draw_labor() takes random numbers from; null: own ids.
  const std::int64_t* names = nullptr;
};

/// Seed and stream of philox(). Equal keys give equal samples.
struct DrawKey {
  std::uint64_t seed = 0, stream = 0;
};

/// How many neighbours of each row are sampled.
struct DrawCount {
  std::int64_t fanout = 0;  ///< >= 0; all neighbours if the degree is not larger
  bool replace = false;     ///< with replacement: exactly `fanout` of each row with a neighbour

  constexpr std::int64_t of(std::int64_t degree) const {
    if (replace) return degree == 0 ? 0 : fanout;
    return degree < fanout ? degree : fanout;
  }
};

/// Rows up to this degree are sampled as the bits of a word.
inline constexpr std::int64_t kBitsOfWord = 64;
/// Fan-outs up to this are sorted as vectors, by ranks, without branches.
inline constexpr int kSmallFanout = 32;
/// Larger fan-outs use a bit map if it has at most this many words per sample.
inline constexpr std::int64_t kWordsPerDraw = 4;
/// Below this degree a random number is one 32-bit word, else two.
inline constexpr std::int64_t kDegreeOf32BitDraws = std::int64_t{1} << 16;

/// How entries of a row are sampled uniformly. kBits, kFew and kMarked use Floyd's algorithm
/// (Bentley and Floyd, 1987): number i is at most degree - draws + i, and that entry replaces one
/// that is already in the sample.
enum class RowDraw : std::uint8_t {
  kAll,        ///< every entry
  kReplacing,  ///< with replacement
  kBits,       ///< degree <= 64: the sample, or its complement if that is smaller
  kFew,        ///< small fan-out and not a huge row
  kMarked,     ///< large fan-out for the degree
  kSparse,     ///< the first `fanout` distinct numbers of a sequence
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
struct RowRanges {
  std::int64_t* begins = nullptr;   ///< [n], the first entry of each
  std::int64_t* degrees = nullptr;  ///< [n]
  std::int64_t* offsets = nullptr;  ///< [n + 1]: the sample of row i begins at offsets[i]
};

/// Fills `ranges` for the n nodes, with offsets for unweighted sampling. Returns the largest
/// degree.
template <class Id>
std::int64_t find_rows(const NeighborRows<Id>& rows, const Id* nodes, std::int64_t n,
                       DrawCount count, const RowRanges& ranges);

/// Words of scratch that draw_uniform() needs for rows of at most `max_degree` neighbours.
std::int64_t uniform_scratch_words(DrawCount count, std::int64_t max_degree);

/// Uniform sampling for the rows [first, last) of `ranges`.
template <class Id>
struct UniformDraws {
  NeighborRows<Id> rows;
  RowRanges ranges;
  std::int64_t first = 0, last = 0;
  DrawCount count;
  DrawKey key;
  std::uint64_t* scratch = nullptr;  ///< [uniform_scratch_words()]
  Id* entries = nullptr;             ///< written in [offsets[first], offsets[last])
  Id* neighbors = nullptr;           ///< written in [offsets[first], offsets[last])
};

/// Samples uniformly with cpu_backend(); every backend gives the same result. Writes entries and
/// neighbours, ascending by entry in each row. Without replacement every set of `fanout` entries is
/// equally likely, with a relative bias per number below 2^-16 for degrees below 2^16 (the upper
/// half of a 32-bit word times the degree) and below degree / 2^64 for others. O(samples).
template <class Id>
void draw_uniform(const UniformDraws<Id>& draws);

/// One row of a list, for samplers that read each of its neighbours.
struct DrawRow {
  std::int64_t position = 0;  ///< in the list
  std::int64_t begin = 0;     ///< first entry
  std::int64_t degree = 0;
};

/// An entry and its sort key.
struct RankedEntry {
  double rank;
  std::int64_t entry;
};

/// Weighted sampling without replacement: the `fanout` smallest of the exponential variables
/// -log(u) / weight (Efraimidis and Spirakis, 2006), ties by entry. Entries of weight 0 are never
/// sampled; if at most `fanout` others exist, all of them are. Writes the entries, ascending, and
/// returns their number. scratch: [fanout] if fanout < degree. O(degree) on average if the fan-out
/// is far below the degree.
template <class Id>
std::int64_t draw_weighted(const float* weights, const DrawRow& row, std::int64_t fanout,
                           DrawKey key, RankedEntry* scratch, Id* entries);

/// Weighted sampling with replacement: `fanout` entries, or none if no weight is positive. Writes
/// the entries, ascending, and returns their number. scratch: [fanout]. O(degree + fanout log
/// fanout).
template <class Id>
std::int64_t draw_weighted_replacing(const float* weights, const DrawRow& row, std::int64_t fanout,
                                     DrawKey key, double* scratch, Id* entries);

/// LABOR-0: samples entry i with neighbour t if random_uniform(key, names[t]) < p_i, where
/// p_i = min(1, fanout / degree), or with weights p_i = min(1, c w_i) such that the sum is the
/// smaller of fanout and the number of positive weights. Writes entries (ascending), neighbours and
/// 1 / p_i, and returns their number; each array needs room for `degree`. O(degree); with weights
/// times the few (at most `fanout`) rounds that find c.
template <class Id>
std::int64_t draw_labor(const NeighborRows<Id>& rows, const DrawRow& row, std::int64_t fanout,
                        DrawKey key, Id* entries, Id* neighbors, float* inverse_probabilities);

/// Numbers of the nodes of one batch: node v has the number stamps[v] - base if stamps[v] >= base,
/// else none.
struct StampTable {
  std::int32_t* stamps = nullptr;  ///< [nodes of the graph]
  std::int32_t base = 1;
};

/// Replaces ids[0, n) by their numbers. Numbers new nodes from `num_nodes` on in order of first
/// occurrence and writes them to nodes[num_nodes], ... (room for num_nodes + n + 1). Returns how
/// many nodes have numbers; base plus that must be at most 2^31 - 1.
template <class Id>
std::int64_t renumber(const StampTable& table, Id* ids, std::int64_t n, Id* nodes,
                      std::int64_t num_nodes);

/// out[i] = values[ids[i]], with prefetching.
template <class Id>
void gather(const Id* values, const Id* ids, std::int64_t n, Id* out);

}  // namespace mezzo::kernels
