#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// Pairs of node rows: a slot of row r stands for x = own[r] + other[its first id], and for each
/// head h for the score sum over f of attn[h, f] * leaky_relu(x[h, f]).
struct GATv2Pairs {
  std::int64_t heads = 1, features = 1;
  const void* own = nullptr;    ///< [rows, heads, features]
  const void* other = nullptr;  ///< [nodes at the other end, heads, features]
  const void* attn = nullptr;   ///< accumulator type [heads, features]
  double negative_slope = 0.2;
};

/// The scores of the slots of the rows [row_begin, row_end), in the accumulator's type and stored
/// in it: never rounded to the dtype of the rows. Nothing is kept per slot and feature.
/// Deterministic.
struct GATv2ScoresArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  GATv2Pairs pairs;
  void* scores = nullptr;  ///< accumulator type [slots, heads], by second id
};

/// The gradients with respect to the own rows and to attn. In the accumulator's type, one rounding
/// of each own gradient; that of rows without slots is 0. Deterministic.
struct GATv2ScoresGradArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  GATv2Pairs pairs;
  const void* grad = nullptr;  ///< of the scores: accumulator type [slots, heads], by second id
  void* own_grad = nullptr;    ///< as own; or null
  void* attn_grad = nullptr;   ///< as attn, to which the share of these rows is added; or null
};

}  // namespace mezzo::kernels
