#!/usr/bin/env python3
"""The time of a question for one node by GraphSAGE from [15, 10] neighbours, by PyG or DGL on one
thread, for the program bench/predictor.

usage: one_node.py LIBRARY NODES EDGES WIDTH QUESTIONS

LIBRARY: pyg or dgl. Reads the sources and the destinations of the edges (int64) from standard
input, then lines. The first line says what runs; each other line is answered with the median and
the 99th percentile of the milliseconds of CPU time from a node's id to its result. DGL draws with
NeighborSampler. PyG calls one NeighborLoader with each node, which takes less than a loop over its
batches, and trims the last layer as its documents advise; it needs pyg-lib.
"""
import os
import sys
import time
import types
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # of DGL, whose OpenMP reads it when it is loaded

import torch  # noqa: E402

FANOUTS = [15, 10]  # input layer first


def pyg(src, dst, x):
    import torch_geometric
    from torch_geometric import typing
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer
    if not typing.WITH_PYG_LIB:
        sys.exit("one_node.py: PyG's loader needs pyg-lib")
    width = x.size(1)
    first, second = (SAGEConv(width, width) for _ in FANOUTS)
    loader = NeighborLoader(Data(x=x, edge_index=torch.stack([src, dst])), FANOUTS[::-1])

    def questions(nodes):
        for node in nodes.split(1):
            batch = loader(node)
            rows = first(batch.x, batch.edge_index).relu()
            rows, edges, _ = trim_to_layer(1, batch.num_sampled_nodes, batch.num_sampled_edges,
                                           rows, batch.edge_index)
            yield second(rows, edges)[0]
    return f"PyG {torch_geometric.__version__}, pyg-lib", questions


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
            for _ in ask(asked):
                times.append(1e3 * (time.process_time() - start))
                start = time.process_time()
            times.sort()
            print(times[len(times) // 2], times[len(times) * 99 // 100], flush=True)


main()
