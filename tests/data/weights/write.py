"""Writes the files of this folder, which trained_weights_test reads: layers and models of DGL 2.1
and PyG 2.8, trained for a few steps, and what they compute. Needs torch, dgl, torch_geometric and
safetensors. The states are float32, the results float64."""
import pathlib

import dgl
import dgl.nn.pytorch as dgl_nn
import safetensors.torch
import torch
import torch_geometric.nn as pyg_nn
from torch import nn

FOLDER = pathlib.Path(__file__).parent
# Two graphs without loops, of 5 and 3 nodes, both directions of each edge.
PAIRS = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (1, 4), (5, 6), (6, 7)]
SRC, DST = (torch.tensor(ends) for ends in zip(*PAIRS, *(pair[::-1] for pair in PAIRS)))
EDGES, GRAPH_OF = torch.stack([SRC, DST]), torch.tensor([0] * 5 + [1] * 3)
GRAPH = dgl.graph((SRC, DST))
GRAPH.set_batch_num_nodes(torch.tensor([5, 3]))
GRAPH.set_batch_num_edges(torch.tensor([12, 4]))

torch.manual_seed(7)
X, Y, E = torch.randn(8, 5), torch.randn(8, 4), torch.randn(len(SRC), 4)  # Y: of destinations


def mlp(*widths):
    layers = []
    for width, after in zip(widths, widths[1:]):
        layers += [nn.Linear(width, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rows(call):
    """A call with the graph and the rows of nodes."""
    return call, (X,)


def with_edges(call):
    return call, (X, E)


def pairs(call):
    return call, (X, Y)


def dgl_layers():
    on_rows = rows(lambda m, x: m(GRAPH, x))
    on_edges = with_edges(lambda m, x, e: m(GRAPH, x, e))
    on_pairs = pairs(lambda m, x, y: m(GRAPH, (x, y)))
    yield "graph_conv", dgl_nn.GraphConv(5, 3), *on_rows
    for aggregator in ("mean", "gcn", "pool", "lstm"):
        yield f"sage_{aggregator}", dgl_nn.SAGEConv(5, 3, aggregator), *on_rows
    yield "sage_pair", dgl_nn.SAGEConv((5, 4), 3, "mean"), *on_pairs
    yield "gat", dgl_nn.GATConv(5, 3, 2), *on_rows
    yield "gat_residual", dgl_nn.GATConv(5, 3, 2, residual=True), *on_rows
    yield "gat_pair", dgl_nn.GATConv((5, 4), 3, 2), *on_pairs
    yield "gatv2", dgl_nn.GATv2Conv(5, 3, 2, residual=True), *on_rows
    yield "gatv2_shared", dgl_nn.GATv2Conv(5, 3, 2, share_weights=True), *on_rows
    yield "dot_gat", dgl_nn.DotGatConv(5, 3, 2), *on_rows
    yield "gin", dgl_nn.GINConv(mlp(5, 6, 3), "sum", 0.25, True), *on_rows
    yield "gine", dgl_nn.GINEConv(mlp(4, 6, 3), 0.25, True), *with_edges(
        lambda m, x, e: m(GRAPH, x[:, :4], e))
    yield "sg", dgl_nn.SGConv(5, 3, k=2), *on_rows
    yield "tag", dgl_nn.TAGConv(5, 3, k=2), *on_rows
    yield "cheb", dgl_nn.ChebConv(5, 3, k=3), *rows(
        lambda m, x: m(GRAPH, x, torch.tensor([2, 2])))
    yield "appnp", dgl_nn.APPNPConv(3, 0.2), *on_rows
    yield "gcn2", dgl_nn.GCN2Conv(5, 2, project_initial_features=False), *rows(
        lambda m, x: m(GRAPH, x, x.flip(0)))
    yield "edge", dgl_nn.EdgeConv(5, 3), *on_rows
    yield "edge_norm", dgl_nn.EdgeConv(5, 3, batch_norm=True), *on_rows
    yield "gated_graph", dgl_nn.GatedGraphConv(5, 6, 2, 2), *rows(
        lambda m, x: m(GRAPH, x, torch.arange(len(SRC)) % 2))
    yield "egat", dgl_nn.EGATConv(5, 4, 3, 2, 2), *on_edges
    yield "edge_gat", dgl_nn.EdgeGATConv(5, 4, 3, 2), *on_edges
    yield "nn_conv", dgl_nn.NNConv(5, 3, mlp(4, 6, 15), "mean", residual=True), *on_edges
    yield "cf", dgl_nn.CFConv(5, 4, 6, 3), *on_edges
    yield "gated_gcn", dgl_nn.GatedGCNConv(5, 4, 3), *on_edges
    yield "pna", dgl_nn.PNAConv(4, 6, ["mean", "max", "std"], ["identity", "amplification"], 1.0,
                                num_towers=2, edge_feat_size=4), *with_edges(
        lambda m, x, e: m(GRAPH, x[:, :4], e))
    yield "jumping_knowledge", dgl_nn.JumpingKnowledge("lstm", 5, 3), *rows(
        lambda m, x: m([x, x.flip(0), x.flip(1)]))
    yield "global_attention", dgl_nn.GlobalAttentionPooling(nn.Linear(5, 1), mlp(5, 3)), *on_rows
    yield "weight_and_sum", dgl_nn.WeightAndSum(5), *on_rows
    yield "set2set", dgl_nn.Set2Set(5, 2, 1), *on_rows
    yield "script", DglScript(), *on_rows


class DglScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([dgl_nn.SAGEConv(5, 6, "mean"), dgl_nn.SAGEConv(6, 3, "mean")])

    def forward(self, graph, x):
        return self.layers[1](graph, self.layers[0](graph, x).relu())


def pyg_layers():
    on_rows = rows(lambda m, x: m(x, EDGES))
    on_pairs = pairs(lambda m, x, y: m((x, y), EDGES))
    in_graphs = rows(lambda m, x: m(x, GRAPH_OF))
    alone = rows(lambda m, x: m(x))
    yield "gcn", pyg_nn.GCNConv(5, 3), *on_rows
    yield "sage", pyg_nn.SAGEConv(5, 3), *on_rows
    yield "sage_pair", pyg_nn.SAGEConv((5, 4), 3), *on_pairs
    yield "sage_pool", pyg_nn.SAGEConv(5, 3, aggr="max", project=True), *on_rows
    yield "gat", pyg_nn.GATConv(5, 3, 2, residual=True), *on_rows
    yield "gat_mean", pyg_nn.GATConv(5, 3, 2, concat=False), *on_rows
    yield "gat_pair", pyg_nn.GATConv((5, 4), 3, 2, add_self_loops=False), *on_pairs
    yield "gatv2", pyg_nn.GATv2Conv(5, 3, 2), *on_rows
    yield "gatv2_mean", pyg_nn.GATv2Conv(5, 3, 2, concat=False, residual=True), *on_rows
    yield "gatv2_shared", pyg_nn.GATv2Conv(5, 3, 2, share_weights=True, bias=False), *on_rows
    yield "gin", pyg_nn.GINConv(mlp(5, 6, 3), eps=0.25, train_eps=True), *on_rows
    yield "gine", pyg_nn.GINEConv(mlp(4, 6, 3), eps=0.25, train_eps=True), *with_edges(
        lambda m, x, e: m(x[:, :4], EDGES, e))
    yield "sg", pyg_nn.SGConv(5, 3, K=2), *on_rows
    yield "tag", pyg_nn.TAGConv(5, 3, K=2), *on_rows
    yield "cheb", pyg_nn.ChebConv(5, 3, K=3), *on_rows
    yield "appnp", pyg_nn.APPNP(3, 0.2), *on_rows
    for name, shared in ("gcn2", False), ("gcn2_shared", True):
        yield name, pyg_nn.GCN2Conv(5, 0.1, 0.5, 2, shared_weights=shared), *rows(
            lambda m, x: m(x, x.flip(0), EDGES))
    yield "edge", pyg_nn.EdgeConv(nn.Linear(10, 3)), *on_rows
    yield "edge_sequential", pyg_nn.EdgeConv(mlp(10, 3)), *on_rows
    yield "gated_graph", pyg_nn.GatedGraphConv(6, 1), *on_rows
    yield "nn_conv", pyg_nn.NNConv(5, 3, mlp(4, 6, 15)), *with_edges(
        lambda m, x, e: m(x, EDGES, e))
    yield "jumping_knowledge", pyg_nn.JumpingKnowledge("lstm", 5, 3), *rows(
        lambda m, x: m([x, x.flip(0), x.flip(1)]))
    yield "attention", pyg_nn.AttentionalAggregation(nn.Linear(5, 1), mlp(5, 3)), *in_graphs
    yield "set2set", pyg_nn.Set2Set(5, 2), *in_graphs
    yield "top_k", pyg_nn.TopKPooling(5), *rows(lambda m, x: m(x, EDGES, batch=GRAPH_OF)[0])
    yield "sag", pyg_nn.SAGPooling(5), *rows(lambda m, x: m(x, EDGES, batch=GRAPH_OF)[0])
    yield "graph_norm", pyg_nn.GraphNorm(5), *in_graphs
    yield "instance_norm", pyg_nn.InstanceNorm(5, affine=True, track_running_stats=True), *in_graphs
    yield "batch_norm", pyg_nn.BatchNorm(5), *alone
    yield "mlp", pyg_nn.MLP([5, 6, 3]), *alone
    yield "gcn_model", pyg_nn.GCN(5, 6, 2, 3, norm="batch_norm"), *on_rows
    yield "sage_model", pyg_nn.GraphSAGE(5, 6, 3, 3, norm="layer_norm",
                                         norm_kwargs={"mode": "node"}), *on_rows
    yield "gat_model", pyg_nn.GAT(5, 6, 2, 3, heads=2), *on_rows
    yield "script", PygScript(), *on_rows
    yield "gcn_script", PygGcnScript(), *on_rows


class PygScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg_nn.GCNConv(5, 6), pyg_nn.GATConv(6, 3, heads=2)
        self.bn, self.lin = pyg_nn.BatchNorm(6), nn.Linear(6, 2)

    def forward(self, x, edge_index):
        x = self.bn(self.conv1(x, edge_index)).relu()
        return self.lin(self.conv2(x, edge_index).relu())


class PygGcnScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg_nn.GCNConv(5, 6), pyg_nn.GCNConv(6, 3)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def train(module, call, inputs):
    optimizer = None
    for _ in range(3):
        out = call(module, *inputs)
        parts = out if isinstance(out, tuple) else (out,)
        loss = sum((part - 1).square().mean() for part in parts)
        if optimizer is None:
            if not list(module.parameters()):
                return
            optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def write(library, layers, suffix):
    (FOLDER / library).mkdir(exist_ok=True)
    results = {"src": SRC, "dst": DST, "x": X, "y": Y, "e": E}
    for name, module, call, inputs in layers:
        train(module, call, inputs)
        module.eval()
        path = FOLDER / library / (name + suffix)
        if suffix == ".pt":
            torch.save(module.state_dict(), path)
        else:
            safetensors.torch.save_model(module, str(path))
        torch.set_default_dtype(torch.float64)
        with torch.no_grad():
            out = call(module.double(), *(tensor.double() for tensor in inputs))
        torch.set_default_dtype(torch.float32)
        if isinstance(out, tuple):
            results[name], results[name + ".edges"] = out
        else:
            results[name] = out
    contiguous = {name: tensor.contiguous().clone() for name, tensor in results.items()}
    safetensors.torch.save_file(contiguous, FOLDER / f"{library}.safetensors")


write("dgl", dgl_layers(), ".safetensors")
write("pyg", pyg_layers(), ".pt")
