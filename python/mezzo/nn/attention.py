"""Layers that weight the rows of the in-neighbours by attention."""
import math
from typing import Any, Union

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.graph import Graph
from mezzo.nn import support
from mezzo.nn.support import Activation, Features, GraphModule, Rows, linear

Result = Union[Tensor, "tuple[Tensor, Tensor]"]


def attention_scores(sent: Tensor, own: Tensor | None, attn_l: Tensor, attn_r: Tensor,
                     num_dst: int) -> tuple[Tensor, Tensor]:
    """The scores [num_src, H] and [num_dst, H] of rows [N, H F]; own: the projected rows of the
    destinations, None if they are the first of `sent`."""
    heads = attn_l.shape[1]
    own_head = torch.eye(heads, dtype=attn_l.dtype, device=attn_l.device).unsqueeze(-1)
    # A product makes all scores: row h holds attn_l of head h in the columns of that head, row
    # H + h attn_r. An elementwise one would convert 16-bit rows to float32.
    weight = torch.cat([(own_head * attn_l).flatten(1), (own_head * attn_r).flatten(1)])
    if own is None:
        scores = ops.linear(sent, weight)
        return scores[:, :heads], support.first_rows(scores, num_dst)[:, heads:]
    return ops.linear(sent, weight[:heads]), ops.linear(own, weight[heads:])


def dropped_softmax(graph: Graph, logits: Tensor, probability: float, training: bool) -> Tensor:
    """The attention [E, H], after dropout. It stays float32 inside autocast."""
    with torch.autocast(logits.device.type, enabled=False):
        return ops.dropout(ops.edge_softmax(graph, logits), probability, training)


