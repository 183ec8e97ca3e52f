#!/usr/bin/env python3
"""Training steps of PyG's or DGL's models, before and after accelerate, in turn.

usage: accelerated.py pyg|dgl [ROUNDS]

Needs the wheel (make wheel) and torch_geometric or dgl. Two layers on 131,072 nodes and 2,097,152
random edges, 128 features, two threads; prints the least time of the rounds and both last losses.
"""
import copy
import importlib
import sys
import time

import torch

LIBRARY = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
NODES, EDGES, WIDTH, CLASSES = 1 << 17, 1 << 21, 128, 16
torch.set_num_threads(2)
torch.manual_seed(0)
edges = torch.randint(NODES, (2, EDGES))
features, labels = torch.randn(NODES, WIDTH), torch.randint(CLASSES, (NODES,))


class Net(torch.nn.Module):
    def __init__(self, call, first, last):
        super().__init__()
        self.call, self.first, self.last = call, first, last

    def forward(self, x):
        x = torch.relu(self.call(self.first, x).flatten(1))  # DGL's GATConv has heads apart
        return self.call(self.last, x).flatten(1)


def linear(width):
    return torch.nn.Linear(WIDTH, width)


def nets_of_pyg():
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

    def call(layer, x):
        return layer(x, edges)
    return {"GCN": Net(call, GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, CLASSES)),
            "SAGE": Net(call, SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, CLASSES)),
            "GIN": Net(call, GINConv(linear(WIDTH)), GINConv(linear(CLASSES))),
            "GAT": Net(call, GATConv(WIDTH, WIDTH // 4, heads=4), GATConv(WIDTH, CLASSES))}


def nets_of_dgl():
    import dgl
    from dgl.nn import GATConv, GINConv, GraphConv, SAGEConv
    graph = dgl.add_self_loop(dgl.graph(tuple(edges.int()), num_nodes=NODES))
    graph.create_formats_()

    def call(layer, x):
        return layer(graph, x)
    return {"GCN": Net(call, GraphConv(WIDTH, WIDTH), GraphConv(WIDTH, CLASSES)),
            "SAGE": Net(call, SAGEConv(WIDTH, WIDTH, "mean"), SAGEConv(WIDTH, CLASSES, "mean")),
            "GIN": Net(call, GINConv(linear(WIDTH)), GINConv(linear(CLASSES))),
            "GAT": Net(call, GATConv(WIDTH, WIDTH // 4, 4), GATConv(WIDTH, CLASSES, 1))}


def step_of(net):
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        begin = time.time()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(features), labels)
        loss.backward()
        optimizer.step()
        return time.time() - begin, loss.item()
    return step


for name, net in (nets_of_pyg if LIBRARY == "pyg" else nets_of_dgl)().items():
    faster = copy.deepcopy(net)
    importlib.import_module(f"mezzo.{LIBRARY}").accelerate(faster, verbose=False)
    both = step_of(net), step_of(faster)
    rounds = [[step() for step in both] for _ in range(ROUNDS)]
    before, after = (min(times)[0] for times in zip(*rounds))
    losses = " and ".join(f"{loss:.7g}" for _, loss in rounds[-1])
    print(f"{name}: {before:.3f} s by {LIBRARY}, {after:.3f} s accelerated "
          f"({before / after:.1f}x), losses {losses}", flush=True)
