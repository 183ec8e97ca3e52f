#!/usr/bin/env python3
"""PyG's NeighborLoader and mezzo's, an epoch of each in turn: sampled edges a second, batches and
gathered features included.

usage: loader_pyg.py [SECONDS]

Needs the wheel (make wheel), torch_geometric and pyg-lib, its sampler. A random graph of 2^20
nodes and 2^24 edges, 1,024 seeds a batch, 15 and 10 neighbours, with and without 100 float32
features; two threads, and for PyG the batches in the process itself or in two workers. A measurement
of a loader takes at least SECONDS, by default 3.
"""
import sys
import time

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import mezzo

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
NODES, EDGES, WIDTH = 1 << 20, 1 << 24, 100
torch.set_num_threads(2)
torch.manual_seed(0)
edges = torch.randint(NODES, (2, EDGES))
features, labels = torch.randn(NODES, WIDTH), torch.randint(16, (NODES,))


def rate(loader):
    """Million sampled edges a second, from the tenth batch on."""
    count, begin = 0, 0.0
    for number, batch in enumerate(loader):
        if number == 10:
            begin = time.time()
        elif number > 10:
            count += batch.edge_index.shape[1]
            if time.time() - begin > SECONDS:
                break
    return count / (time.time() - begin) / 1e6


for name, data in {"structure": Data(edge_index=edges, num_nodes=NODES),
                   "features": Data(edge_index=edges, x=features, y=labels)}.items():
    arguments = {"num_neighbors": [15, 10], "batch_size": 1024, "shuffle": True}
    loaders = {"PyG, 0 workers": NeighborLoader(data, **arguments),
               "PyG, 2 workers": NeighborLoader(data, num_workers=2, **arguments),
               "mezzo, 0 workers": mezzo.NeighborLoader(data, num_workers=0, **arguments),
               "mezzo, 2 workers": mezzo.NeighborLoader(data, num_workers=2, **arguments)}
    for loader, value in {key: rate(loader) for key, loader in loaders.items()}.items():
        print(f"{name}: {loader}: {value:.1f} million edges/s", flush=True)
