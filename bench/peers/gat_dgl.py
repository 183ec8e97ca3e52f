#!/usr/bin/env python3
"""DGL's GATConv in three layers on an npy folder of tools/make_rmat: seconds and memory of a step.

usage: gat_dgl.py FOLDER [HEADS] [STEPS]

The model and the options of docs/results.md: 256 hidden units, Adam, no dropout, two threads.
"""
import os
import resource
import sys
import time

os.environ["DGLBACKEND"] = "pytorch"
import dgl  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from dgl.nn import GATConv  # noqa: E402

folder, heads, steps = sys.argv[1], *map(int, [*sys.argv[2:], "1", "1"][:2])
torch.set_num_threads(2)
torch.manual_seed(1)


def load(name):
    return torch.from_numpy(numpy.load(f"{folder}/{name}.npy"))


features, labels, trains = load("features"), load("labels"), load("train_mask")
graph = dgl.graph(tuple(load("edge_index").int()), num_nodes=len(labels))
graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
graph.create_formats_()
elu = torch.nn.functional.elu
layers = torch.nn.ModuleList([
    GATConv(features.shape[1], 256 // heads, heads, activation=elu),
    GATConv(256, 256 // heads, heads, activation=elu), GATConv(256, int(labels.max()) + 1, 1)])
optimizer = torch.optim.Adam(layers.parameters(), lr=0.005)
for step in range(steps):
    begin = time.time()
    rows = features
    for layer in layers:
        rows = layer(graph, rows).flatten(1)
    loss = torch.nn.functional.cross_entropy(rows[trains], labels[trains])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"step {step + 1}: loss {loss.item():.8f}, {time.time() - begin:.1f} s, peak {peak:.1f} GiB",
          flush=True)
