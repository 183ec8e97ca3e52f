"""`mezzo.pyg.accelerate(model)` runs the convolutions of a PyG model by Mezzo's operators.
The numbers are PyG's within rounding. Dropout of the attention draws other elements, and inside
autocast results keep 16 bits where PyG's bias makes them float32."""
import copy
import functools
from typing import Any

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from mezzo import ops
from mezzo.graph import Graph, as_tensor, kept
from mezzo.nn.aggregation import add_own_rows
from mezzo.nn.attention import attention_scores, dropped_softmax
from mezzo.nn.support import Report, add_parameter, linear, logger, pair_of, scale_dtype, swap

_HOOKS = tuple(f"_{part}_forward{order}_hooks" for order in ("", "_pre") for part in (
    "propagate", "message", "aggregate", "message_and_aggregate", "edge_update"))


def accelerate(model: nn.Module, verbose: bool = True) -> Report:
    """Makes the GCNConv, SAGEConv, GATConv, GATv2Conv and GINConv of the model run Mezzo's
    operators, and returns (if verbose, prints) which convolutions it changed and which it left. A
    module stays the same object, of a subclass of PyG's class, with the same parameters.

    The structure made of an edge_index is kept while that tensor lives unchanged. A call without
    counterpart (a sparse adjacency matrix, edge attributes, return_attention_weights, an explainer)
    runs PyG's own code."""
    return swap(model, lambda module: isinstance(module, pyg_nn.MessagePassing), _REPLACEMENTS,
                _reason_to_leave, verbose)


def _reason_to_leave(module: nn.Module) -> str | None:
    if module.flow != "source_to_target":
        return f"flow is {module.flow}"
    others = ["mean", "max", "min"] if isinstance(module, pyg_nn.SAGEConv) else []
    if module.aggr not in ["add", "sum", *others]:
        return f"aggr is {module.aggr}"
    if getattr(module, "edge_dim", None) is not None:
        return "edge_dim is set"
    return None


def _takes(module: nn.Module, edge_index: Any, *rows: Any) -> bool:
    """Whether this call has a counterpart; otherwise PyG's forward runs."""
    lazy = any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters())
    taken = (not lazy and _reason_to_leave(module) is None
             and type(edge_index) is Tensor and edge_index.layout == torch.strided
             and not module.explain and module.decomposed_layers == 1
             and not any(getattr(module, name, None) for name in _HOOKS)
             and all(isinstance(x, Tensor) and x.layout == torch.strided and x.dim() == 2
                     and x.is_floating_point() for x in rows))
    if not taken and not torch.compiler.is_compiling():
        logger.info("%s: a call without counterpart runs PyG's code", type(module).__name__)
    return taken


def _structure(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int = 0) -> Graph:
    """The graph of an edge_index [2, E]; the first num_loops nodes have one self loop, as last."""
    def make() -> Graph:
        src, dst = edge_index
        if num_loops:
            loops = torch.arange(num_loops, dtype=src.dtype, device=src.device)
            others = src != dst
            src, dst = torch.cat([src[others], loops]), torch.cat([dst[others], loops])
        return Graph.from_coo(src, dst, num_src, num_dst)

    if torch.compiler.is_compiling():
        return Graph(_structure_in_graph(edge_index, num_src, num_dst, num_loops))
    return kept(edge_index, (num_src, num_dst, num_loops), make)


@torch.library.custom_op("mezzo::_structure", mutates_args=())
def _structure_in_graph(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int) -> Tensor:
    """The tensor of _structure(), as an operator of compiled functions."""
    return as_tensor(_structure(edge_index, num_src, num_dst, num_loops).topology)


@_structure_in_graph.register_fake
def _(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int) -> Tensor:
    # Own loops are removed, so their number depends on the data.
    edges = torch.library.get_ctx().new_dynamic_size() if num_loops else edge_index.shape[1]
    return edge_index.new_empty_strided((0, num_src, num_dst, edges), (0,) * 4, dtype=torch.uint8)


