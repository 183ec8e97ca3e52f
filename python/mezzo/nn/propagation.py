"""Layers that multiply rows by the normalised adjacency matrix, once or several times.
P = D^(-1/2) A D^(-1/2), with in-degrees of at least 1 on both sides; with edge weights A holds
them, and the degrees are their sums into a destination and out of a source."""
import math
from typing import Any, Callable

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check
from mezzo.graph import Graph
from mezzo.nn import support
from mezzo.nn.support import Activation, GraphModule, linear


class Propagation:
    """Multiplication by factor * P in one pass."""

    def __init__(self, layer: GraphModule, graph: Graph, x: Tensor,
                 edge_weight: Tensor | None = None, factor: float | Tensor = 1.0,
                 source_degree: str = "in") -> None:
        """x: rows of the dtype that it multiplies; edge_weight: positive [E], which synchronises;
        factor: a number, or without edge weights [N], which scales the rows of the result."""
        self.graph, self.dtype = graph, support.scale_dtype(x)
        self.weight = self.src_scale = self.dst_scale = None
        weight = layer._edge_factors(graph, edge_weight, torch.float64)
        if weight is None:
            self.src_scale = graph.degree_factors(source_degree, -0.5, self.dtype)
            dst_scale = graph.degree_factors("in", -0.5, self.dtype) * factor
            self.dst_scale = dst_scale.to(self.dtype)
        else:
            weight = support.normalised(type(layer).__name__, graph, weight, "both") * factor
            self.weight = weight.to(self.dtype)

    def __call__(self, x: Tensor, edge_drop: float = 0.0) -> Tensor:
        """edge_drop: drops each edge with this probability, divides the others by 1 minus it."""
        weight = self.weight
        if edge_drop > 0:
            if weight is None:
                weight = torch.ones(self.graph.num_edges(), device=x.device)
            # In float64: autocast would round what remains to 16 bits.
            weight = ops.dropout(weight.double(), edge_drop).to(self.dtype)
        return ops.scaled_sum(self.graph, x, weight, self.src_scale, self.dst_scale)


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


class SGConv(GraphModule):
    """Simplified graph convolution (Wu et al., ICML'19): fc(norm(P^k h)). Parameters: `fc.weight`
    [out, in] (Glorot uniform), `fc.bias` [out]. cached: keeps the rows of the first call."""

    def __init__(self, in_feats: int, out_feats: int, k: int = 1, cached: bool = False,
                 bias: bool = True, norm: Callable[[Tensor], Tensor] | None = None,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__(allow_zero_in_degree, in_feats=in_feats, out_feats=out_feats)
        self.fc = nn.Linear(in_feats, out_feats, bias=bias)
        self._k, self._cached, self._cached_h, self.norm = k, cached, None, norm
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(nn.init.xavier_uniform_, self.fc)

    def clear_cache(self) -> None:
        """Forgets the rows of the first call."""
        self._cached_h = None

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, in]; edge_weight: positive [E], which synchronises. Returns [N, out]."""
        graph, feat = self._square(graph, feat, self.fc.in_features)
        if self._cached_h is not None:
            return linear(self.fc, self._cached_h)
        step = Propagation(self, graph, feat, edge_weight)
        narrows = self.fc.in_features > self.fc.out_features
        first = narrows and not self._cached and self.norm is None
        rows = ops.linear(feat, self.fc.weight) if first else feat
        for _ in range(self._k):
            rows = step(rows)
        if first:
            return support.add_parameter(rows, self.fc.bias)
        rows = support.activate(self.norm, rows)
        self._cached_h = rows if self._cached else None
        return linear(self.fc, rows)


class TAGConv(GraphModule):
    """Topology adaptive graph convolution (Du et al., 2017): lin of [h, P h, ..., P^k h]."""

    def __init__(self, in_feats: int, out_feats: int, k: int = 2, bias: bool = True,
                 activation: Activation = None) -> None:
        super().__init__(in_feats=in_feats, out_feats=out_feats)
        self._in_feats, self._out_feats, self._k = in_feats, out_feats, k
        self._activation = activation
        self.lin = nn.Linear(in_feats * (k + 1), out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(support.normal, self.lin.weight)

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, in]; edge_weight: positive [E], which synchronises. Returns [N, out]."""
        graph, feat = self._square(graph, feat, self._in_feats)
        step = Propagation(self, graph, feat, edge_weight)
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


class APPNPConv(GraphModule):
    """Personalised PageRank (Gasteiger et al., ICLR'19): from z = h, k times z = (1 - alpha)
    D_in^(-1/2) A D_out^(-1/2) z + alpha h; edge_drop drops edges anew in each training step."""

    def __init__(self, k: int, alpha: float, edge_drop: float = 0.0) -> None:
        super().__init__()
        self._k, self._alpha, self.edge_drop = k, alpha, nn.Dropout(edge_drop)

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """feat: [N, ...]; edge_weight: positive [E], which synchronises. Returns feat's shape."""
        graph, feat = self._square(graph, feat)
        step = Propagation(self, graph, feat, edge_weight, 1 - self._alpha, source_degree="out")
        out, edge_drop = feat, self.edge_drop.p if self.training else 0.0
        for _ in range(self._k):
            out = step(out, edge_drop)
            feat = feat.to(out.dtype)  # the dtype of a 16-bit region, from step one on
            out = torch.add(out, feat, alpha=self._alpha)
        return out


