#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

// The operators of message passing on tensors, registered with libtorch as `mezzo::gspmm`, ...
//
// Dtypes: float32, float64, bfloat16, float16. Operands share one dtype, but an edge operand may be
// float32 beside 16-bit node features. Sums, products and exponentials run in float32 (float64 for
// float64) and are rounded once, at the store. Trailing dimensions broadcast as in DGL: aligned at
// the last one. Forward and backward allocate no E x F tensor beside operands and results. The bits
// are the same for any number of threads, except where `linear` of strided rows uses the product of
// libtorch. Differentiable once; feature_dropout any number of times. Autocast casts node
// operands to the 16-bit type and leaves edge operands alone. Errors: InvalidArgument with the
// operand, what was expected and what was given.

/// out[v] = reduce over the edges e into v of op(lhs, rhs): g-SpMM (DGL, Wang et al. 2019).
/// lhs: [rows of lhs_target, ...], rhs: [rows of rhs_target, ...]; an operand that op does not use
/// may be absent. Returns [num_dst, broadcast shape] (op dot: last dimension 1) in the node
/// operand's dtype. A node without in-edges gets 0. max, min: NaN wins, the lowest edge id wins
/// ties; the gradient goes to the chosen message.
MEZZO_API at::Tensor gspmm(const Topology& topology, BinaryOp op, ReduceOp reduce,
                           const std::optional<at::Tensor>& lhs,
                           const std::optional<at::Tensor>& rhs, Target lhs_target = Target::kSrc,
                           Target rhs_target = Target::kEdge);

/// out[e] = op(lhs of e, rhs of e) for every edge: g-SDDMM. Returns [num_edges, broadcast shape].
MEZZO_API at::Tensor gsddmm(const Topology& topology, BinaryOp op,
                            const std::optional<at::Tensor>& lhs,
                            const std::optional<at::Tensor>& rhs, Target lhs_target = Target::kSrc,
                            Target rhs_target = Target::kDst);

/// out[v] = dst_scale[v] * sum over e = (u, v) of weight[e] * src_scale[u] * x[u]: normalized
/// aggregation in one pass. x: [num_src, ...]; weight: [E] or [E, 1...]; src_scale [num_src] and
/// dst_scale [num_dst]: float32 (float64 for float64 x), without gradient. Absent factors are 1.
MEZZO_API at::Tensor scaled_sum(const Topology& topology, const at::Tensor& x,
                                const std::optional<at::Tensor>& weight,
                                const std::optional<at::Tensor>& src_scale,
                                const std::optional<at::Tensor>& dst_scale);

/// The edges over which a softmax sums to 1: those into one destination or out of one source.
enum class NormalizeBy : std::uint8_t { kDst, kSrc };

/// Softmax over the edges of each node, per trailing element. logits: [num_edges, ...]. Returns
/// their shape and dtype. With `edges` (distinct integers [n], or bool [num_edges] with n true) the
/// graph is restricted to these edges: row i of the logits [n, ...] and of the result belongs to
/// edges[i]. Each such call builds the restricted graph in O(n + nodes) and synchronizes on CUDA.
MEZZO_API at::Tensor edge_softmax(const Topology& topology, const at::Tensor& logits,
                                  NormalizeBy by = NormalizeBy::kDst,
                                  const std::optional<at::Tensor>& edges = std::nullopt);

/// x W^T + bias. x: [N, in] strided, or sparse CSR with floating values, which get no gradient;
/// weight: [out, in]; bias: [out] or undefined. Sums in float32 and rounds once, and once more for
/// the bias of a sparse x. The structure of a sparse x is compared with a cached one, which
/// synchronizes on CUDA outside of graph capture. Autocast casts x and weight to the 16-bit type.
/// The CPU's product depends only on the processor, the dtype and the sizes, so equal processors
/// give equal bits. 16 bits: libtorch's product if it is large and the processor multiplies that
/// type fast, else a blocked one through float32 (MEZZO_LINEAR=native or float32 forces one).
/// float32: libtorch's, or the blocked one if it is large and MKL would leave AVX-512 unused
/// (MEZZO_FLOAT32_LINEAR=libtorch or blocked forces one). See also BatchInvariant.
MEZZO_API at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias = {});

/// Dropout of x, [...] strided or sparse CSR. Returns the same shape, dtype and layout, or x itself
/// if not training. Each element (of a CSR matrix, each stored value) becomes 0 with `probability`,
/// rounded to a step of 2^-16, and is else divided by 1 - probability. One number of libtorch's CPU
/// generator seeds a counter-based generator, so the elements do not depend on the number of
/// threads and no mask is stored. Each replay of a captured CUDA graph draws new numbers from
/// libtorch's generator of the device. Autocast casts dense float32 rows to the 16-bit type first.
/// Throws InvalidArgument unless the probability is in [0, 1].
MEZZO_API at::Tensor feature_dropout(const at::Tensor& x, double probability, bool training);

