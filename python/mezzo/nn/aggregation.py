"""Layers that reduce the rows of the in-neighbours and transform the result."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.graph import Graph, as_graph
from mezzo.nn import support
from mezzo.nn.support import Activation, Features, GraphModule, Rows


class SAGEConv(GraphModule):
    """GraphSAGE (Hamilton et al., NeurIPS'17): fc_self(h_v) + fc_neigh(aggregate of h_u).

    aggregator_type: "mean"; "pool", the maximum of relu(fc_pool(h_u)); "gcn", the mean of the
    neighbours and the node, without fc_self. DGL's "lstm" is in C++ only. Parameters:
    `fc_neigh.weight` [out, in], `fc_self` (weight [out, in_dst], bias [out]) or for gcn `bias`
    [out], `fc_pool` [in, in]; Glorot uniform for ReLU."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, aggregator_type: str,
                 feat_drop: float = 0.0, bias: bool = True,
                 norm: Callable[[Tensor], Tensor] | None = None,
                 activation: Activation = None) -> None:
        super().__init__()
        support.check_option("SAGEConv", "aggregator_type", aggregator_type,
                             ("mean", "gcn", "pool"))
        self._in_src_feats, self._in_dst_feats = support.widths(in_feats)
        self._out_feats = out_feats
        self._aggre_type = aggregator_type
        self.norm = norm
        self.feat_drop = nn.Dropout(feat_drop)
        self.activation = activation
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(self._in_src_feats, self._in_src_feats)
        self.fc_neigh = nn.Linear(self._in_src_feats, out_feats, bias=False)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(self._in_dst_feats, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(torch.zeros(out_feats))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            if hasattr(self, name):
                nn.init.xavier_uniform_(getattr(self, name).weight, gain=support.RELU_GAIN)

    def forward(self, graph: Any, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [num_src, in], destinations first, or a pair with [num_dst, in_dst]; edge_weight:
        [E], multiplies the messages. Returns [num_dst, out]."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        weight = support.edge_factors("SAGEConv", graph, edge_weight,
                                      support.scale_dtype(rows.src))
        rows = rows.dropped(self.feat_drop, self.training)
        out = self._neighbours(graph, rows, weight)
        if self._aggre_type == "gcn":
            out = support.add_parameter(out, self.bias)
        else:
            own = support.first_rows(rows.dst, graph.num_dst_nodes())
            out = out + ops.linear(own, self.fc_self.weight, self.fc_self.bias)
        return support.activate(self.norm, support.activate(self.activation, out))

    def _neighbours(self, graph: Graph, rows: Rows, edge_weight: Tensor | None) -> Tensor:
        weight, op = self.fc_neigh.weight, "copy_lhs" if edge_weight is None else "mul"
        if self._aggre_type == "pool":
            sent = torch.relu(ops.linear(rows.src, self.fc_pool.weight, self.fc_pool.bias))
            return ops.linear(ops.gspmm(graph, op, "max", sent, edge_weight), weight)
        reduce = self._mean_with_own_row if self._aggre_type == "gcn" else (
            lambda g, x, w: ops.gspmm(g, op, "mean", x.src, w))
        if self._in_src_feats <= self._out_feats:
            return ops.linear(reduce(graph, rows, edge_weight), weight)
        sent = ops.linear(rows.src, weight)
        own = ops.linear(rows.dst, weight) if rows.is_pair and self._aggre_type == "gcn" else sent
        return reduce(graph, Rows(sent, own, rows.is_pair), edge_weight)

    @staticmethod
    def _mean_with_own_row(graph: Graph, x: Rows, edge_weight: Tensor | None) -> Tensor:
        """(sum of w_e x_u + x_v) / (in-degree + 1). Both parts are divided in the accumulator."""
        share = (graph.in_degrees() + 1).to(support.scale_dtype(x.src)).reciprocal()
        ids = torch.arange(graph.num_dst_nodes() + 1, device=share.device)
        own = Graph.from_csc(ids, ids[:-1], x.dst.shape[0])
        return (ops.scaled_sum(graph, x.src, edge_weight, None, share)
                + ops.scaled_sum(own, x.dst, None, None, share))


class GINConv(GraphModule):
    """Graph isomorphism network (Xu et al., ICLR'19): apply_func((1 + eps) h_v + aggregate of h_u)
    with aggregator_type "sum", "max" or "mean". `eps` [1] is a parameter if learn_eps, otherwise a
    buffer."""

    def __init__(self, apply_func: Callable[[Tensor], Tensor] | None = None,
                 aggregator_type: str = "sum", init_eps: float = 0, learn_eps: bool = False,
                 activation: Activation = None) -> None:
        super().__init__()
        support.check_option("GINConv", "aggregator_type", aggregator_type, ("sum", "max", "mean"))
        self.apply_func = apply_func
        self._aggregator_type = aggregator_type
        self.activation = activation
        eps = torch.tensor([init_eps], dtype=torch.float32)
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def forward(self, graph: Any, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [num_src, ...], destinations first, or a pair with [num_dst, ...]; edge_weight:
        [E], multiplies the messages. Returns apply_func of [num_dst, ...]."""
        graph, rows = as_graph(graph), Rows.of(feat)
        support.check_any_rows("GINConv", rows.src, graph.num_src_nodes())
        if rows.is_pair:
            support.check_any_rows("GINConv", rows.dst, graph.num_dst_nodes())
        else:
            support.check_prefix("GINConv", graph)
        scale = support.scale_dtype(rows.src)
        weight = support.edge_factors("GINConv", graph, edge_weight, scale)
        received = ops.gspmm(graph, "copy_lhs" if weight is None else "mul", self._aggregator_type,
                             rows.src, weight)
        out = add_own_rows(received, support.first_rows(rows.dst, graph.num_dst_nodes()), self.eps)
        return support.activate(self.activation, support.activate(self.apply_func, out))


def add_own_rows(received: Tensor, own: Tensor, eps: Tensor) -> Tensor:
    """received + (1 + eps) own, in the dtype of `received`."""
    own, scale = own.to(received.dtype), support.scale_dtype(received)
    # A zero-dimensional tensor is not rounded to the dtype of the rows.
    factor = 1 + eps.squeeze(0).to(scale)
    # The gradient of eps is a sum over all rows. It overflows 16 bits, so the rows are float32.
    scaled = (own.to(scale) * factor).to(own.dtype) if eps.requires_grad else own * factor
    return scaled + received


class EdgeConv(GraphModule):
    """Edge convolution (Wang et al., TOG'19): the maximum over the in-neighbours u of v of
    theta(h_v - h_u) + phi(h_v). Linear layers `theta` and `phi` [out, in]; with batch_norm also
    `bn`, over the messages of all edges [E, out], which are otherwise not stored."""

    def __init__(self, in_feat: int, out_feat: int, batch_norm: bool = False,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__()
        self.batch_norm = batch_norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.theta = nn.Linear(in_feat, out_feat)
        self.phi = nn.Linear(in_feat, out_feat)
        if batch_norm:
            self.bn = nn.BatchNorm1d(out_feat)

    def forward(self, g: Any, feat: Features) -> Tensor:
        """feat: [num_src, in], destinations first, or a pair with [num_dst, in]. Returns
        [num_dst, out]."""
        graph, rows = self._checked(g, feat, self.theta.in_features)
        self._check_in_degrees(graph)
        device = rows.src.device.type
        result = rows.src.dtype
        if torch.is_autocast_enabled(device) and result != torch.float64:
            result = torch.get_autocast_dtype(device)
        messages = self._reduced_messages(graph, rows, largest=not self.batch_norm).to(result)
        if not self.batch_norm:
            return messages
        return ops.gspmm(graph, "copy_rhs", "max", None, self.bn(messages))

    def _reduced_messages(self, graph: Graph, rows: Rows, largest: bool) -> Tensor:
        # theta(h_v - h_u) + phi(h_v) = (theta + phi)(h_v) - theta(h_u), the bias of theta with v's
        # part. The halves may be large beside their difference: 16 bits would lose it.
        with torch.autocast(rows.src.device.type, enabled=False):
            dtype = support.scale_dtype(rows.src)
            theta, phi = self.theta, self.phi
            weight = theta.weight.to(dtype)
            sent = ops.linear(rows.src.to(dtype), weight)
            own = ops.linear(support.first_rows(rows.dst, graph.num_dst_nodes()).to(dtype),
                             weight + phi.weight.to(dtype), theta.bias.to(dtype)
                             + phi.bias.to(dtype))
            if largest:
                return ops.gspmm(graph, "sub", "max", own, sent, "v", "u")
            return ops.gsddmm(graph, "sub", own, sent, "v", "u")
