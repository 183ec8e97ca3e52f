"""What the layers share, and what `mezzo.pyg.accelerate` and `mezzo.dgl.accelerate` share."""
from __future__ import annotations

import functools
import logging
import math
from typing import Any, Callable, NamedTuple, Union

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check, check_all, check_tensors
from mezzo.graph import Graph, as_graph

Activation = Union[Callable[[Tensor], Tensor], None]
Features = Union[Tensor, "tuple[Tensor, Tensor]"]
normal = functools.partial(nn.init.xavier_normal_, gain=math.sqrt(2))  # for ReLU
uniform = functools.partial(nn.init.xavier_uniform_, gain=math.sqrt(2))
logger = logging.getLogger("mezzo")


class Rows(NamedTuple):
    """The rows of the sources, and those of the destinations: the first of them unless is_pair."""
    src: Tensor
    dst: Tensor
    is_pair: bool

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Rows:
        """function of the tensor, or of both tensors of a pair."""
        src = function(self.src)
        dst = function(self.dst) if self.is_pair else first_rows(src, self.dst.shape[0])
        return Rows(src, dst, self.is_pair)

    def dropped(self, dropout: nn.Dropout, training: bool) -> Rows:
        """With dropout of the tensor, or of both tensors of a pair."""
        return self.mapped(lambda x: ops.dropout(x, dropout.p, training))


def pair_of(feat: Features) -> tuple[Tensor, Tensor]:
    """feat, or the tensor twice."""
    pair = feat if isinstance(feat, (tuple, list)) else (feat, feat)
    check(len(pair) == 2, "expected a tensor or a pair of tensors, got {} tensors", len(pair))
    return pair


class GraphModule(nn.Module):
    """A layer that reads a graph and rows of its nodes. The sizes must be positive integers."""

    _allow_zero_in_degree = True

    def __init__(self, allow_zero_in_degree: bool = True, **sizes: Any) -> None:
        super().__init__()
        check_positive(type(self).__name__, **sizes)
        self._allow_zero_in_degree = allow_zero_in_degree

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Whether a node without in-edges is allowed; otherwise it is an error."""
        self._allow_zero_in_degree = set_value

    def _set_in_feats(self, in_feats: int | tuple[int, int]) -> None:
        """The widths of the rows of sources and destinations."""
        pair = in_feats if isinstance(in_feats, tuple) else (in_feats, in_feats)
        check_positive(type(self).__name__, in_feats=pair[0], dst_feats=pair[-1])
        self._in_src_feats, self._in_dst_feats = pair

    def _checked(self, graph: Any, feat: Features, src_feats: int | None = None,
                 dst_feats: int | None = None) -> tuple[Graph, Rows]:
        """The graph and the rows, [num_src, src_feats or any], or with [num_dst, dst_feats]."""
        (src, dst), is_pair = pair_of(feat), isinstance(feat, (tuple, list))
        graph, name = self._checked_sources(graph, src, src_feats), type(self).__name__
        num_src, num_dst = graph.num_src_nodes(), graph.num_dst_nodes()
        check_rows(name, dst, num_dst if is_pair else num_src, dst_feats or src_feats)
        check(src.dtype == dst.dtype, "{}: expected one dtype, got {} and {}", name, src, dst)
        check(is_pair or num_dst <= num_src, "{}: expected a pair of tensors, because the graph "
              "has {} destinations and only {} sources", name, num_dst, num_src)
        return graph, Rows(src, dst if is_pair else first_rows(src, num_dst), is_pair)

    def _checked_sources(self, graph: Any, feat: Tensor, width: int | None) -> Graph:
        """The graph, of which feat are the rows of the sources."""
        graph, name = as_graph(graph), type(self).__name__
        check_rows(name, feat, graph.num_src_nodes(), width)
        if not self._allow_zero_in_degree:
            graph.check_in_degrees(
                f"{name}: expected an in-edge of every destination, got nodes without in-edges; "
                "add self loops or set allow_zero_in_degree")
        return graph

    def _square(self, graph: Any, feat: Tensor, width: int | None = None) -> tuple[Graph, Tensor]:
        """The graph, of one set of nodes, and its rows [N, width], or [N, ...]."""
        check_tensors(type(self).__name__, feat=feat)
        graph, rows = self._checked(graph, feat, width)
        check(graph.num_src_nodes() == graph.num_dst_nodes(), "{}: expected a graph of one set of "
              "nodes, got {} sources and {} destinations", type(self).__name__,
              graph.num_src_nodes(), graph.num_dst_nodes())
        return graph, rows.src

    def _edge_factors(self, graph: Graph, edge_weight: Tensor | None,
                      dtype: torch.dtype) -> Tensor | None:
        """edge_weight, floating [E] or [E, 1], as [E] of dtype; None if it is None."""
        if edge_weight is None:
            return None
        name, count = type(self).__name__, graph.num_edges()
        check_tensors(name, edge_weight=edge_weight)
        check(tuple(edge_weight.shape) in ((count,), (count, 1))
              and edge_weight.is_floating_point(), "{}: expected floating edge_weight [{}] or "
              "[{}, 1], one number per edge, got {}", name, count, count, edge_weight)
        return edge_weight.reshape(count).to(dtype)


def check_positive(layer: str, **sizes: Any) -> None:
    """The sizes must be positive integers."""
    for name, size in sizes.items():
        if not hasattr(size, "__index__"):
            raise TypeError(f"{layer}: expected {name} to be an int, got {type(size).__name__}")
        check(size > 0, "{}: expected {} of at least 1, got {}", layer, name, size)


def check_rows(layer: str, feat: Any, num_rows: int, width: int | None) -> None:
    """feat must be floating [num_rows, width], or [num_rows, ...] if width is None."""
    check_tensors(layer, feat=feat)
    fits = feat.dim() >= 1 if width is None else feat.dim() == 2 and feat.shape[1] == width
    check(fits and feat.shape[0] == num_rows and feat.is_floating_point()
          and feat.layout == torch.strided, "{}: expected floating feat [{}, {}], one row per "
          "node, got {}", layer, num_rows, "..." if width is None else width, feat)


def scale_dtype(x: Tensor) -> torch.dtype:
    """The dtype of row and edge factors beside x."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def normalised(layer: str, graph: Graph, weight: Tensor, norm: str, eps: float = 0.0) -> Tensor:
    """weight, float64 [E], by its sums into the destinations ("right"), or by the root of these and
    of those out of the sources ("both"); a sum plus eps of 0 counts as 1."""
    result, sides = weight, [(graph, "v")]
    if norm == "both":
        sides.append((graph.reversed_topology(), "u"))
    check_all(weight > 0 if norm == "both" else weight >= 0, "{}: expected {} edge_weight, whose "
              "sums are the degrees", layer, "positive" if norm == "both" else "non-negative")
    for side, target in sides:
        sums = ops.gspmm(side, "copy_rhs", "sum", None, weight) + eps
        factors = sums.masked_fill(sums == 0, 1).pow(-1 / len(sides))
        result = ops.gsddmm(graph, "mul", result, factors, "e", target)
    return result


