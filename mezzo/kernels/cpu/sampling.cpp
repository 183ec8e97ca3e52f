#include "mezzo/kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mezzo/core/random.h"
#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/cpu/sampling.h"

namespace mezzo::kernels {
namespace {

/// The factor c of draw_labor().
double labor_scale(const float* weights, std::int64_t degree, std::int64_t fanout) {
  const std::int64_t positive =
      std::count_if(weights, weights + degree, [](float weight) { return weight > 0; });
  if (positive <= fanout) return std::numeric_limits<double>::infinity();
  double scale = 0;
  for (std::int64_t certain = -1;;) {
    std::int64_t reached = 0;
    double rest = 0;
    for (std::int64_t i = 0; i < degree; ++i) {
      const bool is_certain = scale * weights[i] >= 1;
      reached += is_certain ? 1 : 0;
      rest += is_certain ? 0.0 : weights[i];
    }
    // Fewer than before if rounding puts a probability just below 1.
    if (reached <= certain || reached >= fanout) return scale;
    certain = reached;
    scale = static_cast<double>(fanout - certain) / rest;
  }
}

}  // namespace

template <class Id>
std::int64_t find_rows(const NeighborRows<Id>& rows, const Id* nodes, std::int64_t n,
                       DrawCount count, const RowRanges& ranges) {
  std::int64_t offset = 0, max_degree = 0;
  ranges.offsets[0] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (i + kReadsAhead < n) fetch(rows.indptr + nodes[i + kReadsAhead]);
    const std::int64_t begin = rows.indptr[nodes[i]];
    const std::int64_t degree = rows.indptr[nodes[i] + 1] - begin;
    ranges.begins[i] = begin;
    ranges.degrees[i] = degree;
    max_degree = std::max(max_degree, degree);
    offset += count.of(degree);
    ranges.offsets[i + 1] = offset;
  }
  return max_degree;
}

std::int64_t uniform_scratch_words(DrawCount count, std::int64_t max_degree) {
  if (count.replace || count.fanout <= kSmallFanout || max_degree <= count.fanout) return 0;
  return std::min(max_degree / kBitsOfWord, count.fanout * kWordsPerDraw) + 1;
}

template <class Id>
void choose_other(const UniformDraws<Id>& draws, std::int64_t row, const Chosen<Id>& chosen) {
  const std::int64_t degree = draws.ranges.degrees[row], fanout = draws.count.fanout;
  switch (row_draw(draws.count, degree)) {
    case RowDraw::kReplacing:
      return choose_replacing(draws.key, row, degree, fanout, chosen);
    case RowDraw::kMarked:
      return choose_marked(draws.key, row, degree, fanout, draws.scratch, chosen);
    case RowDraw::kSparse:
      return choose_sparse(draws.key, row, degree, fanout, chosen);
    default:
      return;  // draw_rows.h samples these
  }
}

template <>
void draw_uniform(const UniformDraws<std::int32_t>& draws) {
  cpu_backend().run(draws);
}

template <>
void draw_uniform(const UniformDraws<std::int64_t>& draws) {
  cpu_backend().run(draws);
}

template <class Id>
std::int64_t draw_weighted(const float* weights, const DrawRow& row, std::int64_t fanout,
                           DrawKey key, RankedEntry* scratch, Id* entries) {
  const auto before = [](const RankedEntry& left, const RankedEntry& right) {
    return left.rank != right.rank ? left.rank < right.rank : left.entry < right.entry;
  };
  RowNumbers numbers(key, row.position);
  std::int64_t size = 0;
  if (fanout == 0) return 0;
  const std::int64_t end = row.begin + row.degree;
  if (row.degree <= fanout) {
    for (std::int64_t entry = row.begin; entry < end; ++entry) {
      if (weights[entry] > 0) entries[size++] = static_cast<Id>(entry);
    }
    return size;
  }
  for (std::int64_t entry = row.begin; entry < end; ++entry) {
    // In (0, 1), so that the logarithm is finite.
    const double u = (static_cast<double>(numbers.next_64_bits() >> 11) + 0.5) * 0x1p-53;
    if (!(weights[entry] > 0)) continue;
    const RankedEntry ranked{-std::log(u) / weights[entry], entry};
    if (size < fanout) {
      scratch[size++] = ranked;
      if (size == fanout) std::make_heap(scratch, scratch + size, before);
    } else if (before(ranked, scratch[0])) {
      std::pop_heap(scratch, scratch + size, before);
      scratch[size - 1] = ranked;
      std::push_heap(scratch, scratch + size, before);
    }
  }
  for (std::int64_t i = 0; i < size; ++i) entries[i] = static_cast<Id>(scratch[i].entry);
  std::sort(entries, entries + size);
  return size;
}

