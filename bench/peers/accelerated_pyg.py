#!/usr/bin/env python3
"""Training steps of PyG's models, before and after mezzo.pyg.accelerate, in turn.

usage: accelerated_pyg.py [ROUNDS]

Needs the wheel (make wheel) and torch_geometric. Two layers on 131,072 nodes and 2,097,152 random
edges, 128 features, two threads; prints the least time of the rounds and both last losses.
"""
import copy
import sys
import time

import torch
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

import mezzo.pyg

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
NODES, EDGES, WIDTH, CLASSES = 1 << 17, 1 << 21, 128, 16
torch.set_num_threads(2)
torch.manual_seed(0)
edges = torch.randint(NODES, (2, EDGES))
features, labels = torch.randn(NODES, WIDTH), torch.randint(CLASSES, (NODES,))


class Net(torch.nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last

    def forward(self, x):
        return self.last(torch.relu(self.first(x, edges)), edges)


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


def linear(width):
    return torch.nn.Linear(WIDTH, width)


for name, net in {
        "GCN": Net(GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, CLASSES)),
        "SAGE": Net(SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, CLASSES)),
        "GIN": Net(GINConv(linear(WIDTH)), GINConv(linear(CLASSES))),
        "GAT": Net(GATConv(WIDTH, WIDTH // 4, heads=4), GATConv(WIDTH, CLASSES))}.items():
    faster = copy.deepcopy(net)
    mezzo.pyg.accelerate(faster, verbose=False)
    both = step_of(net), step_of(faster)
    rounds = [[step() for step in both] for _ in range(ROUNDS)]
    pyg, own = (min(times)[0] for times in zip(*rounds))
    losses = " and ".join(f"{loss:.7g}" for _, loss in rounds[-1])
    print(f"{name}: {pyg:.3f} s by PyG, {own:.3f} s accelerated ({pyg / own:.1f}x), losses {losses}",
          flush=True)
