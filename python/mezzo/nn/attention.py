"""Layers that weight the rows of the in-neighbours by attention; readouts, which make one row for
each graph of a batch; and JumpingKnowledge, which combines the outputs of several layers."""
import math
from typing import Any, Union

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check, check_tensors
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
        self._num_heads, self._out_feats, self._width = num_heads, out_feats, num_heads * out_feats

    def _set_options(self, feat_drop: float, attn_drop: float, negative_slope: float,
                     residual: bool, activation: Activation, bias: bool) -> None:
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.res_fc = nn.Identity() if residual else None
        if residual and self._in_dst_feats != self._width:
            self.res_fc = nn.Linear(self._in_dst_feats, self._width, bias=bias)
        self.activation = activation

    def _set_projections(self, in_feats: int | tuple[int, int]) -> None:
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, self._width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, self._width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, self._width, bias=False)

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
    activation. Parameters: `fc`, or of a pair of in_feats `fc_src` and `fc_dst`, [H out, in];
    `attn_l`, `attn_r` [1, H, out]; `bias` [H out], in `res_fc` if residual changes the width."""

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
        """edge_weight multiplies the attention after its dropout. Returns [num_dst, H, out]; with
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
            return (attention if weight is None else attention * weight.unsqueeze(-1)).unsqueeze(-1)


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
        self.fc_src = self.fc_dst = nn.Linear(self._in_src_feats, self._width, bias=bias)
        if not share_weights or isinstance(in_feats, tuple):
            self.fc_dst = nn.Linear(self._in_dst_feats, self._width, bias=bias)
        self.attn = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self._set_options(feat_drop, attn_drop, negative_slope, residual, activation, bias)
        self.share_weights = share_weights
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(support.normal, self.fc_src, self.fc_dst, self.res_fc, self.attn)

    def forward(self, graph: Any, feat: Features, get_attention: bool = False) -> Result:
        """Returns [num_dst, H, out]; with get_attention also the attention [E, H, 1]."""
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
    z_u . z_v / sqrt(out), softmax over the edges into v, weighted sum of z_u. fc as GATConv's."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__(in_feats, out_feats, num_heads, allow_zero_in_degree)
        self._set_projections(in_feats)

    def forward(self, graph: Any, feat: Features, get_attention: bool = False) -> Result:
        """Returns [num_dst, H, out]; with get_attention also the attention [E, H, 1]."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        sent, own = self._projected_heads(rows)
        # Divides the rows, not their products, which may overflow float16.
        own = own / math.sqrt(self._out_feats)
        attention = ops.edge_softmax(graph, ops.gsddmm(graph, "dot", sent, own))
        out = ops.gspmm(graph, "mul", "sum", sent, attention)
        return (out, attention) if get_attention else out


class _Pooling(GraphModule):
    _reduce = "sum"

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """feat: [N, ...]. Returns [B, ...], one row per graph of the batch; 0 for an empty one."""
        graph, _ = self._square(graph, feat)
        return ops.gspmm(graph.members(), "copy_lhs", self._reduce, feat)


class SumPooling(_Pooling):
    """The sum over the nodes of each graph. No parameters."""


class AvgPooling(_Pooling):
    """The mean over the nodes of each graph. No parameters."""
    _reduce = "mean"


class MaxPooling(_Pooling):
    """The maximum over the nodes of each graph, per feature. No parameters."""
    _reduce = "max"


class GlobalAttentionPooling(GraphModule):
    """Global attention (Li et al., ICLR'16): the sum of feat_nn(h_v), by default of h_v, weighted
    by the softmax of gate_nn(h_v), [N, 1], over the nodes of each graph."""

    def __init__(self, gate_nn: nn.Module, feat_nn: nn.Module | None = None) -> None:
        super().__init__()
        self.gate_nn, self.feat_nn = gate_nn, feat_nn

    def forward(self, graph: Any, feat: Tensor, get_attention: bool = False) -> Result:
        """feat: [N, in]. Returns [B, out]; with get_attention also the attention [N, 1]."""
        graph, _ = self._square(graph, feat)
        gate = self.gate_nn(feat)
        check(gate.shape == (len(feat), 1),
              "GlobalAttentionPooling: expected gate_nn to return [{}, 1], got {}", len(feat), gate)
        attention = ops.edge_softmax(graph.members(), gate)
        rows = support.activate(self.feat_nn, feat)
        out = ops.gspmm(graph.members(), "mul", "sum", rows, attention)
        return (out, attention) if get_attention else out


class WeightAndSum(GraphModule):
    """The sum of h_v, weighted by `atom_weighting`: the sigmoid of a linear layer [1, in]."""

    def __init__(self, in_feats: int) -> None:
        super().__init__()
        self.in_feats = in_feats
        self.atom_weighting = nn.Sequential(nn.Linear(in_feats, 1), nn.Sigmoid())

    def forward(self, g: Any, feats: Tensor) -> Tensor:
        """feats: [N, in]. Returns [B, in]."""
        graph, _ = self._square(g, feats, self.in_feats)
        return ops.gspmm(graph.members(), "mul", "sum", feats, self.atom_weighting(feats))


class Set2Set(GraphModule):
    """Set2Set (Vinyals et al., ICLR'16): from q* = 0, n_iters times q = lstm(q*), r = the sum of
    h_v weighted by the softmax of h_v . q over the nodes of each graph, q* = [q, r]. The `lstm`
    of n_layers, from 2 in to in, runs in float32 inside autocast."""

    def __init__(self, input_dim: int, n_iters: int, n_layers: int) -> None:
        super().__init__()
        self.input_dim, self.output_dim = input_dim, 2 * input_dim
        self.n_iters, self.n_layers = n_iters, n_layers
        self.lstm = nn.LSTM(self.output_dim, input_dim, n_layers)

    def reset_parameters(self) -> None:
        self.lstm.reset_parameters()

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """feat: [N, in]. Returns [B, 2 in]."""
        graph, _ = self._square(graph, feat, self.input_dim)
        members, state = graph.members(), None
        query = feat.new_zeros(members.num_dst_nodes(), self.output_dim)
        for _ in range(self.n_iters):
            question, state = support.float32_lstm(self.lstm, query.unsqueeze(0), state)
            question = question.squeeze(0).to(feat.dtype)
            scores = ops.gsddmm(members, "dot", feat, question)
            answer = ops.gspmm(members, "mul", "sum", feat, ops.edge_softmax(members, scores))
            query = torch.cat([question.to(answer.dtype), answer], 1)
        return query


class JumpingKnowledge(nn.Module):
    """Jumping knowledge (Xu et al., ICML'18) of the outputs of several layers: side by side
    ("cat"), their maximum per feature ("max"), or their sum weighted by the softmax of
    att(lstm(outputs)) ("lstm", bidirectional and in float32 inside autocast)."""

    def __init__(self, mode: str = "cat", in_feats: int | None = None,
                 num_layers: int | None = None) -> None:
        super().__init__()
        support.check_option("JumpingKnowledge", "mode", mode, ("cat", "max", "lstm"))
        self.mode = mode
        if mode == "lstm":
            check(in_feats is not None and num_layers is not None,
                  "JumpingKnowledge: expected in_feats and num_layers for lstm")
            hidden = num_layers * in_feats // 2
            self.lstm = nn.LSTM(in_feats, hidden, bidirectional=True, batch_first=True)
            self.att = nn.Linear(2 * hidden, 1)

    def reset_parameters(self) -> None:
        for part in self.children():
            part.reset_parameters()

    def forward(self, feat_list: list[Tensor]) -> Tensor:
        """feat_list: [N, ..., F] of each layer, of one shape unless "cat"; [N, in] for "lstm"."""
        check(len(feat_list) > 0, "JumpingKnowledge: expected the output of at least one layer")
        for i, x in enumerate(feat_list):
            check_tensors("JumpingKnowledge", feat_list=x)
            same = slice(-1) if self.mode == "cat" else slice(None)
            check(x.shape[same] == feat_list[0].shape[same]
                  and (self.mode != "lstm" or x.shape[1:] == (self.lstm.input_size,)),
                  "JumpingKnowledge: expected an output of layer {} that fits {}, got {}",
                  i, feat_list[0], x)
        if self.mode == "cat":
            return torch.cat(feat_list, -1)
        rows = torch.stack(feat_list, 1)
        if self.mode == "max":
            return rows.max(1).values
        scores = self.att(support.float32_lstm(self.lstm, rows)[0])
        return (rows * scores.softmax(1).to(rows.dtype)).sum(1)
