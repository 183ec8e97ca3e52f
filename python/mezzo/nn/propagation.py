"""Layers that multiply rows by the normalised adjacency matrix, once or several times.

P = D^(-1/2) A D^(-1/2), with in-degrees of at least 1 on both sides; with edge weights A holds
them, and the degrees are their sums into a destination and out of a source.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check
from mezzo.graph import Graph, as_graph
from mezzo.nn import support
from mezzo.nn.support import Activation, GraphModule


class Propagation:
    """Multiplication by P in one pass."""

    def __init__(self, layer: str, graph: Graph, dtype: torch.dtype,
                 edge_weight: Tensor | None = None, source_degree: str = "in") -> None:
        """dtype: scale_dtype() of the rows. edge_weight: positive [E], which synchronises."""
        self.graph, self.dtype = graph, dtype
        self.weight = self.src_scale = self.dst_scale = None
        factors = support.edge_factors(layer, graph, edge_weight, torch.float64)
        if factors is None:
            self.dst_scale = graph.degree_factors("in", -0.5, dtype)
            self.src_scale = graph.degree_factors(source_degree, -0.5, dtype)
        else:
            support.check_weight_signs(layer, factors, positive=True)
            self.weight = support.normalised(graph, factors, "both").to(dtype)

    def _copy(self, **changes: Tensor) -> Propagation:
        other = object.__new__(Propagation)
        for name in ("graph", "dtype", "weight", "src_scale", "dst_scale"):
            setattr(other, name, changes.get(name, getattr(self, name)))
        return other

    def times(self, factor: float | Tensor) -> Propagation:
        """factor * P; a tensor, [] or without edge weights [N], scales the rows of the result."""
        name = "weight" if self.dst_scale is None else "dst_scale"
        return self._copy(**{name: (getattr(self, name) * factor).to(self.dtype)})

    def with_edge_dropout(self, probability: float, training: bool) -> Propagation:
        """Drops each edge with this probability and divides the others by 1 - probability."""
        if not training or probability == 0:
            return self
        whole = self.weight
        if whole is None:
            whole = torch.ones(self.graph.num_edges(), device=self.dst_scale.device)
        # In float64: autocast would round what remains to 16 bits.
        return self._copy(weight=ops.dropout(whole.double(), probability).to(self.dtype))

    def __call__(self, x: Tensor) -> Tensor:
        return ops.scaled_sum(self.graph, x, self.weight, self.src_scale, self.dst_scale)


def _linear_of_terms(terms: list[Tensor], weight: Tensor, bias: Tensor | None) -> Tensor:
    """The terms side by side, [N, in] each, times the weight [out, count in]."""
    # Inside a 16-bit region the input rows are still float32, the later terms 16-bit.
    terms[0] = terms[0].to(terms[-1].dtype)
    return ops.linear(torch.cat(terms, 1), weight, bias)


def _linear_by_blocks(x: Tensor, weight: Tensor, count: int) -> tuple[Tensor, ...]:
    """x times each of the `count` blocks of columns of the weight, in one product."""
    out = weight.shape[0]
    stacked = weight.reshape(out, count, -1).transpose(0, 1).flatten(0, 1)
    return ops.linear(x, stacked).split(out, 1)


class _PropagationModule(GraphModule):
    def _square(self, graph: Any, feat: Any, width: int) -> tuple[Graph, Tensor]:
        graph, rows = self._checked(graph, feat, width)
        support.check_one_node_set(type(self).__name__, graph)
        return graph, rows.src


class SGConv(_PropagationModule):
    """Simplified graph convolution (Wu et al., ICML'19): fc(norm(P^k h)). Parameters: `fc.weight`
    [out, in] (Glorot uniform), `fc.bias` [out] (zeros). cached: keeps the rows of the first call,
    as DGL does, until `clear_cache()`."""

    def __init__(self, in_feats: int, out_feats: int, k: int = 1, cached: bool = False,
                 bias: bool = True, norm: Callable[[Tensor], Tensor] | None = None,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__()
        self.fc = nn.Linear(in_feats, out_feats, bias=bias)
        self._cached, self._cached_h = cached, None
        self._k = k
        self.norm = norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.fc.weight)
        if self.fc.bias is not None:
            nn.init.zeros_(self.fc.bias)

    def clear_cache(self) -> None:
        """Forgets the rows of the first call."""
        self._cached_h = None

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, in]; edge_weight: positive [E] (reading the signs synchronises). Returns
        [N, out]."""
        graph, feat = self._square(graph, feat, self.fc.in_features)
        self._check_in_degrees(graph)
        if self._cached_h is not None:
            return ops.linear(self._cached_h, self.fc.weight, self.fc.bias)
        step = Propagation("SGConv", graph, support.scale_dtype(feat), edge_weight)
        first = (self.fc.in_features > self.fc.out_features and not self._cached
                 and self.norm is None)
        rows = ops.linear(feat, self.fc.weight) if first else feat
        for _ in range(self._k):
            rows = step(rows)
        if first:
            return support.add_parameter(rows, self.fc.bias)
        rows = support.activate(self.norm, rows)
        if self._cached:
            self._cached_h = rows
        return ops.linear(rows, self.fc.weight, self.fc.bias)


class TAGConv(_PropagationModule):
    """Topology adaptive graph convolution (Du et al., 2017): lin of [h, P h, ..., P^k h].
    Parameters: `lin.weight` [out, (k + 1) in] (Glorot normal for ReLU), `lin.bias` [out]."""

    def __init__(self, in_feats: int, out_feats: int, k: int = 2, bias: bool = True,
                 activation: Activation = None) -> None:
        super().__init__()
        self._in_feats, self._out_feats = in_feats, out_feats
        self._k = k
        self._activation = activation
        self.lin = nn.Linear(in_feats * (k + 1), out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(nn.init.xavier_normal_, self.lin.weight)

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, in]; edge_weight: positive [E] (reading the signs synchronises). Returns
        [N, out]."""
        graph, feat = self._square(graph, feat, self._in_feats)
        step = Propagation("TAGConv", graph, support.scale_dtype(feat), edge_weight)
        if self._in_feats > self._out_feats:
            *products, out = _linear_by_blocks(feat, self.lin.weight, self._k + 1)
            for product in reversed(products):
                out = product + step(out)
            out = support.add_parameter(out, self.lin.bias)
        else:
            hops = [feat]
            for _ in range(self._k):
                hops.append(step(hops[-1]))
            out = _linear_of_terms(hops, self.lin.weight, self.lin.bias)
        return support.activate(self._activation, out)


class APPNPConv(_PropagationModule):
    """Propagation by personalised PageRank (Gasteiger et al., ICLR'19): from z = h, k times z =
    (1 - alpha) D_in^(-1/2) A D_out^(-1/2) z + alpha h; edge_drop drops edges anew in each step
    while training. No parameters."""

    def __init__(self, k: int, alpha: float, edge_drop: float = 0.0) -> None:
        super().__init__()
        self._k, self._alpha = k, alpha
        self.edge_drop = nn.Dropout(edge_drop)

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, ...]; edge_weight: positive [E] (reading the signs synchronises). Returns the
        shape of feat."""
        graph = as_graph(graph)
        support.check_any_rows("APPNPConv", feat, graph.num_src_nodes())
        support.check_one_node_set("APPNPConv", graph)
        step = Propagation("APPNPConv", graph, support.scale_dtype(feat), edge_weight,
                           source_degree="out").times(1 - self._alpha)
        out = feat
        for _ in range(self._k):
            out = step.with_edge_dropout(self.edge_drop.p, self.training)(out)
            feat = feat.to(out.dtype)  # the dtype of a 16-bit region, from step one on
            out = torch.add(out, feat, alpha=self._alpha)
        return out


class ChebConv(_PropagationModule):
    """Chebyshev spectral convolution (Defferrard et al., NeurIPS'16): linear of [T_0 h, ...,
    T_(k-1) h], T_0 h = h, T_1 h = L h, T_i h = 2 L T_(i-1) h - T_(i-2) h, with r = 2 / lambda_max
    and L = (r - 1) I - r P. Parameters: `linear.weight` [out, k in], `linear.bias` [out]."""

    def __init__(self, in_feats: int, out_feats: int, k: int,
                 activation: Activation = nn.functional.relu, bias: bool = True) -> None:
        super().__init__()
        self._k = k
        self._in_feats, self._out_feats = in_feats, out_feats
        self.activation = activation
        self.linear = nn.Linear(k * in_feats, out_feats, bias)

    def forward(self, graph: Any, feat: Tensor,
                lambda_max: Tensor | list[float] | None = None) -> Tensor:
        """feat: [N, in]; lambda_max: the largest eigenvalue of the normalised Laplacian, one number
        (or [1]), or [N] with that of each node's graph; by default 2, its upper bound. Returns
        [N, out]."""
        graph, feat = self._square(graph, feat, self._in_feats)
        once, twice = self._laplacian(graph, feat, lambda_max)
        weight, bias = self.linear.weight, self.linear.bias
        if self._in_feats > self._out_feats:
            products = _linear_by_blocks(feat, weight, self._k)
            out = support.add_parameter(self._clenshaw(products, once, twice), bias)
        else:
            terms = [feat]
            if self._k > 1:
                terms.append(once(feat))
                terms[0] = feat.to(terms[1].dtype)
            for _ in range(2, self._k):
                terms.append(twice(terms[-1]) - terms[-2])
            out = _linear_of_terms(terms, weight, bias)
        return support.activate(self.activation, out)

    @staticmethod
    def _clenshaw(products: tuple[Tensor, ...], once: Activation, twice: Activation) -> Tensor:
        """The sum of T_i products[i]."""
        *earlier, out = products
        after = None
        for i in reversed(range(len(earlier))):
            total = earlier[i] + (once if i == 0 else twice)(out)
            out, after = total if after is None else total - after, out
        return out

    @staticmethod
    def _laplacian(graph: Graph, feat: Tensor, lambda_max: Any) -> tuple[Activation, Activation]:
        """Multiplication by L and by 2 L."""
        step = Propagation("ChebConv", graph, support.scale_dtype(feat))
        if lambda_max is None:
            return step.times(-1), step.times(-2)
        lambda_max = torch.as_tensor(lambda_max, device=feat.device)
        count = lambda_max.numel()
        check(lambda_max.dim() <= 1 and count in (1, graph.num_src_nodes()),
              "ChebConv: expected lambda_max [], [1] or [{}], one number per node, got {}",
              graph.num_src_nodes(), lambda_max)
        check(bool((lambda_max > 0).all()), "ChebConv: expected positive lambda_max, got {}",
              lambda_max.min().item())
        ratio = 2 / (lambda_max.squeeze() if count == 1 else lambda_max).detach().double()
        shift = ratio - 1 if ratio.dim() == 0 else (ratio - 1).unsqueeze(1)

        once, twice = step.times(-ratio), step.times(-2 * ratio)

        def shifted(total: Tensor, x: Tensor, factor: float) -> Tensor:
            return torch.addcmul(total, x.to(total.dtype), shift.to(total.dtype), value=factor)

        return lambda x: shifted(once(x), x, 1), lambda x: shifted(twice(x), x, 2)


class GCN2Conv(_PropagationModule):
    """GCNII (Chen et al., ICML'20): from p = (1 - alpha) P h and r = alpha feat_0: (1 - beta) (p +
    r) + beta (p weight1 + r weight2) + bias, with beta = log(lambda_ / layer + 1) and weight2 =
    weight1 unless project_initial_features is False. Parameters: `weight1`, `weight2` [in, in]
    (normal), `bias` [in] (zeros)."""

    def __init__(self, in_feats: int, layer: int, alpha: float = 0.1, lambda_: float = 1,
                 project_initial_features: bool = True, allow_zero_in_degree: bool = False,
                 bias: bool = True, activation: Activation = None) -> None:
        super().__init__()
        check(layer >= 1 and lambda_ / layer > -1, "GCN2Conv: expected layer of at least 1 and "
              "lambda_ above its negative, got {} and {}", layer, lambda_)
        self._in_feats = in_feats
        self.alpha, self.beta = alpha, math.log1p(lambda_ / layer)
        self._activation = activation
        self._allow_zero_in_degree = allow_zero_in_degree

        self.weight1 = nn.Parameter(torch.empty(in_feats, in_feats))
        self.register_parameter("weight2", None if project_initial_features else
                                nn.Parameter(torch.empty(in_feats, in_feats)))
        self.register_parameter("bias", nn.Parameter(torch.empty(in_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight1)
        if self.weight2 is not None:
            nn.init.normal_(self.weight2)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, graph: Any, feat: Tensor, feat_0: Tensor,
                edge_weight: Tensor | None = None) -> Tensor:
        """feat, feat_0: [N, in]; feat_0 is what the model's first layer got. edge_weight: positive
        [E] (reading the signs synchronises). Returns [N, in]."""
        graph, feat = self._square(graph, feat, self._in_feats)
        support.check_rows("GCN2Conv", feat_0, graph.num_src_nodes(), self._in_feats)
        self._check_in_degrees(graph)
        step = Propagation("GCN2Conv", graph, support.scale_dtype(feat), edge_weight)
        received = step.times(1 - self.alpha)(feat)
        first = feat_0.to(received.dtype)
        total = torch.add(received, first, alpha=self.alpha)
        own = self.weight1 * self.beta
        if self.weight2 is None:
            product = ops.linear(total, own.t(), self.bias)
        else:
            weight = torch.cat([self.weight2 * (self.alpha * self.beta), own])
            product = _linear_of_terms([first, received], weight.t(), self.bias)
        return support.activate(self._activation, torch.add(product, total, alpha=1 - self.beta))
