#include "mezzo/graph/selection.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo::detail {
namespace {

void check_device(std::string_view operation, std::string_view name, const at::Tensor& ids,
                  at::Device device) {
  MEZZO_CHECK(ids.device() == device, "{}: expected {} on {}, got {}", operation, name,
              device.str(), ids.device().str());
}

/// The edge ids of these entries (int64 positions).
at::Tensor edges_of_entries(const Adjacency& rows, const at::Tensor& entries) {
  return rows.edge_ids.defined() ? rows.edge_ids.index_select(0, entries).to(at::kLong) : entries;
}

/// Pairs of nodes and, for each, the position in csr() of the lowest edge from src to dst, or -1:
/// int64 [n] each, on the host.
struct FoundPairs {
  at::Tensor src, dst, entries;
};

FoundPairs find_pairs(std::string_view operation, const Topology& topology, const at::Tensor& src,
                      const at::Tensor& dst) {
  const at::Tensor sources =
      selected_ids(operation, "src", src, topology.num_src(), topology.device()).cpu();
  const at::Tensor destinations =
      selected_ids(operation, "dst", dst, topology.num_dst(), topology.device()).cpu();
  MEZZO_CHECK(sources.numel() == destinations.numel(),
              "{}: expected dst of length {}, as src, got {}", operation, sources.numel(),
              destinations.numel());
  const Adjacency& rows = topology.csr();
  const at::Tensor indptr = rows.indptr.cpu(), indices = rows.indices.cpu();
  at::Tensor entries = at::empty_like(sources);
  const auto* row_begin = indptr.const_data_ptr<std::int64_t>();
  const auto* from = sources.const_data_ptr<std::int64_t>();
  const auto* to = destinations.const_data_ptr<std::int64_t>();
  auto* entry = entries.mutable_data_ptr<std::int64_t>();
  visit(IdTypes{}, indices.scalar_type(), [&]<class Id>() {
    const auto* index = indices.const_data_ptr<typename Id::Type>();
    for (std::int64_t i = 0; i < sources.numel(); ++i) {
      const auto* end = index + row_begin[from[i] + 1];
      const auto* position = std::find(index + row_begin[from[i]], end, to[i]);
      entry[i] = position != end ? position - index : -1;
    }
  });
  return {sources, destinations, entries};
}

}  // namespace

at::Tensor selected_ids(std::string_view operation, std::string_view name, const at::Tensor& ids,
                        std::int64_t bound, at::Device device) {
  if (ids.defined() && ids.scalar_type() == at::kBool) {
    MEZZO_CHECK(ids.layout() == at::kStrided && ids.dim() == 1 && ids.size(0) == bound,
                "{}: expected {} as a mask of {} entries, got {}", operation, name, bound,
                describe(ids));
    check_device(operation, name, ids, device);
    return ids.nonzero().squeeze(1);
  }
  // Ambiguous: libtorch treats uint8 as a mask; as ids it would select rows 0 and 1.
  MEZZO_CHECK(!ids.defined() || ids.scalar_type() != at::kByte,
              "{}: expected {} as integer ids or a bool mask, got uint8", operation, name);
  const at::Tensor selected = check_vector(operation, name, ids).to(at::kLong);
  check_device(operation, name, selected, device);
  check_range(operation, name, selected, bound);
  return selected;
}

void check_distinct(std::string_view operation, std::string_view name, const at::Tensor& ids) {
  if (ids.numel() < 2) return;
  const at::Tensor sorted = std::get<0>(ids.sort());
  const at::Tensor repeated = (sorted.diff() == 0).nonzero();
  MEZZO_CHECK(repeated.numel() == 0, "{}: expected distinct {}, got {} more than once", operation,
              name, sorted[repeated[0].item<std::int64_t>()].item<std::int64_t>());
}

at::Tensor edges_into(const Topology& topology, const at::Tensor& nodes) {
  const Adjacency& rows = topology.csc();
  const at::Tensor first = rows.indptr.index_select(0, nodes);
  const at::Tensor counts = rows.indptr.index_select(0, nodes + 1) - first;
  const at::Tensor before = counts.cumsum(0) - counts;  // entries of earlier nodes
  const at::Tensor owner = at::repeat_interleave(counts);
  const at::Tensor entries =
      at::arange(owner.numel(), owner.options()) + (first - before).index_select(0, owner);
  return edges_of_entries(rows, entries);
}

at::Tensor edges_between(std::string_view operation, const Topology& topology,
                         const at::Tensor& src, const at::Tensor& dst) {
  const FoundPairs pairs = find_pairs(operation, topology, src, dst);
  const auto* entry = pairs.entries.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < pairs.entries.numel(); ++i) {
    MEZZO_CHECK(entry[i] >= 0, "{}: expected an edge from {} to {} at position {}, got none",
                operation, pairs.src[i].item<std::int64_t>(), pairs.dst[i].item<std::int64_t>(), i);
  }
  return edges_of_entries(topology.csr(), pairs.entries.to(topology.device()));
}

at::Tensor are_joined(std::string_view operation, const Topology& topology, const at::Tensor& src,
                      const at::Tensor& dst) {
  return at::ge(find_pairs(operation, topology, src, dst).entries, 0).to(topology.device());
}

}  // namespace mezzo::detail
