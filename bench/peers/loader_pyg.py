#!/usr/bin/env python3
"""Sampled edges a second of PyG's NeighborLoader and of mezzo's, in turn, with the whole making of
the batches.

usage: loader_pyg.py [SECONDS]

Needs the wheel (make wheel), torch_geometric and its sampler pyg-lib. A random graph of 2^20 nodes
and 2^24 edges, 1,024 seeds a batch, 15 and 10 neighbours, with and without 100 float32 features and
labels; two threads, or two workers (PyG's are processes). Each rate is the median of three rounds
of SECONDS, by default 3.
To let malloc keep its pages: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000.
"""
import statistics
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
    rounds = [{key: rate(loader) for key, loader in loaders.items()} for _ in range(3)]
    for key in loaders:
        value = statistics.median(rates[key] for rates in rounds)
        print(f"{name}: {key}: {value:.1f} million edges/s", flush=True)
