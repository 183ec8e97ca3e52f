#pragma once

#include <cstdint>

#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/head_scratch.h"
#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// The attention of an edge e = (u, v) and a head:
///
///     share = softmax over the edges into v of leaky_relu(score_src[u] + score_dst[v])
///     attention = share * mask * edge_weight[e]
///
/// where mask is 0 or 1 / (1 - probability), from the random number e * heads + head.
struct AttentionScores {
  HeadNumbers src, dst, edge_weight;  ///< edge_weight: 1 if data is null
  double negative_slope = 0.2;
  DropoutLevel dropout;
};

/// out[v, h, :] = sum over the edges into v of attention[e, h] * z[u, h, :], for v in [row_begin,
/// row_end). Rows are destinations; the ids of an entry are its source and its edge. Computed in
/// the accumulator type, rounded once. Empty rows become 0. Deterministic.
struct AttentionArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  AttentionScores scores;
  const void* z = nullptr;     ///< [sources, heads, features + z_padding]
  std::int64_t z_padding = 0;  ///< zeros after each head's features (CUDA only)
  void* out = nullptr;         ///< [rows, heads, features]
  bool out_streams = false;    ///< non-temporal stores on the CPU
  void* top = nullptr;         ///< accumulator type [rows, heads]: row maximum of the logits
  void* sum = nullptr;         ///< accumulator type [rows, heads]: sum of exp(logit - top)
  void* scratch = nullptr;     ///< accumulator type [head_scratch()], one per thread
};

/// Numbers per head in AttentionStateArgs::state: score_dst, top, 1 / sum, mean gradient.
inline constexpr std::int64_t kStateNumbers = 4;

/// Packs what the gradient reads of each destination. The mean gradient, sum over the row of
/// attention * <grad, z>, equals <grad, out>.
struct AttentionStateArgs {
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  HeadNumbers score_dst;
  const void* top = nullptr;
  const void* sum = nullptr;
  const void* out = nullptr;   ///< [rows, heads, features]
  const void* grad = nullptr;  ///< [rows, heads, features]
  void* state = nullptr;       ///< accumulator type [rows, kStateNumbers, heads]
};

/// The gradients of the attention in one pass over the sources. Rows are sources; the ids of an
/// entry are its destination and its edge. Results of edges are stored in CSR order: in edge-id
/// order, threads would share cache lines. Deterministic.
struct AttentionGradArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t heads = 1, features = 1;
  /// The heads to compute, for CUDA; the CPU computes all. If all heads share one edge weight,
  /// weight_grad is complete after calls over all heads in ascending order.
  std::int64_t head_begin = 0, head_end = 0;
  AttentionScores scores;         ///< dst is not read: `state` contains it
  const void* z = nullptr;        ///< [rows, heads, features]
  const void* grad = nullptr;     ///< [destinations, heads, features + grad_padding]
  std::int64_t grad_padding = 0;  ///< zeros after each head's features (CUDA only)
  const void* state = nullptr;    ///< accumulator type [destinations, kStateNumbers, heads]
  void* z_grad = nullptr;         ///< shape and dtype of z, rounded once
  bool out_streams = false;       ///< non-temporal stores of z_grad on the CPU
  void* score_grad = nullptr;     ///< of score_src: accumulator type [rows, heads]
  /// Of score_src + score_dst, the heads to compute: accumulator type [entries, heads].
  void* sum_grad = nullptr;
  void* weight_grad = nullptr;  ///< accumulator type [entries, edge_weight.length]; or null
  void* scratch = nullptr;      ///< accumulator type [head_scratch()], one per thread
};

}  // namespace mezzo::kernels
