#!/usr/bin/env python3
"""PyG's GATConv in three layers: the steps of bench/cuda.cpp --part gat, where they fit.

usage: gat_pyg.py [--rounds N] [--json FILE]
"""
import torch
from torch_geometric.nn import GATConv

import common

FEATURES, CLASSES = 602, 41
AMP = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Net(torch.nn.Module):
    def __init__(self, heads, hidden):
        super().__init__()
        options = {"add_self_loops": False}
        self.layers = torch.nn.ModuleList([
            GATConv(FEATURES, hidden, heads=heads, **options),
            GATConv(heads * hidden, hidden, heads=heads, **options),
            GATConv(heads * hidden, CLASSES, heads=1, **options)])

    def forward(self, x, edges):
        for layer in self.layers[:-1]:
            x = torch.nn.functional.elu(layer(x, edges))
        return self.layers[-1](x, edges)


def step_of(heads, hidden, x, edges, labels, dtype):
    torch.manual_seed(0)
    net = Net(heads, hidden).to(common.DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(enabled=dtype == torch.float16)

    def run():
        optimizer.zero_grad()
        with torch.autocast(common.DEVICE, dtype=dtype or torch.float16, enabled=dtype is not None):
            logits = net(x, edges)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss.detach().reshape(1)]
    return run


def main():
    report = common.Report(__doc__.splitlines()[0])
    report.parse()
    for size in [common.REDDIT_SPARSE, common.REDDIT]:
        edges = torch.stack(common.rmat(size))
        x = torch.randn(size[1], FEATURES, device=common.DEVICE)
        labels = torch.randint(CLASSES, (size[1],), device=common.DEVICE)
        for heads, hidden in [(1, 256), (2, 128), (2, 256)]:
            candidates = [(f"PyG, {name}", name, step_of(heads, hidden, x, edges, labels, dtype))
                          for name, dtype in AMP.items()]
            report.measure(f"three-layer gat step, {heads} heads of F, {size[2]} edges", hidden,
                           candidates)
    report.finish()


main()
