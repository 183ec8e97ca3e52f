#include "mezzo/sampling/blocks/draw_hop.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/kernels/sampling.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo::detail {
namespace {

constexpr std::int64_t kSamplerRowsPerTask = 4096;
/// For draws that read every neighbour of a row.
constexpr std::int64_t kScannedRowsPerTask = 512;

/// The inputs of the draws of a hop.
template <class Id>
struct Hop {
  kernels::NeighborRows<Id> rows;
  const Id* nodes;
  std::int64_t num_nodes;
  bool labor;
  kernels::DrawCount count;
  kernels::DrawKey key;
};

/// The rows of the hop, and the offsets of their draws by hop.count.
template <class Id>
kernels::RowRanges find_hop_rows(const Hop<Id>& hop, at::Tensor& offsets, Workspace::State& state,
                                 std::int64_t& max_degree) {
  offsets = at::empty({hop.num_nodes + 1}, at::kLong);
  const kernels::RowRanges rows{state.begins.reserve<std::int64_t>(hop.num_nodes),
                                state.degrees.reserve<std::int64_t>(hop.num_nodes),
                                offsets.mutable_data_ptr<std::int64_t>()};
  max_degree = kernels::find_rows<Id>(hop.rows, hop.nodes, hop.num_nodes, hop.count, rows);
  return rows;
}

template <class Id>
DrawnEntries draw_uniform_hop(const Hop<Id>& hop, Workspace::State& state) {
  DrawnEntries drawn;
  std::int64_t max_degree = 0;
  const kernels::RowRanges rows = find_hop_rows(hop, drawn.offsets, state, max_degree);
  const std::int64_t total = rows.offsets[hop.num_nodes];
  drawn.neighbors = at::empty({total}, kIdDtype<Id>);
  drawn.entries = at::empty({total}, kIdDtype<Id>);
  auto* neighbors = drawn.neighbors.mutable_data_ptr<Id>();
  auto* entries = drawn.entries.mutable_data_ptr<Id>();
  const kernels::DrawCount count = hop.count;
  const std::int64_t words = kernels::uniform_scratch_words(count, max_degree);
  auto* scratch = state.draws.reserve<std::uint64_t>(words * at::get_num_threads());
  at::parallel_for(0, hop.num_nodes, kSamplerRowsPerTask,
                   [&](std::int64_t first, std::int64_t last) {
                     kernels::draw_uniform<Id>({.rows = hop.rows,
                                                .ranges = rows,
                                                .first = first,
                                                .last = last,
                                                .count = count,
                                                .key = hop.key,
                                                .scratch = scratch + words * at::get_thread_num(),
                                                .entries = entries,
                                                .neighbors = neighbors});
                   });
  return drawn;
}

/// Draws that read every neighbour, for the rows [first, last), into `part`; rows.offsets of a row
/// becomes its offset in `part`. Returns the number of draws.
template <class Id>
std::int64_t draw_scanned_rows(const Hop<Id>& hop, const kernels::RowRanges& rows,
                               std::int64_t first, std::int64_t last, ScannedRows& part) {
  const kernels::DrawCount count = hop.count;
  std::int64_t total = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const kernels::DrawRow row{i, rows.begins[i], rows.degrees[i]};
    const std::int64_t room = total + (hop.labor ? row.degree : count.of(row.degree));
    Id* entries = part.entries.extend<Id>(total, room) + total;
    Id* neighbors = part.neighbors.extend<Id>(total, room) + total;
    rows.offsets[i] = total;
    std::int64_t size = 0;
    if (hop.labor) {
      float* inverses = part.inverses.extend<float>(total, room) + total;
      size = kernels::draw_labor<Id>(hop.rows, row, count.fanout, hop.key, entries, neighbors,
                                     inverses);
    } else if (count.replace) {
      auto* scratch = part.draws.reserve<double>(count.of(row.degree));
      size = kernels::draw_weighted_replacing<Id>(hop.rows.weights, row, count.fanout, hop.key,
                                                  scratch, entries);
    } else {
      auto* scratch = part.draws.reserve<kernels::RankedEntry>(count.of(row.degree));
      size = kernels::draw_weighted<Id>(hop.rows.weights, row, count.fanout, hop.key, scratch,
                                        entries);
    }
    if (!hop.labor) {
      for (std::int64_t j = 0; j < size; ++j) neighbors[j] = hop.rows.indices[entries[j]];
    }
    total += size;
  }
  return total;
}

