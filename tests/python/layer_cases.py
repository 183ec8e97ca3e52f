"""Layers of the Python package, calls of them on a small graph, and dense definitions in double.
The package must have been loaded before (load_torch.load_package)."""
import mezzo.nn as mnn
import torch
from mezzo.graph import Graph

F = torch.nn.functional
N, E, IN = 12, 72, 6


def edges():
    """60 random edges, and a self loop of each node."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(N, (2, E - N), generator=generator)
    return torch.cat([ids, torch.arange(N).expand(2, N)], 1)


SRC, DST = edges()
GRAPH = Graph.from_coo(SRC, DST, N)


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


WEIGHT = numbers(E, seed=3).abs() + 0.2
TYPES = torch.arange(E) % 3


def adjacency(weight=None):
    """A[v, u], the sum of the weights of the edges from u to v."""
    weight = torch.ones(E, dtype=torch.float64) if weight is None else weight
    return torch.zeros(N, N, dtype=torch.float64).index_put((DST, SRC), weight, accumulate=True)


def normalised(weight=None, by_in_degrees=True):
    """D^(-1/2) A D^(-1/2)."""
    matrix = adjacency(weight)
    inward = matrix.sum(1).rsqrt()
    outward = inward if by_in_degrees and weight is None else matrix.sum(0).rsqrt()
    return inward.unsqueeze(1) * matrix * outward


def largest(messages):
    """The maximum of the messages into each node."""
    index = DST.unsqueeze(1).expand_as(messages)
    zeros = torch.zeros(N, messages.shape[1], dtype=messages.dtype)
    return zeros.scatter_reduce(0, index, messages, "amax", include_self=False)


def attended(logits, rows, factor=1.0):
    """The sum of rows [N, H, F] by the softmax of the logits [E, H] over the edges into a node."""
    heads = []
    for h in range(logits.shape[1]):
        matrix = torch.full((N, N, E), -torch.inf, dtype=torch.float64)
        matrix[DST, SRC, torch.arange(E)] = logits[:, h]
        shares = matrix.flatten(1).softmax(1).view(N, N, E) * factor
        heads.append(shares.sum(2) @ rows[:, h])
    return torch.stack(heads, 1)


def gat(layer, x, edge_weight=1.0):
    z = layer.fc(x).view(N, -1, layer.attn_l.shape[2])
    sent, own = (z * layer.attn_l).sum(-1), (z * layer.attn_r).sum(-1)
    logits = F.leaky_relu(sent[SRC] + own[DST], 0.2)
    out = attended(logits, z, edge_weight)
    if layer.res_fc is not None:
        out = out + layer.res_fc(x).view(out.shape)
    return out if layer.bias is None else out + layer.bias.view(out.shape[1:])


def gatv2(layer, x):
    shape = (N, -1, layer.attn.shape[2])
    z, own = layer.fc_src(x).view(shape), layer.fc_dst(x).view(shape)
    out = attended((F.leaky_relu(z[SRC] + own[DST], 0.2) * layer.attn).sum(-1), z)
    return out if layer.res_fc is None else out + layer.res_fc(x).view(out.shape)


def dot_gat(layer, x):
    z = layer.fc(x).view(N, 2, -1)
    return attended((z[SRC] * z[DST]).sum(-1) / z.shape[2] ** 0.5, z)


def graph_conv(layer, x, norm, edge_weight=None):
    inward, outward = (degrees.clamp(min=1).double() for degrees in
                       (torch.bincount(DST, minlength=N), torch.bincount(SRC, minlength=N)))
    power = {"both": (0.5, 0.5), "right": (1, 0), "left": (0, 1), "none": (0, 0)}[norm]
    total = adjacency(edge_weight) @ (x * outward.pow(-power[1]).unsqueeze(1))
    return total * inward.pow(-power[0]).unsqueeze(1) @ layer.weight + layer.bias


def sage(layer, x, kind, edge_weight=None):
    degrees = torch.bincount(DST, minlength=N).unsqueeze(1)
    if kind == "lstm":
        messages = x[SRC] if edge_weight is None else x[SRC] * edge_weight.unsqueeze(1)
        last = [layer.lstm(messages[DST == v].unsqueeze(0))[0][0, -1] for v in range(N)]
        return layer.fc_neigh(torch.stack(last)) + layer.fc_self(x)
    if kind == "gcn":
        return layer.fc_neigh((adjacency(edge_weight) @ x + x) / (degrees + 1)) + layer.bias
    if kind == "pool":
        factor = 1 if edge_weight is None else edge_weight.unsqueeze(1)
        received = largest(layer.fc_pool(x).relu()[SRC] * factor)
    else:
        received = adjacency(edge_weight) @ x / degrees
    return layer.fc_neigh(received) + layer.fc_self(x)


def cheb(layer, x, lambda_max=2.0):
    identity = torch.eye(N, dtype=torch.float64)
    laplacian = (2 / lambda_max - 1) * identity - 2 / lambda_max * normalised()
    terms = [x, laplacian @ x]
    while len(terms) < layer._k:
        terms.append(2 * laplacian @ terms[-1] - terms[-2])
    return layer.linear(torch.cat(terms[:layer._k], 1)).relu()


def hops(x, count, weight=None):
    terms = [x]
    for _ in range(count):
        terms.append(normalised(weight) @ terms[-1])
    return terms


def appnp(layer, x, weight=None):
    matrix, h = normalised(weight, by_in_degrees=False), x
    for _ in range(4):
        h = 0.8 * matrix @ h + 0.2 * x
    return h


def gcn2(layer, x, weight=None):
    first, received = 0.1 * 2 * x, 0.9 * normalised(weight) @ x
    product = received @ layer.weight1 + first @ (layer.weight1 if layer.weight2 is None
                                                  else layer.weight2)
    return (1 - layer.beta) * (first + received) + layer.beta * product + layer.bias


def gated(layer, x, types):
    state = F.pad(x, (0, 2))
    for _ in range(3):
        total = sum(adjacency((types == i).double()) @ linear(state)
                    for i, linear in enumerate(layer.linears))
        state = layer.gru(total, state)
    return state


def gin(layer, x, reduce, edge_weight=None):
    received = {"sum": lambda: adjacency(edge_weight) @ x, "max": lambda: largest(x[SRC]),
                "mean": lambda: adjacency() @ x / adjacency().sum(1, keepdim=True)}[reduce]()
    return layer.apply_func((1 + layer.eps) * x + received)


def cases():
    """(name, layer, call, formula); the layer of a width below and above the input's."""
    w = WEIGHT
    for out in (3, 8):
        for norm in ("both", "right", "left", "none"):
            yield (f"GraphConv {norm}", mnn.GraphConv(IN, out, norm), lambda l, x: l(GRAPH, x),
                   lambda l, x, norm=norm: graph_conv(l, x, norm))
        yield ("GraphConv weighted", mnn.GraphConv(IN, out),
               lambda l, x: l(GRAPH, x, edge_weight=w),
               lambda l, x: graph_conv(l, x, "both", w))
        for kind in ("mean", "gcn", "pool", "lstm"):
            yield (f"SAGEConv {kind}", mnn.SAGEConv(IN, out, kind), lambda l, x: l(GRAPH, x),
                   lambda l, x, kind=kind: sage(l, x, kind))
            yield (f"SAGEConv {kind} weighted", mnn.SAGEConv(IN, out, kind),
                   lambda l, x: l(GRAPH, x, w.unsqueeze(1)),
                   lambda l, x, kind=kind: sage(l, x, kind, w))
        for options in ({}, {"residual": True}, {"bias": False, "residual": True}):
            yield (f"GATConv {options}", mnn.GATConv(IN, out, 2, **options),
                   lambda l, x: l(GRAPH, x), gat)
            yield (f"GATv2Conv {options}", mnn.GATv2Conv(IN, out, 2, **options),
                   lambda l, x: l(GRAPH, x), gatv2)
        yield ("GATv2Conv shared", mnn.GATv2Conv(IN, out, 2, share_weights=True),
               lambda l, x: l(GRAPH, x), gatv2)
        yield ("GATConv weighted", mnn.GATConv(IN, out, 2), lambda l, x: l(GRAPH, x, w),
               lambda l, x: gat(l, x, w))
        yield "DotGatConv", mnn.DotGatConv(IN, out, 2), lambda l, x: l(GRAPH, x), dot_gat
        yield ("EdgeConv", mnn.EdgeConv(IN, out), lambda l, x: l(GRAPH, x),
               lambda l, x: largest(l.theta(x[DST] - x[SRC]) + l.phi(x[DST])))
        yield ("EdgeConv batch_norm", mnn.EdgeConv(IN, out, True), lambda l, x: l(GRAPH, x),
               lambda l, x: largest(l.bn(l.theta(x[DST] - x[SRC]) + l.phi(x[DST]))))
        for k in (1, 4):
            yield (f"ChebConv {k}", mnn.ChebConv(IN, out, k), lambda l, x: l(GRAPH, x), cheb)
            yield (f"ChebConv {k} lambda_max", mnn.ChebConv(IN, out, k),
                   lambda l, x: l(GRAPH, x, [1.5]), lambda l, x: cheb(l, x, 1.5))
            yield (f"TAGConv {k}", mnn.TAGConv(IN, out, k), lambda l, x: l(GRAPH, x),
                   lambda l, x: l.lin(torch.cat(hops(x, l._k), 1)))
            yield (f"SGConv {k} weighted", mnn.SGConv(IN, out, k), lambda l, x: l(GRAPH, x, w),
                   lambda l, x: l.fc(hops(x, l._k, w)[-1]))
        yield ("SGConv norm", mnn.SGConv(IN, out, 2, norm=torch.tanh), lambda l, x: l(GRAPH, x),
               lambda l, x: l.fc(hops(x, 2)[-1].tanh()))
    for reduce in ("sum", "mean", "max"):
        for learn in (False, True):
            yield (f"GINConv {reduce}", mnn.GINConv(torch.nn.Linear(IN, 4), reduce, 0.3, learn),
                   lambda l, x: l(GRAPH, x), lambda l, x, reduce=reduce: gin(l, x, reduce))
    yield ("GINConv weighted", mnn.GINConv(torch.nn.Linear(IN, 4)), lambda l, x: l(GRAPH, x, w),
           lambda l, x: gin(l, x, "sum", w))
    for weight in (None, w):
        yield ("APPNPConv", mnn.APPNPConv(4, 0.2), lambda l, x, weight=weight: l(GRAPH, x, weight),
               lambda l, x, weight=weight: appnp(l, x, weight))
        for shares in (True, False):
            yield ("GCN2Conv", mnn.GCN2Conv(IN, 2, project_initial_features=shares),
                   lambda l, x, weight=weight: l(GRAPH, x, 2 * x, weight),
                   lambda l, x, weight=weight: gcn2(l, x, weight))
    yield ("GatedGraphConv", mnn.GatedGraphConv(IN, 8, 3, 1), lambda l, x: l(GRAPH, x),
           lambda l, x: gated(l, x, torch.zeros(E)))
    yield ("GatedGraphConv types", mnn.GatedGraphConv(IN, 8, 3, 3), lambda l, x: l(GRAPH, x, TYPES),
           lambda l, x: gated(l, x, TYPES))