class _AttentionModule(GraphModule):
    """What the attention layers share."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int,
                 allow_zero_in_degree: bool) -> None:
        super().__init__(allow_zero_in_degree, out_feats=out_feats, num_heads=num_heads)
        self._set_in_feats(in_feats)
        self._num_heads, self._out_feats = num_heads, out_feats

    def _set_options(self, feat_drop: float, attn_drop: float, negative_slope: float,
                     residual: bool, activation: Activation, bias: bool) -> None:
        width = self._num_heads * self._out_feats
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.res_fc = nn.Identity() if residual else None
        if residual and self._in_dst_feats != width:
            self.res_fc = nn.Linear(self._in_dst_feats, width, bias=bias)
        self.activation = activation

    def _set_projections(self, in_feats: int | tuple[int, int]) -> None:
        width = self._out_feats * self._num_heads
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)

    def _projected(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """The rows of sources and destinations, [N, H F]; None if these are the first sources."""
        single = getattr(self, "fc", None)
        fc_src, fc_dst = (single, single) if single is not None else (self.fc_src, self.fc_dst)
        shared = fc_dst is fc_src and not rows.is_pair
        return linear(fc_src, rows.src), None if shared else linear(fc_dst, rows.dst)

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self._num_heads, self._out_feats)

    def _projected_heads(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """The rows of sources and destinations, [N, H, F]."""
        sent, own = self._projected(rows)
        own = support.first_rows(sent, rows.dst.shape[0]) if own is None else own
        return self._heads(sent), self._heads(own)

    def _add_residual(self, out: Tensor, rows: Rows) -> Tensor:
        if self.res_fc is None:
            return out
        own = linear(self.res_fc, rows.dst) if isinstance(self.res_fc, nn.Linear) else rows.dst
        return out + own.to(out.dtype).reshape(out.shape)


class GATConv(_AttentionModule):
    """Graph attention (Velickovic et al., ICLR'18): per head z = fc(h), logits leaky_relu(attn_l .
    z_u + attn_r . z_v), softmax over the edges into v, weighted sum of z_u; then residual, bias,
    activation. Parameters: `fc.weight` [H out, in], or of a pair of in_feats `fc_src.weight` and
    `fc_dst.weight`; `attn_l`, `attn_r` [1, H, out]; `res_fc` if residual changes the width; `bias`
    [H out], in `res_fc` if that exists. Glorot normal for ReLU."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int,
                 feat_drop: float = 0.0, attn_drop: float = 0.0, negative_slope: float = 0.2,
                 residual: bool = False, activation: Activation = None,
                 allow_zero_in_degree: bool = False, bias: bool = True) -> None:
        super().__init__(in_feats, out_feats, num_heads, allow_zero_in_degree)
        self._set_projections(in_feats)
        self.attn_l = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self._set_options(feat_drop, attn_drop, negative_slope, residual, activation, bias)
        has_own_bias = bias and not isinstance(self.res_fc, nn.Linear)
        self.bias = nn.Parameter(torch.empty(num_heads * out_feats)) if has_own_bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linears = [getattr(self, name, None) for name in ("fc", "fc_src", "fc_dst", "res_fc")]
        support.reset(support.normal, *linears, self.attn_l, self.attn_r, self.bias)

    def forward(self, graph: Any, feat: Features, edge_weight: Tensor | None = None,
                get_attention: bool = False) -> Result:
        """feat: [num_src, in], destinations first, or a pair with [num_dst, in_dst]; edge_weight:
        [E], multiplies the attention after its dropout. Returns [num_dst, H, out]; with
        get_attention also the attention [E, H, 1], which is then stored."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        weight = self._edge_factors(graph, edge_weight, support.scale_dtype(rows.src))
        rows = rows.dropped(self.feat_drop, self.training)
        projected, own = self._projected(rows)
        # Before the scores: autograd then adds the gradients of both in place.
        sent, slope = self._heads(projected), self.leaky_relu.negative_slope
        scores = attention_scores(projected, own, self.attn_l, self.attn_r, graph.num_dst_nodes())
        if get_attention:
            attention = self._attention(graph, scores, weight)
            out = ops.gspmm(graph, "mul", "sum", sent, attention)
        else:
            drop = self.attn_drop.p if self.training else 0.0
            out = ops.gat_attention(graph, sent, *scores, weight, slope, drop)
        out = self._add_residual(out, rows)
        if self.bias is not None:
            out = support.add_parameter(out, self.bias.view(self._num_heads, self._out_feats))
        out = support.activate(self.activation, out)
        return (out, attention) if get_attention else out

    def _attention(self, graph: Graph, scores: tuple[Tensor, Tensor], weight: Any) -> Tensor:
        with torch.autocast(scores[0].device.type, enabled=False):
            logits = ops.gsddmm(graph, "add", *(x.to(support.scale_dtype(x)) for x in scores))
            logits = nn.functional.leaky_relu(logits, self.leaky_relu.negative_slope)
            attention = dropped_softmax(graph, logits, self.attn_drop.p, self.training)
            attention = attention if weight is None else attention * weight.unsqueeze(-1)
            return attention.unsqueeze(-1)


class GATv2Conv(_AttentionModule):
    """Graph attention with dynamic scores (Brody et al., ICLR'22): logits attn .
    leaky_relu(fc_src(h_u) + fc_dst(h_v)), softmax over the edges into v, weighted sum of
    fc_src(h_u); then residual and activation. Parameters: `fc_src`, `fc_dst` (fc_src if
    share_weights), `res_fc` if residual changes the width, [H out, in]; `attn` [1, H, out]."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int,
                 feat_drop: float = 0.0, attn_drop: float = 0.0, negative_slope: float = 0.2,
                 residual: bool = False, activation: Activation = None,
                 allow_zero_in_degree: bool = False, bias: bool = True,
                 share_weights: bool = False) -> None:
        super().__init__(in_feats, out_feats, num_heads, allow_zero_in_degree)
        width = num_heads * out_feats
        self.fc_src = self.fc_dst = nn.Linear(self._in_src_feats, width, bias=bias)
        if not share_weights or isinstance(in_feats, tuple):
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=bias)
        self.attn = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self._set_options(feat_drop, attn_drop, negative_slope, residual, activation, bias)
        self.share_weights = share_weights
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(support.normal, self.fc_src, self.fc_dst, self.res_fc, self.attn)

    def forward(self, graph: Any, feat: Features, get_attention: bool = False) -> Result:
        """feat: [num_src, in], destinations first, or a pair with [num_dst, in_dst]. Returns
        [num_dst, H, out]; with get_attention also the attention [E, H, 1]."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        rows = rows.dropped(self.feat_drop, self.training)
        sent, own = self._projected_heads(rows)
        logits = ops.gatv2_scores(graph, sent, own, self.attn, self.leaky_relu.negative_slope)
        attention = dropped_softmax(graph, logits, self.attn_drop.p, self.training).unsqueeze(-1)
        out = ops.gspmm(graph, "mul", "sum", sent, attention)
        out = support.activate(self.activation, self._add_residual(out, rows))
        return (out, attention) if get_attention else out


class DotGatConv(_AttentionModule):
    """Graph attention by dot products (Vaswani et al., NeurIPS'17): per head z = fc(h), logits
    z_u . z_v / sqrt(out), softmax over the edges into v, weighted sum of z_u. Parameter:
    `fc.weight` [H out, in], or of a pair of in_feats `fc_src.weight` and `fc_dst.weight`."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__(in_feats, out_feats, num_heads, allow_zero_in_degree)
        self._set_projections(in_feats)

    def forward(self, graph: Any, feat: Features, get_attention: bool = False) -> Result:
        """feat: [num_src, in], destinations first, or a pair with [num_dst, in_dst]. Returns
        [num_dst, H, out]; with get_attention also the attention [E, H, 1]."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        sent, own = self._projected_heads(rows)
        # Divides the rows, not their products, which may overflow float16.
        own = own / math.sqrt(self._out_feats)
        attention = ops.edge_softmax(graph, ops.gsddmm(graph, "dot", sent, own))
        out = ops.gspmm(graph, "mul", "sum", sent, attention)
        return (out, attention) if get_attention else out