template <class Id>
std::int64_t draw_weighted_replacing(const float* weights, const DrawRow& row, std::int64_t fanout,
                                     DrawKey key, double* scratch, Id* entries) {
  const std::int64_t end = row.begin + row.degree;
  double sum = 0;
  std::int64_t last = row.begin;  // the last entry with a positive weight
  for (std::int64_t entry = row.begin; entry < end; ++entry) {
    sum += weights[entry];
    if (weights[entry] > 0) last = entry;
  }
  if (!(sum > 0)) return 0;
  RowNumbers numbers(key, row.position);
  for (std::int64_t i = 0; i < fanout; ++i) {
    scratch[i] = static_cast<double>(numbers.next_64_bits() >> 11) * 0x1p-53 * sum;
  }
  std::sort(scratch, scratch + fanout);
  std::int64_t size = 0;
  double passed = 0;
  for (std::int64_t entry = row.begin; entry < last && size < fanout; ++entry) {
    passed += weights[entry];
    for (; size < fanout && scratch[size] < passed; ++size) entries[size] = static_cast<Id>(entry);
  }
  std::fill(entries + size, entries + fanout, static_cast<Id>(last));
  return fanout;
}

template <class Id>
std::int64_t draw_labor(const NeighborRows<Id>& rows, const DrawRow& row, std::int64_t fanout,
                        DrawKey key, Id* entries, Id* neighbors, float* inverse_probabilities) {
  if (fanout == 0) return 0;
  const double share = static_cast<double>(fanout) / static_cast<double>(row.degree);
  const double scale =
      rows.weights == nullptr ? share : labor_scale(rows.weights + row.begin, row.degree, fanout);
  std::int64_t size = 0;
  for (std::int64_t entry = row.begin; entry < row.begin + row.degree; ++entry) {
    double probability = scale;
    if (rows.weights != nullptr) {
      if (!(rows.weights[entry] > 0)) continue;
      probability = scale * rows.weights[entry];
    }
    const Id neighbor = rows.indices[entry];
    const auto index =
        static_cast<std::uint64_t>(rows.names == nullptr ? neighbor : rows.names[neighbor]);
    if (probability < 1 && random_uniform(key.seed, key.stream, index) >= probability) continue;
    entries[size] = static_cast<Id>(entry);
    neighbors[size] = neighbor;
    inverse_probabilities[size++] = static_cast<float>(1 / std::min(1.0, probability));
  }
  return size;
}

template <class Id>
std::int64_t renumber(const StampTable& table, Id* ids, std::int64_t n, Id* nodes,
                      std::int64_t num_nodes) {
  std::int32_t* const stamps = table.stamps;
  const std::int32_t base = table.base;
  auto next = static_cast<std::int32_t>(base + num_nodes);
  Id* new_nodes = nodes + num_nodes;
  for (std::int64_t i = 0; i < n; ++i) {
    if (i + kReadsAhead < n) fetch(stamps + ids[i + kReadsAhead]);
    // Whether a node is new is unpredictable, so nothing branches on it: both writes always happen,
    // with values selected by a mask. The asm hides the comparison, which gcc would compile to a
    // branch.
    const Id node = ids[i];
    const std::int32_t known = stamps[node];
    std::int32_t new_mask = -static_cast<std::int32_t>(known < base);
    asm("" : "+r"(new_mask));
    const std::int32_t stamp = known ^ ((known ^ next) & new_mask);
    stamps[node] = stamp;
    *new_nodes = node;
    new_nodes -= new_mask;
    next -= new_mask;
    ids[i] = static_cast<Id>(stamp - base);
  }
  return new_nodes - nodes;
}

template <class Id>
void gather(const Id* values, const Id* ids, std::int64_t n, Id* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (i + kReadsAhead < n) fetch(values + ids[i + kReadsAhead]);
    out[i] = values[ids[i]];
  }
}

#define MEZZO_SAMPLING_LOOPS(Id)                                                                   \
  template std::int64_t find_rows<Id>(const NeighborRows<Id>&, const Id*, std::int64_t, DrawCount, \
                                      const RowRanges&);                                           \
  template void choose_other<Id>(const UniformDraws<Id>&, std::int64_t, const Chosen<Id>&);        \
  template std::int64_t draw_weighted<Id>(const float*, const DrawRow&, std::int64_t, DrawKey,     \
                                          RankedEntry*, Id*);                                      \
  template std::int64_t draw_weighted_replacing<Id>(const float*, const DrawRow&, std::int64_t,    \
                                                    DrawKey, double*, Id*);                        \
  template std::int64_t draw_labor<Id>(const NeighborRows<Id>&, const DrawRow&, std::int64_t,      \
                                       DrawKey, Id*, Id*, float*);                                 \
  template std::int64_t renumber<Id>(const StampTable&, Id*, std::int64_t, Id*, std::int64_t);     \
  template void gather<Id>(const Id*, const Id*, std::int64_t, Id*);

MEZZO_SAMPLING_LOOPS(std::int32_t)
MEZZO_SAMPLING_LOOPS(std::int64_t)

#undef MEZZO_SAMPLING_LOOPS

}  // namespace mezzo::kernels