def batch():
    """A graph of three, one of them without nodes."""
    graph = Graph.from_coo(SRC, DST, N)
    graph.set_batch_num_nodes(torch.tensor(SIZES))
    return graph


SIZES = [5, 0, 7]


def by_graph(make, x):
    """make(rows of a graph), side by side."""
    return torch.stack([make(rows) for rows in x.split(SIZES)])


def set2set(layer, x):
    query, state = torch.zeros(3, 2 * IN, dtype=torch.float64), None
    for _ in range(layer.n_iters):
        q, state = layer.lstm(query.unsqueeze(0), state)
        answers = [(rows * (rows @ one).softmax(0).unsqueeze(1)).sum(0)
                   for rows, one in zip(x.split(SIZES), q[0])]
        query = torch.cat([q[0], torch.stack(answers)], 1)
    return query


def readouts():
    graph, linear = batch(), torch.nn.Linear
    largest_row = lambda rows: rows.max(0).values if len(rows) else torch.zeros_like(rows.sum(0))
    for layer, make in ((mnn.SumPooling(), lambda rows: rows.sum(0)),
                        (mnn.AvgPooling(), lambda rows: rows.sum(0) / max(len(rows), 1)),
                        (mnn.MaxPooling(), largest_row)):
        yield (type(layer).__name__, layer, lambda l, x: l(graph, x),
               lambda l, x, make=make: by_graph(make, x))
    for feat_nn in (None, linear(IN, 4)):
        def attended_rows(l, x):
            return by_graph(lambda rows: (l.gate_nn(rows).softmax(0) * (
                rows if l.feat_nn is None else l.feat_nn(rows))).sum(0), x)
        yield ("GlobalAttentionPooling", mnn.GlobalAttentionPooling(linear(IN, 1), feat_nn),
               lambda l, x: l(graph, x), attended_rows)
    yield ("WeightAndSum", mnn.WeightAndSum(IN), lambda l, x: l(graph, x),
           lambda l, x: by_graph(lambda rows: (rows * l.atom_weighting(rows)).sum(0), x))
    for depth in (1, 2):
        yield "Set2Set", mnn.Set2Set(IN, 3, depth), lambda l, x: l(graph, x), set2set
    layers = lambda x: [x, 2 * x, x.tanh()]
    yield ("JumpingKnowledge cat", mnn.JumpingKnowledge(), lambda l, x: l(layers(x)),
           lambda l, x: torch.cat(layers(x), 1))
    yield ("JumpingKnowledge max", mnn.JumpingKnowledge("max"), lambda l, x: l(layers(x)),
           lambda l, x: torch.maximum(torch.maximum(x, 2 * x), x.tanh()))
    yield ("JumpingKnowledge lstm", mnn.JumpingKnowledge("lstm", IN, 3), lambda l, x: l(layers(x)),
           lambda l, x: (torch.stack(layers(x), 1) * l.att(l.lstm(torch.stack(layers(x), 1))[0])
                         .softmax(1)).sum(1))
