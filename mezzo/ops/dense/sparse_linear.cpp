#include "mezzo/ops/dense/sparse_linear.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/device.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

/// The graph of a sparse matrix, and the memory of its row pointers and columns.
struct CachedGraph {
  const void* row_data;
  const void* column_data;
  c10::weak_intrusive_ptr<c10::StorageImpl> rows, columns;
  Topology topology;

  /// Whether row pointers and columns are in the same memory.
  bool has_memory(const at::Tensor& row_pointers, const at::Tensor& column_ids) const {
    return row_data == row_pointers.const_data_ptr() && column_data == column_ids.const_data_ptr();
  }
};

template <class Id>
bool are_equal(const Id* cached, const at::Tensor& ids) {
  constexpr std::int64_t kGrain = 1 << 15;
  std::atomic<bool> equal = true;
  const auto compare = [&](const auto* other) {
    at::parallel_for(0, ids.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      if (!std::equal(cached + begin, cached + end, other + begin)) equal = false;
    });
  };
  ids.scalar_type() == at::kInt ? compare(ids.const_data_ptr<std::int32_t>())
                                : compare(ids.const_data_ptr<std::int64_t>());
  return equal;
}

/// Whether two contiguous vectors of int32 or int64 hold equal numbers.
bool same_ids_on_cpu(const at::Tensor& cached, const at::Tensor& ids) {
  if (cached.numel() != ids.numel()) return false;
  return cached.scalar_type() == at::kInt ? are_equal(cached.const_data_ptr<std::int32_t>(), ids)
                                          : are_equal(cached.const_data_ptr<std::int64_t>(), ids);
}

bool same_ids_on_cuda(const at::Tensor& cached, const at::Tensor& ids) {
  if (cached.numel() != ids.numel()) return false;
  // Capture cannot compare; it uses the latest graph of this length.
  return is_capturing(ids.device()) || at::equal(cached.to(at::kLong), ids.to(at::kLong));
}

/// Whether the topology equals the structure of the matrix, which may have been modified in place
/// or have replaced another in the same memory. libtorch's version counters do not show that: each
/// matrix made of the same index tensors has its own.
bool has_structure(const Topology& topology, const at::Tensor& rows, const at::Tensor& columns) {
  static const auto same = handle<bool(const at::Tensor&, const at::Tensor&)>("mezzo::_same_ids");
  const Adjacency& cached = topology.csc();
  return same.call(cached.indptr, rows.contiguous()) &&
         same.call(cached.indices, columns.contiguous());
}

// Matrices that share row pointers and columns (dropout makes a new one each step) share a graph.
// It holds copies of both, so it does not keep the matrix alive. A call removes the entries of
// matrices that no longer exist.
Topology topology_of(const at::Tensor& x) {
  // One pair of tensors may hold several structures, one after another.
  constexpr std::ptrdiff_t kMaxGraphsOfPair = 8;
  static std::mutex mutex;
  static std::vector<CachedGraph> cache;
  const at::Tensor rows = x.crow_indices(), columns = x.col_indices();
  const std::lock_guard lock(mutex);
  std::erase_if(cache,
                [](const CachedGraph& one) { return one.rows.expired() || one.columns.expired(); });
  const auto is_same_memory = [&](const CachedGraph& one) { return one.has_memory(rows, columns); };
  // The latest entry is last.
  const auto hit = std::find_if(cache.rbegin(), cache.rend(), [&](const CachedGraph& one) {
    return is_same_memory(one) && one.topology.num_src() == x.size(1) &&
           has_structure(one.topology, rows, columns);
  });
  if (hit != cache.rend()) {
    std::rotate(std::prev(hit.base()), hit.base(), cache.end());
    return cache.back().topology;
  }
  // Captured CUDA graphs read the arrays of a topology, so CUDA entries stay.
  if (x.device().is_cpu() &&
      std::count_if(cache.begin(), cache.end(), is_same_memory) >= kMaxGraphsOfPair) {
    cache.erase(std::find_if(cache.begin(), cache.end(), is_same_memory));
  }
  const Topology topology = Topology::from_csc(rows.clone(), columns.clone(), x.size(1));
  cache.push_back({rows.const_data_ptr(), columns.const_data_ptr(),
                   rows.storage().getWeakStorageImpl(), columns.storage().getWeakStorageImpl(),
                   topology});
  return topology;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  m.def("_same_ids(Tensor cached, Tensor ids) -> bool");
}
TORCH_LIBRARY_IMPL(mezzo, CPU, m) {
  m.impl("_same_ids", &same_ids_on_cpu);
}
TORCH_LIBRARY_IMPL(mezzo, CUDA, m) {
  m.impl("_same_ids", &same_ids_on_cuda);
}

at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias) {
  MEZZO_CHECK(x.dim() == 2, "linear: expected a sparse x of two dimensions, got {}", x.dim());
  const at::Tensor values = x.values();
  MEZZO_CHECK(!values.requires_grad(),
              "linear: gradients to the values of a sparse x are not available");
  // [in, out], because the kernel gathers one row for each column of x.
  const at::Tensor table = weight.scalar_type() == at::kFloat ? lowered_in_region(weight) : weight;
  // The kernel accepts float32 values beside a 16-bit weight.
  const bool accepted = values.scalar_type() == table.scalar_type() ||
                        (values.scalar_type() == at::kFloat && table.element_size() == 2);
  const at::Tensor edge = accepted ? values : values.to(table.scalar_type());
  const at::Tensor out = gspmm(topology_of(x), BinaryOp::kMul, ReduceOp::kSum,
                               table.t().contiguous(), edge.unsqueeze(1));
  return bias ? out + bias->to(out.scalar_type()) : out;
}

}  // namespace mezzo::detail
