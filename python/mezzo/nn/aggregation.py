"""Layers that reduce the rows of the in-neighbours and transform the result."""
from typing import Any, Callable

import torch
from torch import Tensor, nn

from mezzo import ops
from mezzo.errors import check, check_tensors
from mezzo.graph import Graph, as_graph, kept, once
from mezzo.nn import support
from mezzo.nn.support import Activation, Features, GraphModule, Rows, linear, weighted


class EdgeWeightNorm(GraphModule):
    """Edge weights divided by their sums at the ends (u, v) of the edges: "both" by sqrt(out(u)
    in(v)), "right" by in(v), "none" by 1. No parameters."""

    def __init__(self, norm: str = "both", eps: float = 0.0) -> None:
        super().__init__()
        support.check_option("EdgeWeightNorm", "norm", norm, ("both", "right", "none"))
        self._norm, self._eps = norm, eps

    def forward(self, graph: Any, edge_weight: Tensor) -> Tensor:
        """edge_weight: [E] or [E, 1], positive for "both", which synchronises. Returns [E]."""
        graph = as_graph(graph)
        check_tensors("EdgeWeightNorm", edge_weight=edge_weight)
        weight = self._edge_factors(graph, edge_weight, torch.float64)
        if self._norm != "none":
            weight = support.normalised("EdgeWeightNorm", graph, weight, self._norm, self._eps)
        return weight.to(edge_weight.dtype)


