#!/usr/bin/env python3
"""A layer with edge features of PyG or DGL, forward and backward, for the program bench/edge_layers.

usage: edge_layers.py LIBRARY LAYER NODES EDGES FEATURES HEADS THREADS

LIBRARY: pyg or dgl. LAYER: gine, egat or pna. The graph has EDGES edges between random nodes and a
loop at each. Rows of nodes and edges are float32 of FEATURES columns and have gradients. Prints which
version runs, then answers each line of standard input when the layer has run once. PyG's layer
nearest to EGATConv is GATv2Conv with edge features, which returns no rows of the edges; PNA is
without edge features, DGL's default.
"""
import sys
import types
import warnings

import torch

AGGREGATORS = ["mean", "max", "min", "std"]
SCALERS = ["identity", "amplification", "attenuation"]


def graph(nodes, edges):
    torch.manual_seed(0)
    drawn, loops = torch.randint(nodes, (2, edges)), torch.arange(nodes)
    return torch.cat([drawn, torch.stack([loops, loops])], 1)


def pyg(kind, edges, nodes, width, heads):
    import torch_geometric
    from torch_geometric import nn
    degrees = torch.bincount(edges[1], minlength=nodes)
    if kind == "gine":
        layer = nn.GINEConv(torch.nn.Linear(width, width))
    elif kind == "egat":
        layer = nn.GATv2Conv(width, width // heads, heads, edge_dim=width, add_self_loops=False)
    else:
        layer = nn.PNAConv(width, width, AGGREGATORS, SCALERS, deg=torch.bincount(degrees))
        return torch_geometric.__version__, layer, lambda x, _: layer(x, edges)
    return torch_geometric.__version__, layer, lambda x, e: layer(x, edges, e)


def dgl(kind, edges, nodes, width, heads):
    sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")  # made for another torch
    import dgl
    from dgl.nn.pytorch import EGATConv, GINEConv, PNAConv
    topology = dgl.graph((edges[0], edges[1]), num_nodes=nodes).int()
    topology.create_formats_()
    if kind == "gine":
        layer = GINEConv(torch.nn.Linear(width, width))
    elif kind == "egat":
        layer = EGATConv(width, width, width // heads, width // heads, heads)
    else:
        delta = topology.in_degrees().double().log1p().mean().item()
        layer = PNAConv(width, width, AGGREGATORS, SCALERS, delta)
        return dgl.__version__, layer, lambda x, _: layer(topology, x)
    return dgl.__version__, layer, lambda x, e: layer(topology, x, e)


def main():
    library, kind = sys.argv[1:3]
    nodes, count, width, heads, threads = map(int, sys.argv[3:])
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    edges = graph(nodes, count)
    version, layer, run = (pyg if library == "pyg" else dgl)(kind, edges, nodes, width, heads)
    x = torch.randn(nodes, width, requires_grad=True)
    e = torch.randn(edges.size(1), width, requires_grad=True) if kind != "pna" else None
    with torch.no_grad():
        results = run(x, e)
    shapes = [one.shape for one in (results if isinstance(results, tuple) else [results])]
    gradients = [torch.randn(shape) for shape in shapes]
    del results
    print(version, flush=True)
    for _ in sys.stdin:
        results = run(x, e)
        torch.autograd.backward(results if isinstance(results, tuple) else [results], gradients)
        del results
        for one in [x, e, *layer.parameters()]:
            if one is not None:
                one.grad = None
        print("done", flush=True)


main()
