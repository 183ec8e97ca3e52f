#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

// The steps between the products of an MLP on edges, for a block of contiguous rows that stays in
// the cache. Computed in the accumulator type, rounded once.

/// Row i of a sum is row ids[i] of `rows`, in the kernel's dtype.
struct PickedRows {
  const void* rows = nullptr;  ///< null: zeros
  Ids ids;
};

/// out[i] = the sum of the three picked rows, or its relu.
struct AddRowsArgs {
  DType dtype = DType::kFloat32;
  std::int64_t count = 0, length = 0;  ///< rows, and elements of a row
  PickedRows terms[3];
  bool relu = false;
  void* out = nullptr;  ///< may be the first term's rows, unless that has ids
};

/// The gradient of relu: grad where its result x is positive (or NaN), else 0.
struct ReluGradArgs {
  DType dtype = DType::kFloat32;
  std::int64_t count = 0, length = 0;
  const void *x = nullptr, *grad = nullptr;
  void* out = nullptr;   ///< may be `grad`
  void* sums = nullptr;  ///< accumulator type [length]: the sums over rows are added; or null
};

/// out[i] = residual[i] + the layer normalization of x[i].
struct NormalizeRowsArgs {
  DType dtype = DType::kFloat32;
  std::int64_t count = 0, length = 0;
  const void* x = nullptr;
  const void *weight = nullptr, *bias = nullptr;  ///< accumulator type [length]
  double eps = 0;
  const void* residual = nullptr;
  void* out = nullptr;
};

/// The gradients of layer normalization. The gradient of its result i is the sum of two rows.
struct NormalizeRowsGradArgs {
  DType dtype = DType::kFloat32;
  std::int64_t count = 0, length = 0;
  const void* x = nullptr;
  const void* weight = nullptr;  ///< accumulator type [length]
  double eps = 0;
  PickedRows grads[2];
  void* x_grad = nullptr;
  /// Accumulator type [3, length]: the sums over the rows of the gradients of weight, bias and x
  /// are added to it.
  void* sums = nullptr;
};

/// sums[ids[i]] += rows[i] in ascending i, for the ids of which the remainder modulo `shares` is
/// `share`: threads with different shares write different rows, in the same order for any number of
/// shares.
struct ScatterRowsArgs {
  DType dtype = DType::kFloat32;
  std::int64_t count = 0, length = 0;
  const void* rows = nullptr;
  Ids ids;
  std::int64_t share = 0, shares = 1;
  void* sums = nullptr;  ///< accumulator type [nodes, length]
};

}  // namespace mezzo::kernels
