"""Operators on tensors, differentiable and with autocast rules.

Each takes a `mezzo.Graph` or a `torch.classes.mezzo.Topology`, and float32, float64, bfloat16 or
float16 tensors; sums run in float32 (float64) and are rounded once. Targets are "u", "v" and "e":
source, destination and edge. Errors are ValueError, and TypeError for an argument of another type.
Letters in shapes: N nodes, E edges, F features, H heads, S segments."""
import torch
from torch import Tensor

from mezzo.errors import call, check_tensors
from mezzo.graph import GraphLike, as_tensor

_ops, _traced = torch.ops.mezzo, torch.ops.mezzo_traced


def gspmm(graph: GraphLike, op: str, reduce: str, lhs: Tensor | None, rhs: Tensor | None = None,
          lhs_target: str = "u", rhs_target: str = "e") -> Tensor:
    """out[v] = reduce over the edges e into v of op(lhs, rhs): [num_dst, ...].

    op: add, sub, mul, div, dot, copy_lhs, copy_rhs or add_relu; reduce: sum, mean, max, min or prod;
    operands: [rows of the target, ...], broadcast as in DGL. A node without in-edges gets 0."""
    return call(_traced.gspmm, as_tensor(graph), op, reduce, lhs, rhs, lhs_target, rhs_target)


def gsddmm(graph: GraphLike, op: str, lhs: Tensor | None, rhs: Tensor | None = None,
           lhs_target: str = "u", rhs_target: str = "v") -> Tensor:
    """out[e] = op(lhs, rhs) for each edge: [E, ...]. Arguments as gspmm's."""
    return call(_traced.gsddmm, as_tensor(graph), op, lhs, rhs, lhs_target, rhs_target)


def scaled_sum(graph: GraphLike, x: Tensor, weight: Tensor | None = None,
               src_scale: Tensor | None = None, dst_scale: Tensor | None = None) -> Tensor:
    """out[v] = dst_scale[v] * sum over e = (u, v) of weight[e] * src_scale[u] * x[u].

    x: [num_src, ...]; weight: [E] or [E, 1]; src_scale [num_src] and dst_scale [num_dst]: float32
    (float64 for float64 x), without gradient. Absent factors are 1. Returns [num_dst, ...]."""
    return call(_traced.scaled_sum, as_tensor(graph), x, weight, src_scale, dst_scale)


def edge_softmax(graph: GraphLike, logits: Tensor, by: str = "dst") -> Tensor:
    """Softmax over the edges into each destination, or out of each source (by="src"), per trailing
    element. logits: [E, ...]. Returns the same shape and dtype."""
    return call(_traced.edge_softmax, as_tensor(graph), logits, by)


def gat_attention(graph: GraphLike, z: Tensor, score_src: Tensor, score_dst: Tensor,
                  edge_weight: Tensor | None = None, negative_slope: float = 0.2,
                  dropout: float = 0.0) -> Tensor:
    """GAT's attention in one pass: out[v, h] = sum over e = (u, v) of a[e, h] * z[u, h], where a is
    the softmax over the edges into v of leaky_relu(score_src[u, h] + score_dst[v, h]), after
    dropout and times the edge weight.

    z: [num_src, H, F]; scores: [num_src, H] and [num_dst, H]; edge_weight: [E] or [E, H]."""
    check_tensors("gat_attention", z=z)
    return call(_traced.gat_attention, as_tensor(graph), z, score_src, score_dst, edge_weight,
                negative_slope, dropout, 0, _seed(z) if dropout > 0 else None)


def gatv2_scores(graph: GraphLike, src: Tensor, dst: Tensor, attn: Tensor,
                 negative_slope: float = 0.2) -> Tensor:
    """out[e, h] = sum over f of attn[h, f] * leaky_relu(src[u, h, f] + dst[v, h, f]): [E, H] of
    float32 (float64). src: [num_src, H, F]; dst: [num_dst, H, F]; attn: [H, F] or [1, H, F]."""
    return call(_traced.gatv2_scores, as_tensor(graph), src, dst, attn, negative_slope)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, rounded once. x: [..., in]; weight: [out, in]; bias: [out]."""
    return call(_ops.linear, x, weight, bias)


def dropout(x: Tensor, probability: float, training: bool = True) -> Tensor:
    """Dropout of x, [...]; x itself unless training. Seeded by torch's generator of the device; no
    mask is stored. Inside autocast, float32 rows are cast to 16 bits first."""
    check_tensors("dropout", x=x)
    if not training or probability == 0:
        return x
    return call(_ops.dropout, x.to(_dtype_of_region(x)), probability, 0, _seed(x))


def segment_reduce(reduce: str, lengths: Tensor, x: Tensor) -> Tensor:
    """out[s] = reduce over the rows of segment s, 0 for an empty one: [S, ...]. x: [N, ...];
    lengths: int64 [S] that sum to N."""
    return call(_ops.segment_reduce, reduce, lengths, x)


def segment_softmax(lengths: Tensor, x: Tensor) -> Tensor:
    """Softmax over the rows of each segment. Arguments as segment_reduce's; returns x's shape."""
    return call(_ops.segment_softmax, lengths, x)


def segment_mm(a: Tensor, b: Tensor, lengths: Tensor) -> Tensor:
    """Rows of segment i of a, times b[i]: [N, D2]. a: [N, D1]; b: [S, D1, D2]; lengths: [S]."""
    return call(_ops.segment_mm, a, b, lengths)


def gather_mm(a: Tensor, b: Tensor, idx: Tensor) -> Tensor:
    """Row i of a times b[idx[i]]. a: [N, D1]; b: [S, D1, D2]; idx: int64 [N]. Returns [N, D2]."""
    return call(_ops.gather_mm, a, b, idx)


def _dtype_of_region(x: Tensor) -> torch.dtype:
    """What autocast casts x to; its dtype outside autocast."""
    casts = torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64
    return torch.get_autocast_dtype(x.device.type) if casts else x.dtype


def _seed(x: Tensor) -> Tensor:
    """A seed on the device of x. A tensor, so that a replayed CUDA graph draws again."""
    return torch.randint(2**62, (1,), device=x.device)
