#!/usr/bin/env python3
"""DistributedDataParallel under torchrun: in two processes with a graph each, the gradients of
layers of the package, and of an accelerated PyG model where PyG can be imported, are the mean of
those of the two graphs in one process.

usage: package_ddp_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import os
import runpy
import socket
import sys

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
import mezzo.nn as mnn  # noqa: E402
from mezzo.graph import Graph  # noqa: E402

N, IN = 30, 6


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = mnn.SAGEConv(IN, 8, "mean")
        self.second = mnn.GATConv(8, 3, 2)

    def forward(self, x, edges):
        graph = Graph.from_coo(*edges, N)
        return self.second(graph, self.first(graph, x).relu()).mean(1)


def models():
    yield "mezzo.nn", Model()
    try:
        import torch_geometric.nn as pyg

        import mezzo.pyg
    except ImportError as reason:
        print(f"without PyG: {reason}")
        return
    for kind in (pyg.models.GCN, pyg.models.GAT, pyg.models.GraphSAGE):
        model = kind(IN, 8, 2, 3)
        assert len(mezzo.pyg.accelerate(model, verbose=False).replaced) == 2
        yield kind.__name__, model


def graph_of(rank):
    """Features of 30 nodes, and 120 edges and a self loop of each node."""
    generator = torch.Generator().manual_seed(rank)
    edges = torch.randint(N, (2, 120), generator=generator)
    return (torch.randn(N, IN, generator=generator),
            torch.cat([edges, torch.arange(N).expand(2, N)], 1))


def gradients(model, module, rank, dtype):
    model.zero_grad()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        loss = module(*graph_of(rank)).float().square().mean()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def work():
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(rank)  # the parameters are those of rank 0 all the same
    for name, model in models():
        module = torch.nn.parallel.DistributedDataParallel(model)
        for dtype in (torch.float32, torch.bfloat16):
            received = gradients(model, module, rank, dtype)
            alone = [gradients(model, model, other, dtype) for other in range(2)]
            expected = [(a + b) / 2 for a, b in zip(*alone)]
            torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-7)
            assert not torch.allclose(received[0], alone[rank][0]), "nothing was exchanged"
        print(f"{name}, rank {rank}: good")
    torch.distributed.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    sys.argv[:0] = ["torchrun", "--master-port", port, "--nproc-per-node", "2"]
    runpy.run_module("torch.distributed.run", run_name="__main__")  # exits with an error's code


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work() if "RANK" in os.environ else main()
