"""Code that the layers share: checks of inputs, edge weights, and float32 parameters with 16-bit
rows. Each check names the layer."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Union

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check, check_all
from mezzo.graph import Graph, as_graph

Activation = Union[Callable[[Tensor], Tensor], None]
Features = Union[Tensor, "tuple[Tensor, Tensor]"]


class Rows(NamedTuple):
    """The input of a layer: one tensor for all nodes, destinations first, or a pair."""

    src: Tensor
    dst: Tensor
    is_pair: bool

    @classmethod
    def of(cls, feat: Features) -> Rows:
        return cls(*feat, True) if isinstance(feat, (tuple, list)) else cls(feat, feat, False)

    def dropped(self, dropout: nn.Dropout, training: bool) -> Rows:
        """With dropout of the tensor, or of both tensors of a pair."""
        src = ops.dropout(self.src, dropout.p, training)
        dst = ops.dropout(self.dst, dropout.p, training) if self.is_pair else src
        return Rows(src, dst, self.is_pair)


class GraphModule(nn.Module):
    """A layer that can refuse nodes without in-edges."""

    _allow_zero_in_degree: bool

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Whether a node without in-edges is allowed; otherwise it is an error."""
        self._allow_zero_in_degree = set_value

    def _checked(self, graph: Any, feat: Any, src_feats: int,
                 dst_feats: int | None = None) -> tuple[Graph, Rows]:
        """The graph and the rows, [num_src, src_feats], or a pair with [num_dst, dst_feats]."""
        graph, rows = as_graph(graph), Rows.of(feat)
        name, dst_feats = type(self).__name__, src_feats if dst_feats is None else dst_feats
        check_rows(name, rows.src, graph.num_src_nodes(), src_feats)
        if rows.is_pair:
            check_rows(name, rows.dst, graph.num_dst_nodes(), dst_feats)
            check(rows.src.dtype == rows.dst.dtype, "{}: expected a pair of one dtype, got {} and "
                  "{}", name, rows.src, rows.dst)
        else:
            check_prefix(name, graph)
            check(src_feats == dst_feats, "{}: expected a pair of rows of widths {} and {}, got {}",
                  name, src_feats, dst_feats, rows.src)
        return graph, rows

    def _check_in_degrees(self, graph: Graph) -> None:
        """Every destination must have an in-edge, unless the layer allows otherwise."""
        if not self._allow_zero_in_degree:
            graph.check_in_degrees(
                f"{type(self).__name__}: expected an in-edge of every destination, got nodes "
                "without in-edges; add self loops or set allow_zero_in_degree")


def check_rows(layer: str, feat: Any, num_rows: int, width: int) -> None:
    """feat must be floating [num_rows, width]."""
    if not isinstance(feat, Tensor):
        raise TypeError(f"{layer}: expected feat to be a tensor, got {type(feat).__name__}")
    check(feat.is_floating_point() and feat.layout == torch.strided
          and feat.shape == (num_rows, width),
          "{}: expected floating feat [{}, {}], one row per node, got {}", layer, num_rows, width,
          feat)


def check_any_rows(layer: str, feat: Tensor, num_rows: int) -> None:
    """feat must be floating [num_rows, ...]."""
    check(feat.is_floating_point() and feat.dim() >= 1 and feat.shape[0] == num_rows,
          "{}: expected floating feat [{}, ...], one row per node, got {}", layer, num_rows, feat)


def check_prefix(layer: str, graph: Graph) -> None:
    """The destinations must be able to be the first sources."""
    check(graph.num_dst_nodes() <= graph.num_src_nodes(), "{}: expected a pair of tensors, because "
          "the graph has {} destinations and only {} sources", layer, graph.num_dst_nodes(),
          graph.num_src_nodes())


def check_one_node_set(layer: str, graph: Graph) -> None:
    """Sources and destinations must be one set of nodes."""
    check(graph.num_src_nodes() == graph.num_dst_nodes(), "{}: expected a graph of one set of "
          "nodes, got {} sources and {} destinations", layer, graph.num_src_nodes(),
          graph.num_dst_nodes())


def scale_dtype(x: Tensor) -> torch.dtype:
    """The dtype of row and edge factors beside x."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def edge_factors(layer: str, graph: Graph, edge_weight: Tensor | None,
                 dtype: torch.dtype) -> Tensor | None:
    """edge_weight, floating [E] or [E, 1], as [E] of dtype; None if it is None."""
    if edge_weight is None:
        return None
    shape, count = tuple(edge_weight.shape), graph.num_edges()
    check(shape in ((count,), (count, 1)) and edge_weight.is_floating_point(),
          "{}: expected floating edge_weight [{}] or [{}, 1], one number per edge, got {}", layer,
          count, count, edge_weight)
    return edge_weight.reshape(count).to(dtype)


def check_weight_signs(layer: str, weight: Tensor, positive: bool) -> None:
    """Weights whose sums are degrees must be positive, or not negative."""
    check_all(weight > 0 if positive else weight >= 0, "{}: expected {} edge_weight, whose sums are "
              "the degrees", layer, "positive" if positive else "non-negative")


def normalised(graph: Graph, weight: Tensor, norm: str, eps: float = 0.0) -> Tensor:
    """weight, float64 [E], by its sums into the destinations ("right"), out of the sources
    ("left") or the root of both ("both"); a sum plus eps of 0 counts as 1."""
    def inverse(side: Any) -> Tensor:
        sums = ops.gspmm(side, "copy_rhs", "sum", None, weight) + eps
        sums = sums.masked_fill(sums == 0, 1)
        return sums.rsqrt() if norm == "both" else sums.reciprocal()

    result = weight
    if norm in ("both", "left"):
        result = ops.gsddmm(graph, "mul", result, inverse(graph.reversed_topology()), "e", "u")
    if norm in ("both", "right"):
        result = ops.gsddmm(graph, "mul", result, inverse(graph), "e", "v")
    return result


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


def reset(init: Callable[..., Any], *parts: Any) -> None:
    """Initialises the weight of each linear layer, or the parameter, for ReLU, and biases to 0."""
    for part in parts:
        if isinstance(part, (nn.Linear, nn.Parameter)):
            init(getattr(part, "weight", part), gain=nn.init.calculate_gain("relu"))
        if getattr(part, "bias", None) is not None:
            nn.init.zeros_(part.bias)