def _linear(module: nn.Module, x: Tensor) -> Tensor:
    """module(x), by Mezzo's product if the module is a linear layer or a plain row of modules."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        return module(x)
    if type(module) is nn.Sequential:
        return functools.reduce(lambda rows, part: _linear(part, rows), module, x)
    return linear(module, x) if type(module) in (nn.Linear, pyg_nn.Linear) else module(x)


class _Replacement:
    """A layer of PyG on Mezzo's operators."""

    def __prepare_scriptable__(self) -> nn.Module:
        """What torch.jit.script takes: a module of PyG's class with the same parameters."""
        module = copy.copy(self)
        module.__class__ = type(self).__bases__[-1]
        module._set_jittable_templates()
        return module

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Nothing: PyG calls it for a copy, and would make templates out of those of its class."""


class GCNConv(_Replacement, pyg_nn.GCNConv):
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if not _takes(self, edge_index, x) or (edge_weight is not None and edge_weight.dim() != 1):
            return super().forward(x, edge_index, edge_weight)
        first = self.in_channels > self.out_channels
        out = self._sum(_linear(self.lin, x) if first else x, edge_index, edge_weight)
        return add_parameter(out if first else _linear(self.lin, out), self.bias)

    def _sum(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        size, dtype = x.shape[0], scale_dtype(x)
        loops = size if self.normalize and self.add_self_loops else 0
        if self.normalize and (self.cached or edge_weight is not None):
            norm = self._cached_edge_index or gcn_norm(edge_index, edge_weight, size, self.improved,
                                                       self.add_self_loops, self.flow, dtype)
            edge_weight = norm[1]  # of the edges of _structure
            self._cached_edge_index = norm if self.cached else None
            if self.cached or torch.compiler.is_compiling():  # which must see equal counts
                edge_index, loops = norm[0], 0
        graph = _structure(edge_index, size, size, loops)
        if edge_weight is not None or not self.normalize:
            return ops.scaled_sum(graph, x, None if edge_weight is None else edge_weight.to(dtype))
        factors = graph.in_degrees().to(dtype).pow(-0.5)  # PyG's improved needs weights
        factors = factors.masked_fill(factors == float("inf"), 0)
        return ops.scaled_sum(graph, x, None, factors, factors)


class SAGEConv(_Replacement, pyg_nn.SAGEConv):
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        src, dst = pair_of(x)
        if not _takes(self, edge_index, src, src if dst is None else dst):
            return super().forward(x, edge_index, size)
        sent = _linear(self.lin, src).relu() if self.project else src
        graph = _graph_of(self, edge_index, src, dst, size)
        reduce, weight = self.aggr.replace("add", "sum"), self.lin_l.weight
        if reduce in ("sum", "mean") and weight.shape[0] < weight.shape[1]:
            sums = ops.gspmm(graph, "copy_lhs", reduce, ops.linear(sent, weight))
            out = add_parameter(sums, self.lin_l.bias)
        else:
            out = _linear(self.lin_l, ops.gspmm(graph, "copy_lhs", reduce, sent))
        if self.root_weight and dst is not None:
            out = out + _linear(self.lin_r, dst)
        return nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out


class GINConv(_Replacement, pyg_nn.GINConv):
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        src, dst = pair_of(x)
        if not _takes(self, edge_index, src, src if dst is None else dst):
            return super().forward(x, edge_index, size)
        graph = _graph_of(self, edge_index, src, dst, size)
        out = ops.gspmm(graph, "copy_lhs", "sum", src)
        return _linear(self.nn, out if dst is None else add_own_rows(out, dst, self.eps))


def _graph_of(module: nn.Module, edge_index: Tensor, src: Tensor, dst: Tensor | None,
              size: Any = None) -> Graph:
    """The structure between these rows, with the self loops that the module adds."""
    num_dst = (src if dst is None else dst).shape[0]
    if dst is None and size is not None and size[1] is not None:
        num_dst = size[1]
    loops = min(src.shape[0], num_dst) if getattr(module, "add_self_loops", False) else 0
    return _structure(edge_index, src.shape[0], num_dst, loops)


def _finish(module: nn.Module, out: Tensor, residual: Tensor | None) -> Tensor:
    """Heads side by side or their mean, then residual and bias. out: [num_dst, H, C]."""
    out = out.flatten(1) if module.concat else out.mean(dim=1)
    if residual is not None:
        out = out + _linear(module.res, residual).to(out.dtype)
    return add_parameter(out, module.bias)


class GATConv(_Replacement, pyg_nn.GATConv):
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None,
                return_attention_weights: bool | None = None) -> Any:
        src, dst = pair_of(x)
        if (not _takes(self, edge_index, src, dst) or edge_attr is not None or size is not None
                or return_attention_weights):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        graph = _graph_of(self, edge_index, src, dst)
        shared = self.lin is not None
        sent = _linear(self.lin if shared else self.lin_src, src)
        own = None if shared and dst is src else _linear(self.lin if shared else self.lin_dst, dst)
        rows = sent.view(-1, self.heads, self.out_channels)  # before scores: gradients add in place
        scores = attention_scores(sent, own, self.att_src, self.att_dst, dst.shape[0])
        out = ops.gat_attention(graph, rows, *scores, None, self.negative_slope,
                                self.dropout if self.training else 0.0)
        return _finish(self, out, None if self.res is None else dst)


class GATv2Conv(_Replacement, pyg_nn.GATv2Conv):
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None,
                return_attention_weights: bool | None = None) -> Any:
        src, dst = pair_of(x)
        if (not _takes(self, edge_index, src, dst) or edge_attr is not None
                or return_attention_weights):
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        graph = _graph_of(self, edge_index, src, dst)
        shape = (-1, self.heads, self.out_channels)
        sent = _linear(self.lin_l, src).view(shape)
        own = sent if self.share_weights and dst is src else _linear(self.lin_r, dst).view(shape)
        logits = ops.gatv2_scores(graph, sent, own, self.att, self.negative_slope)
        attention = dropped_softmax(graph, logits, self.dropout, self.training).unsqueeze(-1)
        out = ops.gspmm(graph, "mul", "sum", sent, attention)
        return _finish(self, out, None if self.res is None else dst)


_REPLACEMENTS = {pyg_nn.GCNConv: GCNConv, pyg_nn.SAGEConv: SAGEConv, pyg_nn.GATConv: GATConv,
                 pyg_nn.GATv2Conv: GATv2Conv, pyg_nn.GINConv: GINConv}
