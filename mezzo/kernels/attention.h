#pragma once

#include <cstdint>

#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/head_scratch.h"
#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// What the attention of an edge e = (u, v) and a head is made of:
///
///     share = softmax over the edges into v of leaky_relu(score_src[u] + score_dst[v])
///     attention = share * kept * edge_weight[e]
///
/// where kept is 0 or 1 / (1 - probability), drawn for the number e * heads + head.
struct AttentionScores {
  HeadNumbers src, dst, edge_weight;  ///< edge_weight without data: 1
  double negative_slope = 0.2;
  DropoutLevel dropout;
};

/// out[v, h, :] = sum over the edges into v of attention[e, h] * z[u, h, :], for v in [row_begin,
/// row_end). Rows are destinations; a slot's ids are its source and its edge. All in the
/// accumulator's type, one rounding. Rows without slots become 0. Deterministic.
struct AttentionArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  AttentionScores scores;
  const void* z = nullptr;   ///< [sources, heads, features]
  void* out = nullptr;       ///< [rows, heads, features]
  bool out_streams = false;  ///< past the CPU's caches
  void* top = nullptr;       ///< accumulator type [rows, heads]: the largest logit of each row
  void* sum = nullptr;       ///< likewise: the sum of exp(logit - top)
  void* scratch = nullptr;   ///< accumulator type [head_scratch()], one per thread
};

/// Numbers per head of AttentionStateArgs::state: score_dst, top, 1 / sum and the mean gradient.
inline constexpr std::int64_t kStateNumbers = 4;

/// Gathers what the gradient reads of each destination in one place. The mean gradient, sum over
/// the row of attention * <grad, z>, is <grad, out>.
struct AttentionStateArgs {
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  HeadNumbers score_dst;
  const void* top = nullptr;
  const void* sum = nullptr;
  const void* out = nullptr;   ///< [rows, heads, features]
  const void* grad = nullptr;  ///< likewise
  void* state = nullptr;       ///< accumulator type [rows, kStateNumbers, heads]
};

/// The gradients of the attention in one pass over the sources. Rows are sources; a slot's ids are
/// its destination and its edge. What belongs to an edge is stored by slot: threads that wrote it
/// by edge would share cache lines. Deterministic.
struct AttentionGradArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  /// The heads to compute, for the CUDA kernels; the CPU's take all. With one edge weight for all
  /// heads, weight_grad is whole after calls that took the heads in ascending order.
  std::int64_t head_begin = 0, head_end = 0;
  AttentionScores scores;       ///< dst is not read: `state` has it
  const void* z = nullptr;      ///< [rows, heads, features]
  const void* grad = nullptr;   ///< [destinations, heads, features]
  const void* state = nullptr;  ///< accumulator type [destinations, kStateNumbers, heads]
  void* z_grad = nullptr;       ///< as z, rounded once
  bool out_streams = false;     ///< z_grad, past the CPU's caches
  void* score_grad = nullptr;   ///< of score_src: accumulator type [rows, heads]
  /// Of each score_src + score_dst: accumulator type [slots, heads], of the heads to compute.
  void* sum_grad = nullptr;
  void* weight_grad = nullptr;  ///< accumulator type [slots, edge_weight.length]; or null
  void* scratch = nullptr;      ///< accumulator type [head_scratch()], one per thread
};

}  // namespace mezzo::kernels
