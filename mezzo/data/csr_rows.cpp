#include "mezzo/data/csr_rows.h"

#include <ATen/ATen.h>

namespace mezzo::data {

at::Tensor csr_rows(const at::Tensor& matrix, const at::Tensor& ids) {
  const at::Tensor rows = ids.to(at::kLong);
  const at::Tensor crow = matrix.crow_indices();
  const at::Tensor first = crow.index_select(0, rows).to(at::kLong);
  const at::Tensor counts = crow.index_select(0, rows + 1).to(at::kLong) - first;
  const at::Tensor indptr = at::cat({at::zeros({1}, counts.options()), counts.cumsum(0)});
  const at::Tensor entries =
      at::arange(indptr[-1].item<std::int64_t>(), counts.options()) +
      at::repeat_interleave(first - indptr.narrow(0, 0, rows.numel()), counts);
  const at::Tensor columns = matrix.col_indices().index_select(0, entries);
  return at::_sparse_csr_tensor_unsafe(indptr.to(columns.scalar_type()), columns,
                                       matrix.values().index_select(0, entries),
                                       {rows.numel(), matrix.size(1)}, matrix.options());
}

}  // namespace mezzo::data
