"""Readouts, which make one row for each graph of a batch from the rows of its nodes, and
JumpingKnowledge, which combines the outputs of several layers."""
from typing import Any

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check, check_tensors
from mezzo.nn import support
from mezzo.nn.attention import Result
from mezzo.nn.support import GraphModule


class _Pooling(GraphModule):
    _reduce: str

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """feat: [N, ...]. Returns [B, ...], one row per graph of the batch; 0 for an empty one."""
        graph, _ = self._square(graph, feat)
        return ops.gspmm(graph.members(), "copy_lhs", self._reduce, feat)


class SumPooling(_Pooling):
    """The sum over the nodes of each graph. No parameters."""
    _reduce = "sum"


class AvgPooling(_Pooling):
    """The mean over the nodes of each graph. No parameters."""
    _reduce = "mean"


class MaxPooling(_Pooling):
    """The maximum over the nodes of each graph, per feature. No parameters."""
    _reduce = "max"


class GlobalAttentionPooling(GraphModule):
    """Global attention (Li et al., ICLR'16): the sum of feat_nn(h_v), by default of h_v, weighted
    by the softmax of gate_nn(h_v) over the nodes of each graph. Parameters: those of `gate_nn`, a
    module from [N, in] to [N, 1], and of `feat_nn`, from [N, in] to [N, out]."""

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
    """The sum of h_v, weighted by sigmoid(atom_weighting(h_v)). Parameters:
    `atom_weighting.0.weight` [1, in], `atom_weighting.0.bias` [1]."""

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
    h_v weighted by the softmax of h_v . q over the nodes of each graph, q* = [q, r]. Parameters:
    `lstm` of n_layers, from 2 in to in. It runs in float32 inside autocast."""

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
    att(lstm(outputs)) ("lstm", in float32 inside autocast). Parameters of "lstm": a bidirectional
    `lstm` from in to (num_layers in) // 2, `att.weight` [1, twice that], `att.bias` [1]."""

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
        """feat_list: [N, ..., F] of each layer, of one shape unless "cat"; [N, in] for "lstm".
        Returns [N, ..., sum of F] for "cat", otherwise the shape of one."""
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
