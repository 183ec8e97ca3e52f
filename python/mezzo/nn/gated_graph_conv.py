"""Gated graph convolution."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check
from mezzo.graph import Graph, kept
from mezzo.nn import support
from mezzo.nn.support import GraphModule


class GatedGraphConv(GraphModule):
    """Gated graph convolution (Li et al., ICLR'16): from the input padded with zeros, n_steps times
    a_v = sum over the edges e = (u, v) of linears[type of e](h_u), h_v = GRU(a_v, h_v). Parameters:
    `linears.i` [out, out] (Glorot normal for ReLU, bias zeros) and a GRUCell `gru`."""

    def __init__(self, in_feats: int, out_feats: int, n_steps: int, n_etypes: int,
                 bias: bool = True) -> None:
        super().__init__()
        check(in_feats <= out_feats, "GatedGraphConv: expected out_feats of at least in_feats, {}, "
              "got {}", in_feats, out_feats)
        self._in_feats, self._out_feats = in_feats, out_feats
        self._n_steps, self._n_etypes = n_steps, n_etypes
        self.linears = nn.ModuleList(nn.Linear(out_feats, out_feats) for _ in range(n_etypes))
        self.gru = nn.GRUCell(out_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        self.gru.reset_parameters()
        for linear in self.linears:
            nn.init.xavier_normal_(linear.weight, gain=support.RELU_GAIN)
            nn.init.zeros_(linear.bias)

    def forward(self, graph: Any, feat: Tensor, etypes: Tensor | None = None) -> Tensor:
        """feat: [N, in]; etypes: integer [E] in [0, n_etypes), which synchronises; may be None for
        one type. Returns [N, out]."""
        graph, rows = self._checked(graph, feat, self._in_feats)
        support.check_one_node_set("GatedGraphConv", graph)
        parts = self._parts(graph, etypes)
        state = nn.functional.pad(rows.src, (0, self._out_feats - self._in_feats))
        for _ in range(self._n_steps):
            received = [ops.gspmm(part, "copy_lhs", "sum",
                                  ops.linear(state, linear.weight, linear.bias))
                        for linear, part in parts]
            total = sum(received[1:], received[0]) if received else torch.zeros_like(state)
            state = self._gru_step(total, state)
        return state

    def _parts(self, graph: Graph, etypes: Tensor | None) -> list[tuple[nn.Module, Graph]]:
        """The linear layer and the edges of each type that has some."""
        check(etypes is not None or self._n_etypes == 1, "GatedGraphConv: expected etypes [{}], "
              "because there are {} types, got none", graph.num_edges(), self._n_etypes)
        if etypes is not None:
            check(etypes.shape == (graph.num_edges(),) and not etypes.is_floating_point(),
                  "GatedGraphConv: expected integer etypes [{}], one per edge, got {}",
                  graph.num_edges(), etypes)
            check(not bool(((etypes < 0) | (etypes >= self._n_etypes)).any()),
                  "GatedGraphConv: expected etypes in [0, {})", self._n_etypes)
        if self._n_etypes == 1:
            return [(self.linears[0], graph)]
        topology, graphs = kept(etypes, self._n_etypes, lambda: self._split(graph, etypes))
        if topology is not graph.topology:  # the same types for another graph
            graphs = self._split(graph, etypes)[1]
        return [(linear, part) for linear, part in zip(self.linears, graphs) if part.num_edges()]

    def _split(self, graph: Graph, etypes: Tensor) -> tuple[torch.ScriptObject, list[Graph]]:
        src, dst = graph.edges()
        masks = [etypes == i for i in range(self._n_etypes)]
        return graph.topology, [Graph.from_coo(src[mask], dst[mask], graph.num_src_nodes())
                                for mask in masks]

    def _gru_step(self, x: Tensor, h: Tensor) -> Tensor:
        cell = self.gru
        x_parts = ops.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, 1)
        h_parts = ops.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)
        reset = torch.sigmoid(x_parts[0] + h_parts[0])
        update = torch.sigmoid(x_parts[1] + h_parts[1])
        candidate = torch.tanh(x_parts[2] + reset * h_parts[2])
        return candidate + update * (h.to(candidate.dtype) - candidate)