class GraphConv(GraphModule):
    """Graph convolution (Kipf & Welling, ICLR'17). Parameters: `weight` [in, out], `bias` [out].
    norm "both" divides by sqrt(d_out(u) d_in(v)), "right" by d_in(v), "left" by d_out(u)."""

    def __init__(self, in_feats: int, out_feats: int, norm: str = "both", weight: bool = True,
                 bias: bool = True, activation: Activation = None,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__(allow_zero_in_degree, in_feats=in_feats, out_feats=out_feats)
        support.check_option("GraphConv", "norm", norm, ("none", "both", "right", "left"))
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self._activation = activation
        self.weight = nn.Parameter(torch.empty(in_feats, out_feats)) if weight else None
        self.bias = nn.Parameter(torch.empty(out_feats)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        support.reset(nn.init.xavier_uniform_, self.weight, self.bias)

    def forward(self, graph: Any, feat: Features, weight: Tensor | None = None,
                edge_weight: Tensor | None = None) -> Tensor:
        """weight: [in, out], if the layer has none. Of a pair only the sources are read."""
        feat, _ = support.pair_of(feat)
        graph = self._checked_sources(graph, feat, self._in_feats)
        factors = self._edge_factors(graph, edge_weight, support.scale_dtype(feat))
        if weight is not None:
            check_tensors("GraphConv", weight=weight)
            check(self.weight is None, "GraphConv: expected no weight, because the layer has one")
            sizes = [self._in_feats, self._out_feats]
            check([*weight.shape] == sizes, "GraphConv: expected weight {}, got {}", sizes, weight)
        weight = self.weight if weight is None else weight
        if weight is not None and self._in_feats <= self._out_feats:
            out = ops.linear(self._sum(graph, feat, factors), weight.t(), self.bias)
        else:
            sent = feat if weight is None else ops.linear(feat, weight.t())
            out = support.add_parameter(self._sum(graph, sent, factors), self.bias)
        return support.activate(self._activation, out)

    def _sum(self, graph: Graph, x: Tensor, edge_weight: Tensor | None) -> Tensor:
        norm, dtype = self._norm, support.scale_dtype(x)
        power = -0.5 if norm == "both" else -1.0
        src = graph.degree_factors("out", power, dtype) if norm in ("both", "left") else None
        dst = graph.degree_factors("in", power, dtype) if norm in ("both", "right") else None
        return ops.scaled_sum(graph, x, edge_weight, src, dst)


class SAGEConv(GraphModule):
    """GraphSAGE (Hamilton et al., NeurIPS'17): fc_self(h_v) + fc_neigh(aggregate of h_u). The
    aggregate: "mean"; "pool", the maximum of relu(fc_pool(h_u)); "gcn", the mean of neighbours and
    node, without fc_self; "lstm", the last state of an LSTM that reads them in the order of the
    edges, in float32 inside autocast, and stores [E, in]."""

    def __init__(self, in_feats: int | tuple[int, int], out_feats: int, aggregator_type: str,
                 feat_drop: float = 0.0, bias: bool = True, norm: Activation = None,
                 activation: Activation = None) -> None:
        super().__init__(out_feats=out_feats)
        kinds = ("mean", "gcn", "pool", "lstm")
        support.check_option("SAGEConv", "aggregator_type", aggregator_type, kinds)
        self._set_in_feats(in_feats)
        self._out_feats, self._aggre_type = out_feats, aggregator_type
        self.feat_drop, self.norm, self.activation = nn.Dropout(feat_drop), norm, activation
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(self._in_src_feats, self._in_src_feats)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(self._in_src_feats, self._in_src_feats, batch_first=True)
        self.fc_neigh = nn.Linear(self._in_src_feats, out_feats, bias=False)
        if aggregator_type == "gcn":
            self.bias = nn.Parameter(torch.zeros(out_feats)) if bias else None
        else:
            self.fc_self = nn.Linear(self._in_dst_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in self.children():
            if isinstance(part, nn.Linear):
                support.reset(support.uniform, part.weight)
        if self._aggre_type == "lstm":
            self.lstm.reset_parameters()

    def forward(self, graph: Any, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        """edge_weight multiplies the messages. Returns [num_dst, out]."""
        graph, rows = self._checked(graph, feat, self._in_src_feats, self._in_dst_feats)
        weight = self._edge_factors(graph, edge_weight, support.scale_dtype(rows.src))
        rows = rows.dropped(self.feat_drop, self.training)
        out = self._neighbours(graph, rows, weight)
        if self._aggre_type == "gcn":
            out = support.add_parameter(out, self.bias)
        else:
            out = out + linear(self.fc_self, rows.dst)
        return support.activate(self.norm, support.activate(self.activation, out))

    def _neighbours(self, graph: Graph, rows: Rows, edge_weight: Tensor | None) -> Tensor:
        fc, kind = self.fc_neigh, self._aggre_type
        if kind == "lstm":
            return linear(fc, self._last_states(graph, rows.src, edge_weight))
        if kind == "pool":
            sent = torch.relu(linear(self.fc_pool, rows.src))
            return linear(fc, weighted(graph, "max", sent, edge_weight))
        first = self._in_src_feats > self._out_feats
        if kind == "gcn":
            sent = rows.mapped(lambda x: linear(fc, x)) if first else rows
            out = _mean_with_own_row(graph, sent, edge_weight)
        else:
            out = weighted(graph, "mean", linear(fc, rows.src) if first else rows.src, edge_weight)
        return out if first else linear(fc, out)

    def _last_states(self, graph: Graph, x: Tensor, edge_weight: Tensor | None) -> Tensor:
        """[num_dst, in]: of the LSTM that reads the messages into each destination, 0 without."""
        edges, reading, nodes = _by_degree(graph)
        op, weight = ("copy_lhs", None) if edge_weight is None else ("mul", edge_weight[edges])
        messages = ops.gsddmm(reading, op, x, weight, "u", "e")
        parts = messages.split([degree * len(group) for degree, group in enumerate(nodes)])
        states = [messages.new_zeros(len(nodes[0]), self._in_src_feats)]
        for degree, part in enumerate(parts[1:], 1):
            if part.numel() > 0:
                rows = part.view(-1, degree, self._in_src_feats)
                last = support.float32_lstm(self.lstm, rows)[1][0].squeeze(0)
                states.append(last.to(messages.dtype))
        return torch.cat(states)[torch.cat(nodes).argsort()]


def _mean_with_own_row(graph: Graph, x: Rows, edge_weight: Tensor | None) -> Tensor:
    """(sum of w_e x_u + x_v) / (in-degree + 1). Both parts are divided in the accumulator."""
    share = (graph.in_degrees() + 1).to(support.scale_dtype(x.src)).reciprocal()
    return (ops.scaled_sum(graph, x.src, edge_weight, None, share)
            + ops.scaled_sum(graph.own_rows(), x.dst, None, None, share))


@once
def _by_degree(graph: Graph) -> tuple[Tensor, Graph, tuple[Tensor, ...]]:
    """The ids of the edges by in-degree, destination and id, their graph, and the destinations of
    in-degree 0, 1, ..."""
    (src, dst), degrees = graph.edges(), graph.in_degrees()
    nodes = degrees.argsort(stable=True)
    edges = nodes.argsort()[dst].argsort(stable=True)
    reading = Graph.from_coo(src[edges], dst[edges], graph.num_src_nodes(), graph.num_dst_nodes())
    return edges, reading, nodes.split(degrees.bincount(minlength=1).tolist())


class GINConv(GraphModule):
    """Graph isomorphism network (Xu et al., ICLR'19): apply_func((1 + eps) h_v + aggregate of h_u),
    a "sum", "max" or "mean". `eps` [1] is a parameter if learn_eps, otherwise a buffer."""

    def __init__(self, apply_func: Callable[[Tensor], Tensor] | None = None,
                 aggregator_type: str = "sum", init_eps: float = 0, learn_eps: bool = False,
                 activation: Activation = None) -> None:
        super().__init__()
        support.check_option("GINConv", "aggregator_type", aggregator_type, ("sum", "max", "mean"))
        self._aggregator_type = aggregator_type
        self.apply_func, self.activation = apply_func, activation
        eps = torch.tensor([init_eps], dtype=torch.float32)
        self.eps = nn.Parameter(eps) if learn_eps else nn.Buffer(eps)

    def forward(self, graph: Any, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        """edge_weight multiplies the messages. Returns apply_func of [num_dst, ...]."""
        graph, rows = self._checked(graph, feat)
        weight = self._edge_factors(graph, edge_weight, support.scale_dtype(rows.src))
        received = weighted(graph, self._aggregator_type, rows.src, weight)
        out = add_own_rows(received, rows.dst, self.eps)
        return support.activate(self.activation, support.activate(self.apply_func, out))


def add_own_rows(received: Tensor, own: Tensor, eps: Tensor) -> Tensor:
    """received + (1 + eps) own, in the dtype of `received`, which it may overwrite."""
    own, scale = own.to(received.dtype), support.scale_dtype(received)
    factor = 1 + eps.squeeze(0).to(scale)
    if received.dtype == scale:  # one pass, and no new rows
        return received.addcmul_(own, factor)
    # A product with a zero-dimensional tensor does not round it to the dtype of the rows.
    # The gradient of eps is a sum over all rows. It overflows 16 bits, so the rows are float32.
    scaled = (own.to(scale) * factor).to(own.dtype) if eps.requires_grad else own * factor
    return scaled + received


class EdgeConv(GraphModule):
    """Edge convolution (Wang et al., TOG'19): the maximum over the in-neighbours u of v of
    theta(h_v - h_u) + phi(h_v); with batch_norm of `bn` of these, which are then stored."""

    def __init__(self, in_feat: int, out_feat: int, batch_norm: bool = False,
                 allow_zero_in_degree: bool = False) -> None:
        super().__init__(allow_zero_in_degree, in_feat=in_feat, out_feat=out_feat)
        self.batch_norm = batch_norm
        self.theta, self.phi = nn.Linear(in_feat, out_feat), nn.Linear(in_feat, out_feat)
        if batch_norm:
            self.bn = nn.BatchNorm1d(out_feat)

    def forward(self, g: Any, feat: Features) -> Tensor:
        """feat: [num_src, in], or a pair with [num_dst, in]. Returns [num_dst, out]."""
        graph, rows = self._checked(g, feat, self.theta.in_features)
        device, result = rows.src.device.type, ops._dtype_of_region(rows.src)
        # theta(h_v - h_u) + phi(h_v) = (theta + phi)(h_v) - theta(h_u), the bias of theta with v's
        # part. The halves may be large beside their difference: 16 bits would lose it.
        with torch.autocast(device, enabled=False):
            dtype, theta, phi = support.scale_dtype(rows.src), self.theta, self.phi
            weight = theta.weight.to(dtype)
            sent = ops.linear(rows.src.to(dtype), weight)
            bias = theta.bias.to(dtype) + phi.bias
            own = ops.linear(rows.dst.to(dtype), weight + phi.weight, bias)
            if not self.batch_norm:
                return ops.gspmm(graph, "sub", "max", own, sent, "v", "u").to(result)
            messages = ops.gsddmm(graph, "sub", own, sent, "v", "u").to(result)
        return ops.gspmm(graph, "copy_rhs", "max", None, self.bn(messages))


class GatedGraphConv(GraphModule):
    """Gated graph convolution (Li et al., ICLR'16): from the input padded with zeros, n_steps times
    `a_v` = sum over the edges e = (u, v) of `linears[type of e](h_u)`, `h_v = gru(a_v, h_v)`."""

    def __init__(self, in_feats: int, out_feats: int, n_steps: int, n_etypes: int,
                 bias: bool = True) -> None:
        super().__init__(in_feats=in_feats, n_etypes=n_etypes)
        check(in_feats <= out_feats,
              "GatedGraphConv: expected out_feats of at least {}, got {}", in_feats, out_feats)
        self._in_feats, self._out_feats = in_feats, out_feats
        self._n_steps, self._n_etypes = n_steps, n_etypes
        self.linears = nn.ModuleList(nn.Linear(out_feats, out_feats) for _ in range(n_etypes))
        self.gru = nn.GRUCell(out_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.gru.reset_parameters()
        support.reset(support.normal, *self.linears)

    def forward(self, graph: Any, feat: Tensor, etypes: Tensor | None = None) -> Tensor:
        """etypes: integer [E] below n_etypes, which synchronises, unless that is 1."""
        graph, feat = self._square(graph, feat, self._in_feats)
        typed = self._typed(graph, etypes)
        weight, bias = (torch.cat([getattr(layer, name) for layer in self.linears])
                        for name in ("weight", "bias"))
        state = nn.functional.pad(feat, (0, self._out_feats - self._in_feats))
        for _ in range(self._n_steps):
            sent = ops.linear(state, weight, bias).view(-1, self._out_feats)
            received = ops.gspmm(typed, "copy_lhs", "sum", sent)
            state = self.gru(received, state.to(received.dtype))
        return state

    def _typed(self, graph: Graph, etypes: Tensor | None) -> Graph:
        """The same edges from row u * n_etypes + type, which its linear layer made of h_u."""
        if self._n_etypes == 1:
            return graph
        check_tensors("GatedGraphConv", etypes=etypes)
        check(etypes.shape == (graph.num_edges(),) and not etypes.is_floating_point()
              and not bool(((etypes < 0) | (etypes >= self._n_etypes)).any()),
              "GatedGraphConv: expected integer etypes [{}] in [0, {}), got {}",
              graph.num_edges(), self._n_etypes, etypes)

        def make() -> Graph:
            (src, dst), nodes = graph.edges(), graph.num_src_nodes()
            return Graph.from_coo(src * self._n_etypes + etypes, dst, nodes * self._n_etypes, nodes)

        return kept(etypes, (self._n_etypes, graph.topology), make)