/// Options of gat_attention.
struct AttentionOptions {
  double negative_slope = 0.2;  ///< of the leaky ReLU; finite in the accumulator's type
  double dropout = 0;           ///< of the attention, in [0, 1]; if training
  bool training = false;        ///< whether to apply dropout
  at::Tensor edge_weight = {};  ///< [E] or [E, H]: multiplies the attention after dropout
};

/// Graph attention (Velickovic et al., ICLR'18) in one pass: per head h,
/// out[v, h] = sum over e = (u, v) of a[e, h] * z[u, h], where a is the softmax over the edges into
/// v of leaky_relu(score_src[u, h] + score_dst[v, h]), after dropout and times the edge weight.
/// z: [num_src, H, F]; score_src: [num_src, H]; score_dst: [num_dst, H]. Returns [num_dst, H, F] in
/// z's dtype. Scores and edge weight have z's dtype or are float32 beside a 16-bit z; intermediate
/// values have the accumulator's type. Equals edge_softmax, feature_dropout and gspmm in sequence
/// and drops the same edges under one seed, but saves only two numbers per node and head for the
/// backward. The backward allocates one number per edge and head, and one more for the gradient of
/// the edge weight. It reads the result, which must not be modified in place. A node without
/// in-edges gets 0. If a logit is NaN, the node's whole row of that head is NaN, even if all its
/// edges are dropped. Autocast casts z and leaves scores and weights alone.
MEZZO_API at::Tensor gat_attention(const Topology& topology, const at::Tensor& z,
                                   const at::Tensor& score_src, const at::Tensor& score_dst,
                                   const AttentionOptions& options = {});

/// The attention scores of GATv2 (Brody et al., ICLR'22) before the softmax. For every edge
/// e = (u, v) and head h:
///
///     out[e, h] = sum over f of attn[h, f] * leaky_relu(src[u, h, f] + dst[v, h, f])
///
/// src: [num_src, H, F], dst: [num_dst, H, F], attn: [H, F] or [1, H, F], of one dtype. Returns
/// [num_edges, H] in the accumulator's type, so that the softmax sees unrounded scores. Autocast
/// casts all three to the 16-bit type.
MEZZO_API at::Tensor gatv2_scores(const Topology& topology, const at::Tensor& src,
                                  const at::Tensor& dst, const at::Tensor& attn,
                                  double negative_slope = 0.2);

// Operators on segments of rows: the first lengths[0] rows are segment 0, the next lengths[1] are
// segment 1, and so on; a length may be 0. The host reads lengths and ids, so on CUDA all of these
// and the gradients of the products synchronize, except segment_mm with lengths on the CPU.

/// out[s] = reduce over the rows of segment s; 0 for an empty one. lengths: int64 [S] whose sum is
/// x.size(0); x: [N, ...]. Returns [S, ...] in the dtype of x. As in gspmm, NaN wins a max or min
/// and the lowest row wins a tie. Autocast casts x to the 16-bit type.
MEZZO_API at::Tensor segment_reduce(ReduceOp reduce, const at::Tensor& lengths,
                                    const at::Tensor& x);

/// Softmax over the rows of each segment, per trailing element. lengths: int64 [S] whose sum is
/// x.size(0); x: [N, ...]. Returns the shape and dtype of x. Autocast leaves x alone.
MEZZO_API at::Tensor segment_softmax(const at::Tensor& lengths, const at::Tensor& x);

/// The rows of segment i of a, times b[i]. a: [N, D1]; b: [R, D1, D2]; lengths: int64 [R] whose sum
/// is N, on the device of a or, as in DGL, on the CPU. Returns [N, D2]. Runs one dense product of
/// `linear` a segment. The gradient of the factor of an empty segment is 0. Autocast casts a and b
/// to the 16-bit type.
MEZZO_API at::Tensor segment_mm(const at::Tensor& a, const at::Tensor& b,
                                const at::Tensor& lengths);

/// Row i of a times b[idx[i]]. a: [N, D1]; b: [R, D1, D2]; idx: int64 [N] in [0, R). Returns
/// [N, D2]. Otherwise as segment_mm. Copies the rows of one factor at a time, and none if idx is
/// sorted.
MEZZO_API at::Tensor gather_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& idx);

}  // namespace mezzo
