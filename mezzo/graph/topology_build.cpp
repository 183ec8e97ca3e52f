#include "mezzo/graph/topology_build.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_ops.h"

namespace mezzo::detail {
namespace {

constexpr std::int64_t kEdgesPerThread = 1 << 16;  // fewer are not worth waking a thread
constexpr std::int64_t kRowsPerTask = 1 << 10;

/// Fills rows [first, last) in edge-id order; next[row] is the first free entry.
template <class Id>
void fill_rows(const Id* keys, const Id* others, std::int64_t num_edges, std::int64_t first,
               std::int64_t last, std::int64_t* next, Id* indices, Id* edge_ids) {
  for (std::int64_t edge = 0; edge < num_edges; ++edge) {
    const std::int64_t row = keys[edge];
    if (row < first || row >= last) continue;
    const std::int64_t entry = next[row]++;
    indices[entry] = others[edge];
    edge_ids[entry] = static_cast<Id>(edge);
  }
}

/// Each thread reads all edges and fills its own rows. This needs no synchronisation and divides
/// the scattered writes, which dominate the cost.
template <class Id>
void fill_all_rows(const at::Tensor& keys, const at::Tensor& others, const Adjacency& out) {
  const std::int64_t num_edges = keys.numel();
  const std::int64_t num_rows = out.indptr.numel() - 1;
  const auto* indptr = out.indptr.const_data_ptr<std::int64_t>();
  const auto* key_ids = keys.const_data_ptr<Id>();
  const auto* other_ids = others.const_data_ptr<Id>();
  auto* indices = out.indices.mutable_data_ptr<Id>();
  auto* edge_ids = out.edge_ids.mutable_data_ptr<Id>();
  std::vector<std::int64_t> next(indptr, indptr + num_rows);
  const std::int64_t parts =
      std::clamp<std::int64_t>(num_edges / kEdgesPerThread, 1, at::get_num_threads());
  const auto first_row = [&](std::int64_t part) {  // parts of about equally many edges
    if (part == parts) return num_rows;
    return std::lower_bound(indptr, indptr + num_rows, num_edges / parts * part) - indptr;
  };
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    fill_rows(key_ids, other_ids, num_edges, first_row(begin), first_row(end), next.data(), indices,
              edge_ids);
  });
}

/// Writes the edge of every entry; `dst` may be undefined if the indices are the destinations.
template <class Id>
void expand_into(const Adjacency& rows, const at::Tensor& src, const at::Tensor& dst) {
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  const auto* indices = rows.indices.const_data_ptr<Id>();
  const Id* edge_ids = rows.edge_ids.defined() ? rows.edge_ids.const_data_ptr<Id>() : nullptr;
  Id* sources = src.mutable_data_ptr<Id>();
  Id* destinations = edge_ids != nullptr ? dst.mutable_data_ptr<Id>() : nullptr;
  at::parallel_for(0, rows.indptr.numel() - 1, kRowsPerTask, [&](std::int64_t begin, auto end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t entry = indptr[row]; entry < indptr[row + 1]; ++entry) {
        if (edge_ids == nullptr) {
          sources[entry] = static_cast<Id>(row);
        } else {
          sources[edge_ids[entry]] = static_cast<Id>(row);
          destinations[edge_ids[entry]] = indices[entry];
        }
      }
    }
  });
}

template <class Id>
void check_host_range(std::string_view operation, std::string_view name, const at::Tensor& ids,
                      std::int64_t bound) {
  const Id* id = ids.const_data_ptr<Id>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    MEZZO_CHECK(id[i] >= 0 && id[i] < bound, "{}: expected {} in [0, {}), got {} at position {}",
                operation, name, bound, id[i], i);
  }
}

template <class Id>
void check_host_permutation(std::string_view operation, const at::Tensor& edge_ids) {
  const Id* id = edge_ids.const_data_ptr<Id>();
  std::vector<bool> seen(static_cast<std::size_t>(edge_ids.numel()));
  for (std::int64_t i = 0; i < edge_ids.numel(); ++i) {
    const auto edge = static_cast<std::size_t>(id[i]);
    MEZZO_CHECK(!seen[edge],
                "{}: expected edge_ids to be a permutation, got {} a second time at position {}",
                operation, id[i], i);
    seen[edge] = true;
  }
}

template <class Id>
EntryOrder order_of(const at::Tensor& indptr, const at::Tensor& edge_ids) {
  const auto* row_begin = indptr.const_data_ptr<std::int64_t>();
  const Id* id = edge_ids.const_data_ptr<Id>();
  const std::int64_t num_edges = edge_ids.numel();
  if (std::is_sorted(id, id + num_edges)) return EntryOrder::kIdentity;
  for (std::int64_t row = 0; row + 1 < indptr.numel(); ++row) {
    if (!std::is_sorted(id + row_begin[row], id + row_begin[row + 1])) return EntryOrder::kOther;
  }
  return EntryOrder::kAscending;
}

