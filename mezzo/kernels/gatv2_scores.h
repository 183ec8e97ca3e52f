#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// An entry of row r has x = own[r] + other[first id], and for each head h the score
/// sum over f of attn[h, f] * leaky_relu(x[h, f]).
struct GATv2Pairs {
  std::int64_t heads = 1, features = 1;
  const void* own = nullptr;    ///< [rows, heads, features]
  const void* other = nullptr;  ///< [nodes at the other end, heads, features]
  const void* attn = nullptr;   ///< accumulator type [heads, features]
  double negative_slope = 0.2;
};

/// The scores of the entries of the rows [row_begin, row_end), computed and stored in the
/// accumulator type. Needs no memory per entry and feature. Deterministic.
struct GATv2ScoresArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  GATv2Pairs pairs;
  void* scores = nullptr;  ///< accumulator type [entries, heads], at the second id
};

/// The gradients with respect to the own rows and to attn. Computed in the accumulator type; own
/// gradients are rounded once; gradients of empty rows are 0. Deterministic.
struct GATv2ScoresGradArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  GATv2Pairs pairs;
  const void* grad = nullptr;  ///< of the scores: accumulator type [entries, heads], at second id
  void* own_grad = nullptr;    ///< shape and dtype of own; or null
  void* attn_grad = nullptr;   ///< shape and dtype of attn; the rows' sum is added to it; or null
};

}  // namespace mezzo::kernels
