#!/usr/bin/env python3
"""Graphs of the Python package, and the errors of all of it.

usage: package_graphs_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import copy
import pathlib
import re
import sys
import threading
import time
import unittest

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
torch.set_num_threads(1)  # small graphs
import mezzo  # noqa: E402
import mezzo.nn as mnn  # noqa: E402
from mezzo import ops  # noqa: E402
from mezzo.graph import Graph  # noqa: E402
from layer_cases import (DST, E, GRAPH, IN, N, SRC, TYPES, WEIGHT, batch,  # noqa: E402
                         numbers)


class Graphs(unittest.TestCase):
    def test_the_example_of_the_readme_runs(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
        example = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
        mezzo.Graph = Graph  # as the package's __init__ does
        results = {}
        exec(example, results)
        self.assertEqual((results["out"].shape, results["out"].dtype), ((100, 8), torch.bfloat16))

    def test_it_is_made_of_pairs_or_compressed_rows(self):
        src, dst = torch.tensor([0, 0, 1, 3]), torch.tensor([1, 2, 2, 2])
        for graph in (Graph.from_coo(src, dst, 4), Graph.from_coo(src, dst),
                      Graph.from_csr(torch.tensor([0, 2, 3, 3, 4]), dst),
                      Graph.from_csc(torch.tensor([0, 0, 1, 4, 4]), src)):
            self.assertEqual((graph.num_nodes(), graph.num_edges()), (4, 4))
            self.assertEqual(graph.in_degrees().tolist(), [0, 1, 3, 0])
            self.assertEqual(graph.out_degrees().tolist(), [2, 1, 0, 1])
            self.assertTrue(all(map(torch.equal, graph.edges(), (src, dst))))
            self.assertEqual(repr(graph), "mezzo.Graph(4 nodes, 4 edges, cpu)")

    def test_a_block_has_two_sets_of_rows(self):
        block = Graph.from_coo(torch.tensor([2]), torch.tensor([0]), 3, 1)
        block.srcdata["h"], block.dstdata["h"] = torch.ones(3), torch.ones(1)
        self.assertEqual((block.num_src_nodes(), block.num_dst_nodes()), (3, 1))
        for call in (lambda: block.ndata, block.num_nodes):
            with self.assertRaisesRegex(ValueError, "one set of nodes"):
                call()

    def test_a_copy_and_a_graph_on_its_device_keep_tensors(self):
        graph = Graph.from_coo(SRC, DST, N)
        graph.ndata["x"], graph.edata["w"] = numbers(N, 2), WEIGHT
        self.assertIs(graph.to("cpu"), graph)
        other = copy.deepcopy(graph)
        self.assertTrue(torch.equal(other.ndata["x"], graph.ndata["x"]))
        self.assertTrue(torch.equal(other.edges()[0], SRC))
        layer = mnn.GraphConv(2, 2).double()
        torch.testing.assert_close(layer(other, other.ndata["x"]),
                                   layer(graph, graph.ndata["x"]))


class Errors(unittest.TestCase):
    def test_are_those_of_python_with_the_librarys_text(self):
        x = torch.ones(N, IN)
        alone = Graph.from_coo(torch.tensor([0]), torch.tensor([1]), 2)
        for kind, text, call in (
                (ValueError, r"gspmm: expected lhs \[12, ...\]",
                 lambda: ops.gspmm(GRAPH, "copy_lhs", "sum", torch.ones(3))),
                (ValueError, "'avg' is not one of sum, mean",
                 lambda: ops.gspmm(GRAPH, "copy_lhs", "avg", x)),
                (ValueError, r"from_coo: expected src in \[0, 2\), got 7",
                 lambda: Graph.from_coo(torch.tensor([7]), torch.tensor([0]), 2)),
                (ValueError, r"GATConv: expected floating feat \[12, 5\].*got float32 \[12, 6\]",
                 lambda: mnn.GATConv(5, 2, 1)(GRAPH, x)),
                (ValueError, "GraphConv: expected an in-edge of every destination",
                 lambda: mnn.GraphConv(IN, 2)(alone, x[:2])),
                (ValueError, "norm to be one of none, both", lambda: mnn.GraphConv(2, 2, "mean")),
                (ValueError, "SGConv: expected positive edge_weight",
                 lambda: mnn.SGConv(IN, 2)(GRAPH, x, torch.zeros(E))),
                (ValueError, r"expected floating edge_weight \[72\]",
                 lambda: mnn.SAGEConv(IN, 2, "mean")(GRAPH, x, x)),
                (TypeError, "Expected a value of type 'Tensor' for argument 'x'.*'str'.$",
                 lambda: ops.linear("x", x)),
                (TypeError, "from_coo: expected src to be a tensor, got list",
                 lambda: Graph.from_coo([0], [1])),
                (TypeError, "from_csr: expected indptr to be a tensor, got str",
                 lambda: Graph.from_csr("a", "b")),
                (ValueError, r"from_coo: expected src in \[0, 2\), got -1",
                 lambda: Graph.from_coo(torch.tensor([-1]), torch.tensor([1]))),
                (ValueError, r"from_coo: expected src to be an integer vector, got float32 \[1\]",
                 lambda: Graph.from_coo(torch.ones(1), torch.ones(1))),
                (ValueError, "from_coo: expected src on a CPU or CUDA device, got meta",
                 lambda: Graph.from_coo(SRC.to("meta"), DST.to("meta"), N)),
                (TypeError, "Graph: expected a Topology, got NoneType", lambda: Graph(None)),
                (ValueError, "from_dgl: expected a graph of one type of edges, got NoneType",
                 lambda: Graph.from_dgl(None)),
                (ValueError, r"set_batch_num_nodes: expected integer sizes \[B\] that sum to 12",
                 lambda: batch().set_batch_num_nodes(torch.tensor([13, -1]))),
                (ValueError, "gspmm: the op needs lhs, which is absent",
                 lambda: ops.gspmm(GRAPH, "copy_lhs", "sum", None)),
                (ValueError, "gspmm: expected strided tensors on one CPU or CUDA device, got fl",
                 lambda: ops.gspmm(GRAPH, "copy_lhs", "sum", x.to_sparse())),
                (ValueError, r"expected a probability in \[0, 1\], got nan",
                 lambda: ops.dropout(x, float("nan"))),
                (TypeError, "dropout: expected x to be a tensor", lambda: ops.dropout([1], 0.5)),
                (ValueError, "a pair of tensors, got 3", lambda: mnn.GINConv()(GRAPH, (x, x, x))),
                (TypeError, "SGConv: expected feat to be a tensor, got tuple",
                 lambda: mnn.SGConv(IN, 2)(GRAPH, (x, x))),
                (TypeError, "GATConv: expected edge_weight to be a tensor, got list",
                 lambda: mnn.GATConv(IN, 2, 1)(GRAPH, x, [1.0])),
                (ValueError, "linear: expected x, weight and bias of one dtype, got Half, Float",
                 lambda: mnn.GATConv(IN, 2, 1)(GRAPH, x.half())),
                (ValueError, "GATConv: expected num_heads of at least 1, got 0",
                 lambda: mnn.GATConv(IN, 2, 0)),
                (TypeError, "SAGEConv: expected in_feats to be an int, got str",
                 lambda: mnn.SAGEConv("6", 2, "mean")),
                (ValueError, r"GatedGraphConv: expected integer etypes \[72\] in \[0, 2\)",
                 lambda: mnn.GatedGraphConv(IN, IN, 1, 2)(GRAPH, x, TYPES)),
                (ValueError, "JumpingKnowledge: expected the output of at least one layer",
                 lambda: mnn.JumpingKnowledge()([])),
                (ValueError, "JumpingKnowledge: expected an output of layer 1 that fits",
                 lambda: mnn.JumpingKnowledge("max")([x, x[:2]])),
                (ValueError, r"expected gate_nn to return \[12, 1\]",
                 lambda: mnn.GlobalAttentionPooling(torch.nn.Linear(IN, 2))(GRAPH, x)),
                (TypeError, "expected a mezzo.Graph", lambda: mnn.GINConv()(None, x))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                call()
        mnn.GraphConv(IN, 2, allow_zero_in_degree=True)(alone, x[:2])

    def test_ids_of_any_integers_and_strides_and_empty_graphs_are_none(self):
        strided = torch.stack([SRC.int(), DST.int()], 1)
        graph = Graph.from_coo(strided[:, 0], strided[:, 1], N)
        self.assertTrue(torch.equal(graph.edges()[0], SRC))
        none = torch.empty(0, dtype=torch.int64)
        for kind in ("mean", "gcn", "pool", "lstm"):
            layer = mnn.SAGEConv(IN, 2, kind)
            self.assertEqual(layer(Graph.from_coo(none, none), torch.ones(0, IN)).shape, (0, 2))
            without_edges = layer(Graph.from_coo(none, none, 3), torch.ones(3, IN))
            self.assertTrue(without_edges.isfinite().all())

    def test_an_operator_releases_the_interpreter(self):
        nodes = 20000
        graph = Graph.from_coo(*torch.randint(nodes, (2, 40 * nodes)), nodes)
        x, times, done = torch.ones(nodes, 256), [], threading.Event()
        ops.gspmm(graph, "copy_lhs", "sum", x)

        def record():
            while not done.wait(0.001):
                times.append(time.monotonic())

        other = threading.Thread(target=record)
        other.start()
        begin = time.monotonic()
        ops.gspmm(graph, "copy_lhs", "sum", x)
        duration = time.monotonic() - begin
        done.set()
        other.join()
        self.assertTrue(any(0.2 < (moment - begin) / duration < 0.8 for moment in times))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
