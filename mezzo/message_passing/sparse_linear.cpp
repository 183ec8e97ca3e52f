#include "mezzo/message_passing/sparse_linear.h"

#include <mutex>
#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"

namespace mezzo {

namespace {

struct Remembered {
  c10::weak_intrusive_ptr<c10::StorageImpl> rows, columns;
  Topology topology;
};

// The graph of a sparse matrix. Keyed by the storage of its row pointers, so that matrices which
// share a structure (dropout makes a new one each step) share it; an entry whose storage has gone
// is dropped at the next insertion.
Topology topology_of(const at::Tensor& x) {
  static std::mutex mutex;
  static std::unordered_map<const c10::StorageImpl*, Remembered> known;
  const at::Tensor rows = x.crow_indices(), columns = x.col_indices();
  const auto* key = rows.storage().unsafeGetStorageImpl();
  const auto* column_key = columns.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) {
    const auto live_rows = found->second.rows.lock(), live_columns = found->second.columns.lock();
    const bool same = live_rows.get() == key && live_columns.get() == column_key;
    if (same && found->second.topology.num_src() == x.size(1)) return found->second.topology;
  }
  std::erase_if(known, [](const auto& entry) { return entry.second.rows.expired(); });
  Topology topology = Topology::from_csc(rows, columns, x.size(1));
  known.insert_or_assign(key, Remembered{rows.storage().getWeakStorageImpl(),
                                         columns.storage().getWeakStorageImpl(), topology});
  return topology;
}

}  // namespace

at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias) {
  MEZZO_CHECK(x.dim() == 2, "linear: expected a sparse x of two dimensions, got {}", x.dim());
  const at::Tensor values = x.values();
  MEZZO_CHECK(!values.requires_grad(),
              "linear: gradients to the values of a sparse x are not available");
  // [in, out]: the row of column j of x stands together, as the kernel gathers it.
  const at::DeviceType device = x.device().type();
  at::Tensor table = weight;
  if (at::autocast::is_autocast_enabled(device) && weight.scalar_type() == at::kFloat) {
    table = at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), weight, device);
  }
  // float32 values beside a 16-bit weight stay as they are: the kernel takes the mix.
  const bool fits = values.scalar_type() == table.scalar_type() ||
                    (values.scalar_type() == at::kFloat && table.element_size() == 2);
  const at::Tensor edge = fits ? values : values.to(table.scalar_type());
  const at::Tensor out = gspmm(topology_of(x), BinaryOp::kMul, ReduceOp::kSum,
                               table.t().contiguous(), edge.unsqueeze(1));
  return bias ? out + bias->to(out.scalar_type()) : out;
}

at::Tensor feature_dropout(const at::Tensor& x, double probability, bool training) {
  MEZZO_CHECK(probability >= 0 && probability <= 1,
              "dropout: expected a probability in [0, 1], got {}", probability);
  if (!training || probability == 0) return x;
  if (x.layout() != at::kSparseCsr) return at::dropout(x, probability, training);
  return at::_sparse_csr_tensor_unsafe(x.crow_indices(), x.col_indices(),
                                       at::dropout(x.values(), probability, training), x.sizes(),
                                       x.options());
}

}  // namespace mezzo
