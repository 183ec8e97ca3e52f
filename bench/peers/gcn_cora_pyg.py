#!/usr/bin/env python3
"""PyG's GCNConv on a graph of Cora's size, eager and captured: the steps of bench/cuda.cpp --part
cora.

usage: gcn_cora_pyg.py [--rounds N] [--json FILE]
"""
import torch
from torch_geometric.nn import GCNConv

import common

NODES, EDGES, FEATURES, CLASSES, HIDDEN = 2708, 10556, 1433, 7, 16


class Net(torch.nn.Module):
    def __init__(self, cached):
        super().__init__()
        self.first = GCNConv(FEATURES, HIDDEN, cached=cached)
        self.second = GCNConv(HIDDEN, CLASSES, cached=cached)

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


def eager(x, edges, labels, dtype, cached):
    torch.manual_seed(0)
    net = Net(cached).to(common.DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)
    scaler = torch.amp.GradScaler(enabled=dtype is not None)

    def run():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(common.DEVICE, dtype=dtype or torch.float16, enabled=dtype is not None):
            logits = net(x, edges)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss.detach().reshape(1)]
    return run


def captured(run):
    """The step as a CUDA graph, after three eager ones; the scaler's step asks the host, so float32
    only."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    eager_steps, result = [], []

    def replay():
        if len(eager_steps) < 3:
            eager_steps.append(run)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                first = run()
            torch.cuda.current_stream().wait_stream(side)
            return first
        if not result:
            with torch.cuda.graph(graph):
                result.extend(run())
        graph.replay()
        return result
    return replay


def main():
    report = common.Report(__doc__.splitlines()[0])
    report.parse()
    torch.manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), device=common.DEVICE)
    x = torch.randn(NODES, FEATURES, device=common.DEVICE)
    labels = torch.randint(CLASSES, (NODES,), device=common.DEVICE)
    candidates = [("PyG, fp32 eager", "fp32", eager(x, edges, labels, None, False)),
                  ("PyG, fp32 eager, cached", "fp32", eager(x, edges, labels, None, True)),
                  ("PyG, fp16 eager", "fp16", eager(x, edges, labels, torch.float16, False)),
                  ("PyG, fp32 captured, cached", "fp32",
                   captured(eager(x, edges, labels, None, True)))]
    report.measure("gcn step on a graph of Cora's size", HIDDEN, candidates, repeats=100,
                   warm_ups=6)
    report.finish()


main()