class ChebConv(GraphModule):
    """Chebyshev spectral convolution (Defferrard et al., NeurIPS'16): linear of [T_0 h, ...,
    T_(k-1) h], T_0 h = h, T_1 h = L h, T_i h = 2 L T_(i-1) h - T_(i-2) h, with r = 2 / lambda_max
    and L = (r - 1) I - r P. Parameters: `linear.weight` [out, k in], `linear.bias` [out]."""

    def __init__(self, in_feats: int, out_feats: int, k: int,
                 activation: Activation = nn.functional.relu, bias: bool = True) -> None:
        super().__init__(in_feats=in_feats, out_feats=out_feats, k=k)
        self._in_feats, self._out_feats, self._k = in_feats, out_feats, k
        self.activation = activation
        self.linear = nn.Linear(k * in_feats, out_feats, bias)

    def forward(self, graph: Any, feat: Tensor,
                lambda_max: Tensor | list[float] | None = None) -> Tensor:
        """feat: [N, in]; lambda_max: the largest eigenvalue of the normalised Laplacian, one number
        or [N] with that of each node's graph; by default 2, its bound. Returns [N, out]."""
        graph, feat = self._square(graph, feat, self._in_feats)
        laplacian = self._laplacian(graph, feat, lambda_max)
        weight, bias = self.linear.weight, self.linear.bias
        if self._in_feats > self._out_feats:
            *products, out = _linear_by_blocks(feat, weight, self._k)
            after = None  # Clenshaw's recurrence, from the last product on
            for i in reversed(range(len(products))):
                total = products[i] + laplacian(out, 1 if i == 0 else 2)
                out, after = total if after is None else total - after, out
            out = support.add_parameter(out, bias)
        else:
            terms = [feat]
            for i in range(1, self._k):
                term = laplacian(terms[-1], min(i, 2))
                terms.append(term if i == 1 else term - terms[-2].to(term.dtype))
            out = _linear_of_terms(terms, weight, bias)
        return support.activate(self.activation, out)

    def _laplacian(self, graph: Graph, feat: Tensor, lambda_max: Any) -> Callable[..., Tensor]:
        """A function of x and a factor, 1 or 2: factor * L x."""
        if lambda_max is None:
            plain = [Propagation(self, graph, feat, factor=-factor) for factor in (1, 2)]
            return lambda x, factor: plain[factor - 1](x)
        lambda_max = torch.as_tensor(lambda_max, device=feat.device)
        nodes, count = graph.num_src_nodes(), lambda_max.numel()
        check(lambda_max.dim() <= 1 and count in (1, nodes),
              "ChebConv: expected lambda_max [], [1] or [{}], got {}", nodes, lambda_max)
        smallest = lambda_max.min().item()
        check(smallest > 0, "ChebConv: expected positive lambda_max, got {}", smallest)
        ratio = 2 / (lambda_max.squeeze() if count == 1 else lambda_max).detach().double()
        shift = (ratio - 1).reshape(-1, 1)
        steps = [Propagation(self, graph, feat, factor=-factor * ratio) for factor in (1, 2)]

        def laplacian(x: Tensor, factor: int) -> Tensor:
            total = steps[factor - 1](x)
            return torch.addcmul(total, x.to(total.dtype), shift.to(total.dtype), value=factor)

        return laplacian


class GCN2Conv(GraphModule):
    """GCNII (Chen et al., ICML'20): from p = (1 - alpha) P h and r = alpha feat_0: (1 - beta) (p +
    r) + beta (p weight1 + r weight2) + bias, with beta = log(lambda_ / layer + 1) and weight2 =
    weight1 if project_initial_features. Parameters: `weight1`, `weight2` [in, in], `bias` [in]."""

    def __init__(self, in_feats: int, layer: int, alpha: float = 0.1, lambda_: float = 1,
                 project_initial_features: bool = True, allow_zero_in_degree: bool = False,
                 bias: bool = True, activation: Activation = None) -> None:
        super().__init__(allow_zero_in_degree, in_feats=in_feats)
        check(layer >= 1 and lambda_ / layer > -1, "GCN2Conv: expected layer of at least 1 and "
              "lambda_ above its negative, got {} and {}", layer, lambda_)
        self._in_feats, self.alpha, self.beta = in_feats, alpha, math.log1p(lambda_ / layer)
        self._activation = activation
        shape = in_feats, in_feats
        self.weight1 = nn.Parameter(torch.empty(shape))
        self.weight2 = None if project_initial_features else nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(in_feats)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(nn.init.normal_, self.weight1, self.weight2, self.bias)

    def forward(self, graph: Any, feat: Tensor, feat_0: Tensor,
                edge_weight: Tensor | None = None) -> Tensor:
        """feat_0: the rows of the first layer. edge_weight: positive, which synchronises."""
        graph, feat = self._square(graph, feat, self._in_feats)
        support.check_rows("GCN2Conv", feat_0, graph.num_src_nodes(), self._in_feats)
        received = Propagation(self, graph, feat, edge_weight, 1 - self.alpha)(feat)
        first = feat_0.to(received.dtype)
        total = torch.add(received, first, alpha=self.alpha)
        own = self.weight1 * self.beta
        if self.weight2 is None:
            product = ops.linear(total, own.t(), self.bias)
        else:
            weight = torch.cat([self.weight2 * (self.alpha * self.beta), own])
            product = _linear_of_terms([first, received], weight.t(), self.bias)
        return support.activate(self._activation, torch.add(product, total, alpha=1 - self.beta))
