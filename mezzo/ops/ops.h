#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

// The operations of message passing on tensors. All of them: float32, float64, bfloat16, float16;
// sums, products and exponentials in float32 (float64 for float64), one rounding at the store; no
// E x F tensor beyond operands and results, in the backward neither; the same bits for any number
// of threads. Operands share one dtype, except that an edge operand may be float32 beside 16-bit
// node features. Trailing dimensions broadcast as in DGL: aligned at the last one. Registered with
// libtorch as `mezzo::gspmm`, ...: differentiable once, autocast casts node operands to the 16-bit
// type and leaves edge operands as they come. Errors: InvalidArgument naming operand, expected,
// given. Two differ: the product of `linear` of strided rows may be libtorch's or oneDNN's, whose
// bits may depend on the number of threads, and feature_dropout is differentiable any number of
// times.

/// out[v] = reduce over the edges e into v of op(lhs, rhs): g-SpMM (DGL, Wang et al. 2019).
/// lhs: [rows of lhs_target, ...], rhs: [rows of rhs_target, ...]; the one that op does not use may
/// be absent. Returns [num_dst, broadcast shape] (op dot: last dimension 1) in the node operand's
/// dtype. v without in-edges: 0. max, min: NaN wins, the lowest edge id wins ties; gradient goes to
/// the chosen message.
MEZZO_API at::Tensor gspmm(const Topology& topology, BinaryOp op, ReduceOp reduce,
                           const std::optional<at::Tensor>& lhs,
                           const std::optional<at::Tensor>& rhs, Target lhs_target = Target::kSrc,
                           Target rhs_target = Target::kEdge);

/// out[e] = op(lhs of e, rhs of e) for every edge: g-SDDMM. Returns [num_edges, broadcast shape].
MEZZO_API at::Tensor gsddmm(const Topology& topology, BinaryOp op,
                            const std::optional<at::Tensor>& lhs,
                            const std::optional<at::Tensor>& rhs, Target lhs_target = Target::kSrc,
                            Target rhs_target = Target::kDst);

/// out[v] = dst_scale[v] * sum over e = (u, v) of weight[e] * src_scale[u] * x[u]: a normalised
/// aggregation in one pass. x: [num_src, ...]; weight: [E] or [E, 1...]; scales: float32 (float64
/// for float64 x) [num_src], [num_dst], constants to autograd. Absent factors are 1.
MEZZO_API at::Tensor scaled_sum(const Topology& topology, const at::Tensor& x,
                                const std::optional<at::Tensor>& weight,
                                const std::optional<at::Tensor>& src_scale,
                                const std::optional<at::Tensor>& dst_scale);

/// Over which edges a softmax sums to 1: those into one destination or out of one source.
enum class NormalizeBy : std::uint8_t { kDst, kSrc };

/// Softmax over the edges of each node, per trailing element. logits: [num_edges, ...]; same dtype
/// out, the exponentials and their sum in float32. With `edges` (distinct integers [n], or bool
/// [num_edges] with n true) over these edges alone, as if the graph had no others: row i of the
/// logits [n, ...] and of the result is that of edges[i]. That builds the structure of these edges
/// at each call, in O(n + nodes), and synchronises on CUDA.
MEZZO_API at::Tensor edge_softmax(const Topology& topology, const at::Tensor& logits,
                                  NormalizeBy by = NormalizeBy::kDst,
                                  const std::optional<at::Tensor>& edges = std::nullopt);

/// x W^T + bias. x: [N, in] strided, or sparse CSR (values of a floating dtype, no gradient to
/// them; its structure is compared with the one remembered, which synchronises on CUDA unless a
/// graph is captured); weight: [out, in]; bias: [out] or undefined. Sums in float32, one rounding,
/// and one more for the bias of a sparse x. Autocast casts x and weight to the 16-bit type.
/// Which product runs on the CPU depends on the processor, the dtype and the sizes alone, so equal
/// processors give equal bits. 16 bits: libtorch's product if the processor multiplies that type
/// fast, else a blocked one through float32 (MEZZO_LINEAR=native or float32 forces one). float32:
/// libtorch's or oneDNN's (MEZZO_FLOAT32_LINEAR=libtorch or onednn forces one).
MEZZO_API at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias = {});

/// Dropout of x, [...] strided or sparse CSR: the same shape, dtype (16-bit under autocast) and
/// layout; x itself while not training. probability: in [0, 1], else InvalidArgument. Each element
/// is 0 with this probability, else divided by the rest (probabilities in steps of 2^-16), drawn by
/// the counter-based generator from one number of libtorch's, the same for any number of threads;
/// no mask is kept. In work that is captured into a CUDA graph each replay draws anew, from
/// libtorch's generator of the device. Of a sparse CSR matrix the stored values are dropped and
/// scaled, as dropout of the dense matrix would. Under autocast dense float32 rows are cast to the
/// 16-bit type first, so that no float32 copy of them is made.
MEZZO_API at::Tensor feature_dropout(const at::Tensor& x, double probability, bool training);

/// What gat_attention takes beside its operands.
struct AttentionOptions {
  double negative_slope = 0.2;  ///< of the leaky ReLU; finite in the accumulator's type
  double dropout = 0;           ///< of the attention, in [0, 1]; while training
  bool training = false;        ///< whether anything is dropped
  at::Tensor edge_weight = {};  ///< [E] or [E, H]: multiplies the attention, after its dropout
};

/// Graph attention (Velickovic et al., ICLR'18) in one pass: per head h,
/// out[v, h] = sum over e = (u, v) of a[e, h] * z[u, h], where a is the softmax over the edges into
/// v of leaky_relu(score_src[u, h] + score_dst[v, h]), after dropout and times the edge weight.
/// z: [num_src, H, F]; score_src: [num_src, H]; score_dst: [num_dst, H]. Returns [num_dst, H, F] in
/// z's dtype. Scores and edge weight have z's dtype or are float32 beside a 16-bit z; everything
/// between them and the result is in the accumulator's type. Equals edge_softmax, feature_dropout
/// and gspmm one after another, and draws the same edges under one seed, but keeps two numbers per
/// node and head for the backward instead of tensors per edge; the backward allocates one number
/// per edge and head (and reads the result, so that must not be written over), and another buffer
/// where the edge weight's gradient is wanted. A node without in-edges gets 0. Where a logit is NaN
/// the node's whole row of that head is NaN, even if all its edges are dropped. The same bits for
/// any number of threads, gradients too. Autocast casts z and leaves scores and weights as they
/// come.
MEZZO_API at::Tensor gat_attention(const Topology& topology, const at::Tensor& z,
                                   const at::Tensor& score_src, const at::Tensor& score_dst,
                                   const AttentionOptions& options = {});

}  // namespace mezzo