/// Sorts on the CPU and copies back.
Adjacency sort_on_host(const at::Tensor& keys, const at::Tensor& others, std::int64_t num_rows) {
  const at::Device device = keys.device();
  const Adjacency host = sort_edges(keys.cpu(), others.cpu(), num_rows);
  if (!host.edge_ids.defined()) return {host.indptr.to(device), others, {}, host.longest_row};
  return {host.indptr.to(device), host.indices.to(device), host.edge_ids.to(device),
          host.longest_row};
}

}  // namespace

at::ScalarType choose_id_dtype(std::string_view operation, IdWidth width, std::int64_t num_src,
                               std::int64_t num_dst, std::int64_t num_edges) {
  const std::int64_t least = std::min(num_src, num_dst);
  MEZZO_CHECK(least >= 0, "{}: expected numbers of nodes >= 0, got {}", operation, least);
  const std::int64_t most = std::max({num_src, num_dst, num_edges});
  const bool fits = most <= std::numeric_limits<std::int32_t>::max();
  MEZZO_CHECK(fits || width != IdWidth::kInt32,
              "{}: expected counts below 2^31 for int32 ids, got {}", operation, most);
  return fits && width != IdWidth::kInt64 ? at::kInt : at::kLong;
}

at::Tensor check_vector(std::string_view operation, std::string_view name, const at::Tensor& ids) {
  MEZZO_CHECK(ids.defined() && ids.layout() == at::kStrided && ids.dim() == 1 &&
                  at::isIntegralType(ids.scalar_type(), /*includeBool=*/false),
              "{}: expected {} to be an integer vector, got {}", operation, name, describe(ids));
  MEZZO_CHECK(ids.is_cpu() || ids.is_cuda(), "{}: expected {} on a CPU or CUDA device, got {}",
              operation, name, ids.device().str());
  const bool is_int32 = ids.scalar_type() == at::kInt;
  return ids.to(is_int32 ? at::kInt : at::kLong).contiguous();
}

void check_beside(std::string_view operation, std::string_view name, const at::Tensor& ids,
                  std::string_view first_name, const at::Tensor& first) {
  MEZZO_CHECK(!ids.defined() || ids.device() == first.device(),
              "{}: expected {} on {}, as {}, got {}", operation, name, first.device().str(),
              first_name, ids.device().str());
}

void check_length(std::string_view operation, std::string_view name, const at::Tensor& ids,
                  std::string_view first_name, const at::Tensor& first) {
  MEZZO_CHECK(ids.numel() == first.numel(), "{}: expected {} of length {}, as {}, got {}",
              operation, name, first.numel(), first_name, ids.numel());
}

void check_range(std::string_view operation, std::string_view name, const at::Tensor& ids,
                 std::int64_t bound) {
  if (ids.numel() == 0) return;
  if (!ids.is_cpu()) {
    const auto [least, most] = at::aminmax(ids);
    const at::Tensor range = at::stack({least, most}).cpu().to(at::kLong);
    const auto* ends = range.const_data_ptr<std::int64_t>();
    if (ends[0] >= 0 && ends[1] < bound) return;  // else the loop below finds the first invalid id
  }
  visit(IdTypes{}, ids.scalar_type(), [&]<class Id>() {
    check_host_range<typename Id::Type>(operation, name, ids.cpu(), bound);
  });
}

std::int64_t check_indptr(std::string_view operation, const at::Tensor& indptr,
                          std::int64_t num_edges) {
  MEZZO_CHECK(indptr.numel() > 0, "{}: expected indptr of at least one entry, got none", operation);
  if (!indptr.is_cpu()) {
    if (const auto longest = longest_row(indptr, num_edges)) return *longest;
  }  // else the loop below finds the error
  const at::Tensor host = indptr.cpu().to(at::kLong);
  const auto* row_begin = host.const_data_ptr<std::int64_t>();
  const std::int64_t last = host.numel() - 1;
  std::int64_t longest = 0;
  MEZZO_CHECK(row_begin[0] == 0, "{}: expected indptr to begin with 0, got {}", operation,
              row_begin[0]);
  for (std::int64_t row = 0; row < last; ++row) {
    MEZZO_CHECK(row_begin[row] <= row_begin[row + 1],
                "{}: expected indptr never to fall, got {} after {} at position {}", operation,
                row_begin[row + 1], row_begin[row], row + 1);
    longest = std::max(longest, row_begin[row + 1] - row_begin[row]);
  }
  MEZZO_CHECK(row_begin[last] == num_edges,
              "{}: expected indptr to end with {}, the number of indices, got {}", operation,
              num_edges, row_begin[last]);
  return longest;
}

