#!/usr/bin/env python3
"""Training epochs on a set of small graphs: PyG's DataLoader and GIN, and `mezzo train`, in turn.

usage: graphs_pyg.py MEZZO FOLDER [GRAPHS] [ROUNDS]

MEZZO: the command (build/release/bin/mezzo). Needs torch_geometric. Writes GRAPHS (60,000) graphs
of 75 nodes to FOLDER once, each node with edges from the 8 nearest of random points in the plane,
as the superpixels of an image; the label says whether the points lie in a disc or in a square. Two
layers of GIN and a readout by sums, width 64, batches of 128 graphs, Adam, float32, two threads.
An epoch does not evaluate.
"""
import json
import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

MEZZO, FOLDER = sys.argv[1:3]
GRAPHS = int(sys.argv[3]) if len(sys.argv) > 3 else 60_000
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 2
NODES, NEIGHBOURS, WIDTH, BATCH = 75, 8, 64, 128
torch.set_num_threads(2)
torch.manual_seed(0)


def write_graphs():
    os.makedirs(FOLDER, exist_ok=True)
    labels = torch.arange(GRAPHS) % 2
    points = torch.rand(GRAPHS, NODES, 2) * 2 - 1
    in_disc = points / points.norm(dim=2, keepdim=True).clamp_min(1)
    points = torch.where(labels.view(-1, 1, 1) == 0, in_disc, points)
    nearest = torch.cat([torch.cdist(some, some).topk(NEIGHBOURS + 1, largest=False).indices
                         for some in points.split(1000)])[:, :, 1:]
    first = torch.arange(GRAPHS).view(-1, 1, 1) * NODES
    dst = torch.arange(NODES).view(1, -1, 1).expand_as(nearest)
    arrays = {"edge_index": torch.stack([(nearest + first).flatten(), (dst + first).flatten()]),
              "features": points.reshape(-1, 2), "graph_labels": labels,
              "graph_offsets": torch.arange(GRAPHS + 1) * NODES}
    for name in ("train", "val", "test"):  # all graphs are training graphs but two
        mask = torch.zeros(GRAPHS, dtype=torch.bool)
        mask[{"train": slice(2, None), "val": slice(0, 1), "test": slice(1, 2)}[name]] = True
        arrays[f"{name}_mask"] = mask
    for name, array in arrays.items():
        np.save(f"{FOLDER}/{name}.npy", array.numpy())


class Gin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            GINConv(torch.nn.Sequential(torch.nn.Linear(width, WIDTH), torch.nn.ReLU(),
                                        torch.nn.Linear(WIDTH, WIDTH))) for width in (2, WIDTH))
        self.hidden, self.out = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)

    def forward(self, batch):
        x = batch.x
        for layer in self.layers:
            x = torch.relu(layer(x, batch.edge_index))
        x = global_add_pool(x, batch.batch, batch.num_graphs)
        return self.out(torch.relu(self.hidden(x)))


def graphs_of_pyg():
    edges, x, y = (torch.from_numpy(np.load(f"{FOLDER}/{name}.npy"))
                   for name in ("edge_index", "features", "graph_labels"))
    edges = edges.view(2, GRAPHS, -1)
    return [Data(x=x[g * NODES:(g + 1) * NODES], y=y[g],
                 edge_index=(edges[:, g] - g * NODES).contiguous()) for g in range(2, GRAPHS)]


def epoch_of_pyg(loader, net, optimizer):
    begin, total = time.time(), 0.0
    for batch in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(batch), batch.y)
        loss.backward()
        optimizer.step()
        total += loss.item() * batch.num_graphs
    return time.time() - begin, total / (GRAPHS - 2)


def epoch_of_mezzo(workers):
    report = f"{FOLDER}/report.json"
    subprocess.run([MEZZO, "train", "--dataset", FOLDER, "--model", "gin", "--readout", "sum",
                    "--layers", "2", "--hidden", str(WIDTH), "--norm", "none", "--dropout", "0",
                    "--batch-size", str(BATCH), "--workers", str(workers), "--epochs", "2",
                    "--eval-every", "2", "--recipe", "planetoid", "--weight-decay", "0", "--lr",
                    "0.001", "--precision", "fp32", "--threads", "2", "--json", report],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(report, encoding="utf-8") as file:
        result = json.load(file)
    return result["epoch_ms"]["min"] / 1e3, result["train_loss"]


if not os.path.exists(f"{FOLDER}/test_mask.npy"):
    write_graphs()
graphs = graphs_of_pyg()
for turn in range(ROUNDS):
    for workers in (0, 2):
        net = Gin()
        optimizer = torch.optim.Adam(net.parameters())
        loader = DataLoader(graphs, BATCH, shuffle=True, num_workers=workers)
        epochs = [epoch_of_pyg(loader, net, optimizer) for _ in range(2)]
        seconds, loss = min(epochs)[0], epochs[-1][1]
        print(f"PyG, {workers} workers: {(GRAPHS - 2) / seconds:.0f} graphs/s, loss {loss:.4f}",
              flush=True)
    for workers in (0, 1, 2):
        seconds, loss = epoch_of_mezzo(workers)
        print(f"mezzo, {workers} workers: {(GRAPHS - 2) / seconds:.0f} graphs/s, "
              f"loss {loss:.4f}", flush=True)
