#pragma once

#include <cstdint>

#include "mezzo/kernels/head_scratch.h"
#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// The gradients of a sum of rows weighted by edge and head, in one pass. Entry s of row r has as
/// ids the other row o and the edge e. With the products
///
///     product[s, h] = <own[r, h, :], other[o, h, :]>
///
/// the gradients are
///
///     own_grad[r, h, :] =
///         own_scale[r] * sum over s of weight[e, h] * other_scale[o] * other[o, h, :]
///     weight_grad[s, h] = own_scale[r] * other_scale[o] * product[s, h]
///
/// Computed in the accumulator type, rounded once. Deterministic. The weights' gradients are stored
/// in CSR order: in edge-id order, threads would share cache lines.
struct WeightedGradArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  const void* own = nullptr;          ///< [rows, heads, features]
  const void* other = nullptr;        ///< [other rows, heads, features + other_padding]
  std::int64_t other_padding = 0;     ///< zeros after each head's features (CUDA only)
  HeadNumbers weight;                 ///< of length `heads`; read for own_grad only
  const void* own_scale = nullptr;    ///< accumulator type; null means 1
  const void* other_scale = nullptr;  ///< accumulator type; null means 1
  void* own_grad = nullptr;           ///< shape and dtype of own; or null
  bool out_streams = false;           ///< non-temporal stores of own_grad on the CPU
  void* weight_grad = nullptr;        ///< [entries, heads], in CSR order
  bool weight_grad_is_accum = false;  ///< stored in the accumulator type
  void* scratch = nullptr;            ///< accumulator type [head_scratch()], one per thread
};

}  // namespace mezzo::kernels
