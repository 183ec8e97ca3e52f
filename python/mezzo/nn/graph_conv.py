"""Graph convolution, and the normalization of edge weights."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check
from mezzo.graph import Graph, as_graph
from mezzo.nn import support
from mezzo.nn.support import Activation, Features, GraphModule

_NORMS = ("none", "both", "right", "left")


class EdgeWeightNorm(nn.Module):
    """Edge weights divided by their sums at the ends of the edges: of edge (u, v) "both"
    sqrt(out(u) in(v)), "right" in(v), "none" 1. No parameters."""

    def __init__(self, norm: str = "both", eps: float = 0.0) -> None:
        super().__init__()
        support.check_option("EdgeWeightNorm", "norm", norm, ("both", "right", "none"))
        self._norm, self._eps = norm, eps

    def forward(self, graph: Any, edge_weight: Tensor) -> Tensor:
        """edge_weight: floating [E] or [E, 1], positive for "both" (reading the signs
        synchronises). Returns [E] of its dtype, computed in float64."""
        graph = as_graph(graph)
        weight = support.edge_factors("EdgeWeightNorm", graph, edge_weight, torch.float64)
        if self._norm != "none":
            support.check_weight_signs("EdgeWeightNorm", weight, self._norm == "both")
        return support.normalised(graph, weight, self._norm, self._eps).to(edge_weight.dtype)


class GraphConv(GraphModule):
    """Graph convolution (Kipf & Welling, ICLR'17). Parameters: `weight` [in, out] (Glorot uniform),
    `bias` [out] (zeros). norm: "both" divides a message by sqrt(d_out(u) d_in(v)), "right" by
    d_in(v), "left" by d_out(u). Multiplies before it sums if out is the smaller."""

    def __init__(self, in_feats: int, out_feats: int, norm: str = "both", weight: bool = True,
                 bias: bool = True, activation: Activation = None,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__()
        support.check_option("GraphConv", "norm", norm, _NORMS)
        self._in_feats, self._out_feats = in_feats, out_feats
        self._norm = norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.register_parameter(
            "weight", nn.Parameter(torch.empty(in_feats, out_feats)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self._activation = activation
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, graph: Any, feat: Features, weight: Tensor | None = None,
                edge_weight: Tensor | None = None) -> Tensor:
        """feat: [num_src, in] (of a pair only the sources are read); weight: [in, out], in place of
        the parameter if the layer has none; edge_weight: [E]. Returns [num_dst, out]."""
        feat = feat[0] if isinstance(feat, (tuple, list)) else feat
        graph = as_graph(graph)
        support.check_rows("GraphConv", feat, graph.num_src_nodes(), self._in_feats)
        self._check_in_degrees(graph)
        factors = support.edge_factors("GraphConv", graph, edge_weight, support.scale_dtype(feat))
        weight = self._weight_or(weight)
        if weight is None:
            out = support.add_parameter(self._sum(graph, feat, factors), self.bias)
        elif self._in_feats > self._out_feats:
            out = self._sum(graph, ops.linear(feat, weight.t()), factors)
            out = support.add_parameter(out, self.bias)
        else:
            out = ops.linear(self._sum(graph, feat, factors), weight.t(), self.bias)
        return support.activate(self._activation, out)

    def _weight_or(self, weight: Tensor | None) -> Tensor | None:
        if weight is None:
            return self.weight
        check(self.weight is None, "GraphConv: expected no weight, because the layer has one, got "
                                   "{}", weight)
        check(weight.shape == (self._in_feats, self._out_feats),
              "GraphConv: expected weight [{}, {}], got {}", self._in_feats, self._out_feats, weight)
        return weight

    def _sum(self, graph: Graph, x: Tensor, edge_weight: Tensor | None) -> Tensor:
        power, dtype = -0.5 if self._norm == "both" else -1.0, support.scale_dtype(x)
        src = dst = None
        if self._norm in ("both", "left"):
            src = graph.degree_factors("out", power, dtype)
        if self._norm in ("both", "right"):
            dst = graph.degree_factors("in", power, dtype)
        return ops.scaled_sum(graph, x, edge_weight, src, dst)

    def extra_repr(self) -> str:
        return f"in={self._in_feats}, out={self._out_feats}, normalization={self._norm}"
