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

/// Rows that one task of the drawing threads takes.
constexpr std::int64_t kSamplerRowsPerTask = 4096;
/// Likewise where every neighbour of a row is looked at.
constexpr std::int64_t kScannedRowsPerTask = 512;

/// A hop to draw: everything the numbers depend on.
template <class Id>
struct Hop {
  kernels::NeighborRows<Id> rows;
  const Id* nodes;
  std::int64_t num_nodes;
  bool labor;
  kernels::DrawCount count;
  kernels::DrawKey key;
};

/// Where the rows of the hop lie; offsets for a draw of all that hop.count asks for.
template <class Id>
kernels::FoundRows find_hop_rows(const Hop<Id>& hop, at::Tensor& offsets, Workspace::State& state,
                                 std::int64_t& max_degree) {
  offsets = at::empty({hop.num_nodes + 1}, at::kLong);
  const kernels::FoundRows found{state.begins.reserve<std::int64_t>(hop.num_nodes),
                                 state.degrees.reserve<std::int64_t>(hop.num_nodes),
                                 offsets.mutable_data_ptr<std::int64_t>()};
  max_degree = kernels::find_rows<Id>(hop.rows, hop.nodes, hop.num_nodes, hop.count, found);
  return found;
}

template <class Id>
DrawnSlots draw_uniform_hop(const Hop<Id>& hop, Workspace::State& state) {
  DrawnSlots drawn;
  std::int64_t max_degree = 0;
  const kernels::FoundRows found = find_hop_rows(hop, drawn.offsets, state, max_degree);
  const std::int64_t total = found.offsets[hop.num_nodes];
  drawn.neighbors = at::empty({total}, kIdDtype<Id>);
  drawn.slots = at::empty({total}, kIdDtype<Id>);
  auto* neighbors = drawn.neighbors.mutable_data_ptr<Id>();
  auto* slots = drawn.slots.mutable_data_ptr<Id>();
  const kernels::DrawCount count = hop.count;
  const std::int64_t words = kernels::uniform_scratch_words(count, max_degree);
  auto* scratch = state.draws.reserve<std::uint64_t>(words * at::get_num_threads());
  at::parallel_for(0, hop.num_nodes, kSamplerRowsPerTask,
                   [&](std::int64_t first, std::int64_t last) {
                     kernels::draw_uniform<Id>({.rows = hop.rows,
                                                .found = found,
                                                .first = first,
                                                .last = last,
                                                .count = count,
                                                .key = hop.key,
                                                .scratch = scratch + words * at::get_thread_num(),
                                                .slots = slots,
                                                .neighbors = neighbors});
                   });
  return drawn;
}

/// Draws that look at every neighbour, of the rows [first, last), one after the other into `part`;
/// found.offsets of a row becomes where it begins there. Returns how many were drawn.
template <class Id>
std::int64_t draw_scanned_rows(const Hop<Id>& hop, const kernels::FoundRows& found,
                               std::int64_t first, std::int64_t last, ScannedRows& part) {
  const kernels::DrawCount count = hop.count;
  std::int64_t total = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const kernels::DrawRow row{i, found.begins[i], found.degrees[i]};
    const std::int64_t room = total + (hop.labor ? row.degree : count.of(row.degree));
    Id* slots = part.slots.extend<Id>(total, room) + total;
    Id* neighbors = part.neighbors.extend<Id>(total, room) + total;
    found.offsets[i] = total;
    std::int64_t size = 0;
    if (hop.labor) {
      float* inverses = part.inverses.extend<float>(total, room) + total;
      size =
          kernels::draw_labor<Id>(hop.rows, row, count.fanout, hop.key, slots, neighbors, inverses);
    } else if (count.replace) {
      auto* scratch = part.draws.reserve<double>(count.of(row.degree));
      size = kernels::draw_weighted_replacing<Id>(hop.rows.weights, row, count.fanout, hop.key,
                                                  scratch, slots);
    } else {
      auto* scratch = part.draws.reserve<kernels::RankedSlot>(count.of(row.degree));
      size =
          kernels::draw_weighted<Id>(hop.rows.weights, row, count.fanout, hop.key, scratch, slots);
    }
    if (!hop.labor) {
      for (std::int64_t j = 0; j < size; ++j) neighbors[j] = hop.rows.indices[slots[j]];
    }
    total += size;
  }
  return total;
}

/// How many come is known only afterwards: each part of the rows is drawn into memory of its own,
/// by any thread, and the parts are joined in the order of the rows.
template <class Id>
DrawnSlots draw_scanned_hop(const Hop<Id>& hop, Workspace::State& state) {
  DrawnSlots drawn;
  std::int64_t max_degree = 0;
  const kernels::FoundRows found = find_hop_rows(hop, drawn.offsets, state, max_degree);

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
    part.count = draw_scanned_rows(hop, found, first, last, part);
  });

  std::int64_t total = 0;
  for (std::int64_t i = 0; i < num_parts; ++i) {
    parts[static_cast<std::size_t>(i)].begin = total;
    total += parts[static_cast<std::size_t>(i)].count;
  }
  drawn.slots = at::empty({total}, kIdDtype<Id>);
  drawn.neighbors = at::empty({total}, kIdDtype<Id>);
  if (hop.labor) drawn.weights = at::empty({total}, at::kFloat);
  auto* slots = drawn.slots.mutable_data_ptr<Id>();
  auto* neighbors = drawn.neighbors.mutable_data_ptr<Id>();
  float* weights = hop.labor ? drawn.weights.mutable_data_ptr<float>() : nullptr;
  for_each_part([&](std::int64_t first, std::int64_t last, const ScannedRows& part) {
    for (std::int64_t row = first; row < last; ++row) found.offsets[row] += part.begin;
    std::copy_n(part.slots.data<Id>(), part.count, slots + part.begin);
    std::copy_n(part.neighbors.data<Id>(), part.count, neighbors + part.begin);
    if (weights != nullptr) {
      std::copy_n(part.inverses.data<float>(), part.count, weights + part.begin);
    }
  });
  found.offsets[hop.num_nodes] = total;
  return drawn;
}

}  // namespace

template <class Id>
DrawnSlots draw_hop(const NeighborSource& source, const Id* nodes, std::int64_t num_nodes,
                    bool labor, const HopDraw& draw, Workspace::State& state) {
  const Adjacency& rows = source.rows();
  const bool weighted = source.slot_weights().defined();
  const bool named = source.node_ids().defined();
  const Hop<Id> hop{.rows = {rows.indptr.const_data_ptr<std::int64_t>(),
                             rows.indices.const_data_ptr<Id>(), source.num_nodes(),
                             weighted ? source.slot_weights().const_data_ptr<float>() : nullptr,
                             named ? source.node_ids().const_data_ptr<std::int64_t>() : nullptr},
                    .nodes = nodes,
                    .num_nodes = num_nodes,
                    .labor = labor,
                    .count = draw.count,
                    .key = draw.key};
  return weighted || labor ? draw_scanned_hop(hop, state) : draw_uniform_hop(hop, state);
}

template DrawnSlots draw_hop<std::int32_t>(const NeighborSource&, const std::int32_t*, std::int64_t,
                                           bool, const HopDraw&, Workspace::State&);
template DrawnSlots draw_hop<std::int64_t>(const NeighborSource&, const std::int64_t*, std::int64_t,
                                           bool, const HopDraw&, Workspace::State&);

}  // namespace mezzo::detail
