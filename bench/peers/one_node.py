#!/usr/bin/env python3
"""The time of a question for one node by GraphSAGE from [15, 10] neighbours, by PyG or DGL on one
thread, for the program bench/predictor.

usage: one_node.py LIBRARY NODES EDGES WIDTH QUESTIONS

LIBRARY: pyg or dgl. Reads the sources and the destinations of the edges (int64) from standard input,
then lines. The first line says what runs; each other line is answered with the median and the 99th
percentile of the milliseconds of CPU time from a node's id to its result. DGL draws with
NeighborSampler, PyG with NeighborLoader. That needs pyg-lib or torch-sparse; without them the time is
that of PyG's layers alone, on subgraphs drawn before it starts: less than PyG would take.
"""
import os
import sys
import time
import types
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # of DGL, whose OpenMP reads it when it is loaded

import torch  # noqa: E402

FANOUTS = [15, 10]


def in_rows(src, dst, nodes):
    """The sources of each node's in-edges."""
    order = torch.argsort(dst, stable=True)
    return torch.split(src[order], torch.bincount(dst, minlength=nodes).tolist())


def drawn(rows, node):
    """The ids of a sampled subgraph, `node` first, and its edges between positions."""
    numbers, pairs, hop = {node: 0}, [], [node]
    for fanout in FANOUTS:
        following = []
        for at in hop:
            picked = rows[at][torch.randperm(len(rows[at]))[:fanout]].tolist()
            for neighbour in picked:
                if neighbour not in numbers:
                    numbers[neighbour] = len(numbers)
                    following.append(neighbour)
                pairs.append((numbers[neighbour], numbers[at]))
        hop = following
    return torch.tensor(list(numbers)), torch.tensor(pairs).view(-1, 2).t().contiguous()


def pyg(src, dst, x):
    import torch_geometric
    from torch_geometric import typing
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv
    width = x.size(1)
    first, second = SAGEConv(width, width), SAGEConv(width, width)
    version = torch_geometric.__version__

    def forward(rows, edges):
        return second(first(rows, edges).relu(), edges)[0]

    if typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE:
        data = Data(x=x, edge_index=torch.stack([src, dst]))

        def questions(nodes):
            for batch in NeighborLoader(data, FANOUTS, input_nodes=nodes, batch_size=1):
                yield forward(batch.x, batch.edge_index)
        return f"PyG {version}", questions
    rows = in_rows(src, dst, x.size(0))

    def questions(nodes):
        for ids, edges in [drawn(rows, node) for node in nodes.tolist()]:
            yield None  # the clock starts
            yield forward(x[ids], edges)
    return f"PyG {version}, layers alone", questions


def dgl(src, dst, x):
    sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")  # made for another torch
    import dgl
    from dgl.dataloading import NeighborSampler
    from dgl.nn.pytorch import SAGEConv
    width = x.size(1)
    first, second = (SAGEConv(width, width, "mean") for _ in FANOUTS)
    graph, sampler = dgl.graph((src, dst), num_nodes=x.size(0)), NeighborSampler(FANOUTS)
    graph.create_formats_()

    def questions(nodes):
        for node in nodes.split(1):
            ids, _, blocks = sampler.sample_blocks(graph, node)
            yield second(blocks[1], first(blocks[0], x[ids]).relu())
    return f"DGL {dgl.__version__}", questions


def main():
    library = sys.argv[1]
    nodes, count, width, questions = map(int, sys.argv[2:])
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = torch.frombuffer(bytearray(sys.stdin.buffer.read(16 * count)), dtype=torch.int64)
    src, dst = ids.view(2, count)
    with torch.inference_mode():
        version, ask = (pyg if library == "pyg" else dgl)(src, dst, torch.randn(nodes, width))
        print(version, flush=True)
        for _ in sys.stdin.buffer:
            times, asked = [], dst[torch.randint(count, (questions,))]
            start = time.process_time()
            for result in ask(asked):
                if result is not None:
                    times.append(1e3 * (time.process_time() - start))
                start = time.process_time()
            times.sort()
            print(times[len(times) // 2], times[len(times) * 99 // 100], flush=True)


main()