/// The number of draws is not known in advance: threads draw chunks of the rows into separate
/// buffers, which are then joined in the order of the rows.
template <class Id>
DrawnEntries draw_scanned_hop(const Hop<Id>& hop, Workspace::State& state) {
  DrawnEntries drawn;
  std::int64_t max_degree = 0;
  const kernels::RowRanges rows = find_hop_rows(hop, drawn.offsets, state, max_degree);

  const std::int64_t num_parts = (hop.num_nodes + kScannedRowsPerTask - 1) / kScannedRowsPerTask;
  std::vector<ScannedRows>& parts = state.scanned;
  if (parts.size() < static_cast<std::size_t>(num_parts)) {
    parts.resize(static_cast<std::size_t>(num_parts));
  }
  const auto for_each_part = [&](const auto& use) {
    at::parallel_for(0, num_parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i * kScannedRowsPerTask;
        use(first, std::min(first + kScannedRowsPerTask, hop.num_nodes),
            parts[static_cast<std::size_t>(i)]);
      }
    });
  };
  for_each_part([&](std::int64_t first, std::int64_t last, ScannedRows& part) {
    part.count = draw_scanned_rows(hop, rows, first, last, part);
  });

  std::int64_t total = 0;
  for (std::int64_t i = 0; i < num_parts; ++i) {
    parts[static_cast<std::size_t>(i)].begin = total;
    total += parts[static_cast<std::size_t>(i)].count;
  }
  drawn.entries = at::empty({total}, kIdDtype<Id>);
  drawn.neighbors = at::empty({total}, kIdDtype<Id>);
  if (hop.labor) drawn.weights = at::empty({total}, at::kFloat);
  auto* entries = drawn.entries.mutable_data_ptr<Id>();
  auto* neighbors = drawn.neighbors.mutable_data_ptr<Id>();
  float* weights = hop.labor ? drawn.weights.mutable_data_ptr<float>() : nullptr;
  for_each_part([&](std::int64_t first, std::int64_t last, const ScannedRows& part) {
    for (std::int64_t row = first; row < last; ++row) rows.offsets[row] += part.begin;
    std::copy_n(part.entries.data<Id>(), part.count, entries + part.begin);
    std::copy_n(part.neighbors.data<Id>(), part.count, neighbors + part.begin);
    if (weights != nullptr) {
      std::copy_n(part.inverses.data<float>(), part.count, weights + part.begin);
    }
  });
  rows.offsets[hop.num_nodes] = total;
  return drawn;
}

}  // namespace

template <class Id>
DrawnEntries draw_hop(const NeighborSource& source, const Id* nodes, std::int64_t num_nodes,
                      bool labor, const HopDraw& draw, Workspace::State& state) {
  const Adjacency& rows = source.rows();
  const bool weighted = source.row_weights().defined();
  const bool has_node_ids = source.node_ids().defined();
  const Hop<Id> hop{
      .rows = {rows.indptr.const_data_ptr<std::int64_t>(), rows.indices.const_data_ptr<Id>(),
               source.num_nodes(),
               weighted ? source.row_weights().const_data_ptr<float>() : nullptr,
               has_node_ids ? source.node_ids().const_data_ptr<std::int64_t>() : nullptr},
      .nodes = nodes,
      .num_nodes = num_nodes,
      .labor = labor,
      .count = draw.count,
      .key = draw.key};
  return weighted || labor ? draw_scanned_hop(hop, state) : draw_uniform_hop(hop, state);
}

template DrawnEntries draw_hop<std::int32_t>(const NeighborSource&, const std::int32_t*,
                                             std::int64_t, bool, const HopDraw&, Workspace::State&);
template DrawnEntries draw_hop<std::int64_t>(const NeighborSource&, const std::int64_t*,
                                             std::int64_t, bool, const HopDraw&, Workspace::State&);

}  // namespace mezzo::detail