void check_parent_degrees(std::string_view name, const at::Tensor& degrees, std::int64_t count,
                          at::Device device) {
  MEZZO_CHECK(degrees.defined() && degrees.layout() == at::kStrided && degrees.dim() == 1 &&
                  degrees.numel() == count &&
                  (degrees.scalar_type() == at::kInt || degrees.scalar_type() == at::kLong),
              "with_parent_degrees: expected {} to be int32 or int64 [{}], got {}", name, count,
              describe(degrees));
  MEZZO_CHECK(degrees.device() == device, "with_parent_degrees: expected {} on {}, got {}", name,
              device.str(), degrees.device().str());
}

EntryOrder check_edge_ids(std::string_view operation, const at::Tensor& indptr,
                          const at::Tensor& edge_ids) {
  check_range(operation, "edge_ids", edge_ids, edge_ids.numel());
  if (!edge_ids.is_cpu()) {
    if (const auto order = entry_order(indptr, edge_ids)) return *order;
  }
  const at::Tensor host = edge_ids.cpu();
  EntryOrder order = EntryOrder::kOther;
  visit(IdTypes{}, host.scalar_type(), [&]<class Id>() {
    check_host_permutation<typename Id::Type>(operation, host);
    order = order_of<typename Id::Type>(indptr.cpu().to(at::kLong), host);
  });
  return order;
}

Adjacency sort_edges(const at::Tensor& keys, const at::Tensor& others, std::int64_t num_rows) {
  if (!keys.is_cpu()) {
    const bool fits = keys.numel() <= std::numeric_limits<std::int32_t>::max();
    return fits ? sort_edges_by_ops(keys, others, num_rows) : sort_on_host(keys, others, num_rows);
  }
  Adjacency rows;
  rows.indptr = at::zeros({num_rows + 1}, at::kLong);
  at::Tensor ends = rows.indptr.narrow(0, 1, num_rows);
  const at::Tensor counts = count_ids(keys, num_rows);
  at::cumsum_out(ends, counts, 0);
  rows.longest_row = num_rows == 0 ? 0 : counts.max().item<std::int64_t>();
  visit(IdTypes{}, keys.scalar_type(), [&]<class Id>() {
    const auto* key_ids = keys.const_data_ptr<typename Id::Type>();
    if (std::is_sorted(key_ids, key_ids + keys.numel())) {
      rows.indices = others;
      return;
    }
    rows.indices = at::empty_like(others);
    rows.edge_ids = at::empty_like(others);
    fill_all_rows<typename Id::Type>(keys, others, rows);
  });
  return rows;
}

EdgeList expand_rows(const Adjacency& rows) {
  if (!rows.indices.is_cpu()) return expand_rows_by_ops(rows);
  EdgeList edges;
  edges.src = at::empty_like(rows.indices);
  edges.dst = rows.edge_ids.defined() ? at::empty_like(rows.indices) : rows.indices;
  visit(IdTypes{}, rows.indices.scalar_type(),
        [&]<class Id>() { expand_into<typename Id::Type>(rows, edges.src, edges.dst); });
  return edges;
}

at::Tensor count_ids(const at::Tensor& ids, std::int64_t bound) {
  if (!ids.is_cpu()) return count_ids_by_ops(ids, bound);
  at::Tensor counts = at::zeros({bound}, at::kLong);
  auto* count = counts.mutable_data_ptr<std::int64_t>();
  visit(IdTypes{}, ids.scalar_type(), [&]<class Id>() {
    const auto* id = ids.const_data_ptr<typename Id::Type>();
    for (std::int64_t i = 0; i < ids.numel(); ++i) ++count[id[i]];
  });
  return counts;
}

at::Tensor degree_factors(const at::Tensor& degrees, DegreePower power, at::ScalarType dtype) {
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble,
              "degree_factors: expected dtype float32 or float64, got {}", c10::toString(dtype));
  const at::Tensor counts = degrees.clamp_min(1).to(dtype);
  return power == DegreePower::kInverse ? counts.reciprocal() : counts.rsqrt();
}

at::Tensor inverted(const at::Tensor& permutation) {
  if (!permutation.defined()) return {};
  at::Tensor positions = at::empty_like(permutation);
  return positions.scatter_(0, permutation.to(at::kLong),
                            at::arange(permutation.numel(), permutation.options()));
}

at::Tensor composed(const at::Tensor& outer, const at::Tensor& inner) {
  if (!outer.defined()) return inner;
  return inner.defined() ? outer.index_select(0, inner) : outer;
}

}  // namespace mezzo::detail
