#include "mezzo/ops/sparse_linear.h"

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
#include "mezzo/ops/lowered.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/schema.h"

namespace mezzo {

namespace {

/// The graph of a sparse matrix, and where its row pointers and columns stood.
struct Remembered {
  const void* row_data;
  const void* column_data;
  c10::weak_intrusive_ptr<c10::StorageImpl> rows, columns;
  Topology topology;

  /// Whether it may be that of a matrix of these.
  bool stood_in(const at::Tensor& row_pointers, const at::Tensor& column_ids) const {
    return row_data == row_pointers.const_data_ptr() && column_data == column_ids.const_data_ptr();
  }
};

template <class Known>
bool are_equal(const Known* known, const at::Tensor& ids) {
  constexpr std::int64_t kGrain = 1 << 15;
  std::atomic<bool> equal = true;
  const auto compare = [&](const auto* given) {
    at::parallel_for(0, ids.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      if (!std::equal(known + begin, known + end, given + begin)) equal = false;
    });
  };
  ids.scalar_type() == at::kInt ? compare(ids.const_data_ptr<std::int32_t>())
                                : compare(ids.const_data_ptr<std::int64_t>());
  return equal;
}

/// Whether two contiguous vectors of int32 or int64 are equal numbers.
bool same_ids_on_cpu(const at::Tensor& known, const at::Tensor& ids) {
  if (known.numel() != ids.numel()) return false;
  return known.scalar_type() == at::kInt ? are_equal(known.const_data_ptr<std::int32_t>(), ids)
                                         : are_equal(known.const_data_ptr<std::int64_t>(), ids);
}

bool same_ids_on_cuda(const at::Tensor& known, const at::Tensor& ids) {
  if (known.numel() != ids.numel()) return false;
  // What is captured cannot be compared: it runs on what was used last of this length.
  return is_capturing(ids.device()) || at::equal(known.to(at::kLong), ids.to(at::kLong));
}

/// Whether a matrix of these still has the structure that was made of it. They may have been
/// written over, or be another matrix's by now, and libtorch's counters of changes do not tell:
/// each matrix that is made of the same index tensors counts for itself.
bool is_of(const Topology& topology, const at::Tensor& rows, const at::Tensor& columns) {
  static const auto same = handle<bool(const at::Tensor&, const at::Tensor&)>("mezzo::_same_ids");
  const Adjacency& known = topology.csc();
  return same.call(known.indptr, rows.contiguous()) &&
         same.call(known.indices, columns.contiguous());
}

// Matrices that share row pointers and columns (dropout makes a new one each step) share a graph.
// It holds copies of both, so it does not keep the matrix alive; an entry whose matrix has gone is
// dropped at the next call.
Topology topology_of(const at::Tensor& x) {
  // Of one pair of tensors, which may serve one matrix after another.
  constexpr std::ptrdiff_t kMostOfOnePair = 8;
  static std::mutex mutex;
  static std::vector<Remembered> all;
  const at::Tensor rows = x.crow_indices(), columns = x.col_indices();
  const std::lock_guard lock(mutex);
  std::erase_if(all,
                [](const Remembered& one) { return one.rows.expired() || one.columns.expired(); });
  const auto here = [&](const Remembered& one) { return one.stood_in(rows, columns); };
  // What was used last stands last.
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Remembered& one) {
    return here(one) && one.topology.num_src() == x.size(1) && is_of(one.topology, rows, columns);
  });
  if (found != all.rend()) {
    std::rotate(std::prev(found.base()), found.base(), all.end());
    return all.back().topology;
  }
  // Graphs that were captured read the arrays of a topology on CUDA, so that those stay.
  if (x.device().is_cpu() && std::count_if(all.begin(), all.end(), here) >= kMostOfOnePair) {
    all.erase(std::find_if(all.begin(), all.end(), here));
  }
  const Topology topology = Topology::from_csc(rows.clone(), columns.clone(), x.size(1));
  all.push_back({rows.const_data_ptr(), columns.const_data_ptr(),
                 rows.storage().getWeakStorageImpl(), columns.storage().getWeakStorageImpl(),
                 topology});
  return topology;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  m.def("_same_ids(Tensor known, Tensor ids) -> bool");
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
  // [in, out]: the row of column j of x stands together, as the kernel gathers it.
  const at::Tensor table = weight.scalar_type() == at::kFloat ? lowered_in_region(weight) : weight;
  // float32 values beside a 16-bit weight stay as they are: the kernel takes the mix.
  const bool fits = values.scalar_type() == table.scalar_type() ||
                    (values.scalar_type() == at::kFloat && table.element_size() == 2);
  const at::Tensor edge = fits ? values : values.to(table.scalar_type());
  const at::Tensor out = gspmm(topology_of(x), BinaryOp::kMul, ReduceOp::kSum,
                               table.t().contiguous(), edge.unsqueeze(1));
  return bias ? out + bias->to(out.scalar_type()) : out;
}

}  // namespace mezzo
