#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// The attention scores of GATv2 (Brody et al., ICLR'22) before their softmax, for every edge
/// e = (u, v) and head h:
///
///     out[e, h] = sum over f of attn[h, f] * leaky_relu(src[u, h, f] + dst[v, h, f])
///
/// src: [num_src, H, F], dst: [num_dst, H, F], attn: [H, F] or [1, H, F], of one dtype out of
/// float32, float64, bfloat16, float16. Returns [num_edges, H] in the accumulator's type (float32,
/// float64 for float64), so that a softmax sees scores that were never rounded to 16 bits. No
/// tensor per edge and feature is made, forward or backward. Differentiable once, in all three; the
/// same bits for any number of threads; autocast casts all three to the 16-bit type. Registered as
/// `mezzo::gatv2_scores`. Errors: InvalidArgument naming operand, expected, given.
MEZZO_API at::Tensor gatv2_scores(const Topology& topology, const at::Tensor& src,
                                  const at::Tensor& dst, const at::Tensor& attn,
                                  double negative_slope = 0.2);

}  // namespace mezzo