def linear(layer: Any, x: Tensor) -> Tensor:
    """layer(x) of a torch.nn.Linear by Mezzo's product."""
    return ops.linear(x, layer.weight, layer.bias)


def weighted(graph: Graph, reduce: str, x: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The reduction of edge_weight[e] * x[u], or of x[u] without weights."""
    op = "copy_lhs" if edge_weight is None else "mul"
    return ops.gspmm(graph, op, reduce, x, edge_weight)


def first_rows(x: Tensor, num_rows: int) -> Tensor:
    """The first rows; x itself if it has no more, because the gradient of a slice fills all."""
    return x if x.shape[0] == num_rows else x[:num_rows]


def add_parameter(x: Tensor, parameter: Tensor | None) -> Tensor:
    """x + parameter in the dtype of x: rounds the small parameter, not x to float32."""
    return x if parameter is None else x + parameter.to(x.dtype)


def activate(activation: Activation, x: Tensor) -> Tensor:
    """activation(x), or x if there is none."""
    return x if activation is None else activation(x)


def check_option(layer: str, name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """value must be one of these words."""
    check(value in allowed, "{}: expected {} to be one of {}, got {}", layer, name,
          ", ".join(allowed), repr(value))


def reset(init: Callable[[Tensor], Any], *parts: nn.Module | nn.Parameter | None) -> None:
    """Initialises parameters, and those of linear layers; vectors, which are biases, to 0."""
    for part in parts:
        if part is not None:
            for one in part.parameters() if isinstance(part, nn.Module) else (part,):
                nn.init.zeros_(one) if one.dim() == 1 else init(one)


def float32_lstm(lstm: nn.LSTM, rows: Any, state: Any = None) -> Any:
    """lstm(rows, state), in float32 inside autocast: not every CPU has a float16 LSTM."""
    dtype = lstm.weight_ih_l0.dtype
    with torch.autocast(lstm.weight_ih_l0.device.type, enabled=False):
        return lstm(rows.to(dtype), state)


class Report(NamedTuple):
    """The modules that run Mezzo's operators now, and the convolutions left, with the reasons."""
    replaced: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        count = len(self.replaced)
        head = f"mezzo: accelerated {count} of {count + len(self.left)} convolutions"
        left = (f"  left {name}: {why}" for name, why in self.left.items())
        return "\n".join([head, *(f"  {name}" for name in self.replaced), *left])


def swap(model: nn.Module, is_convolution: Callable[[nn.Module], bool],
         replacements: dict[type, type], reason_to_leave: Callable[[nn.Module], str | None],
         verbose: bool) -> Report:
    """Gives each convolution of the model that has a replacement the replacement's class. The
    object, its parameters, hooks and names stay: optimizers and state dicts go on working."""
    report = Report([], {})
    for name, module in model.named_modules():
        label = f"{name or 'model'} ({type(module).__name__})"
        if type(module) in replacements.values() or not is_convolution(module):
            continue
        reason = ("a subclass, which may compute something else"
                  if isinstance(module, tuple(replacements)) else "no counterpart")
        if type(module) in replacements:
            reason = reason_to_leave(module)
        if reason is None:
            module.__class__ = replacements[type(module)]
            report.replaced.append(label)
        else:
            report.left[label] = reason
    if verbose:
        print(report)
    return report
