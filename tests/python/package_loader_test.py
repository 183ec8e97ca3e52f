#!/usr/bin/env python3
"""The loaders of the package against the definitions of their batches; of PyG's Data where
torch_geometric can be imported.

usage: package_loader_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import gc
import sys
import threading
import time
import unittest

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
torch.set_num_threads(1)
import mezzo.nn as mnn  # noqa: E402
from mezzo.graph import Graph  # noqa: E402
from mezzo.loader import ClusterLoader, NeighborLoader, SaintLoader  # noqa: E402

try:
    import torch_geometric.nn as pyg
    from torch_geometric.data import Data

    import mezzo.pyg
    NO_PYG = ""
except ImportError as reason:
    NO_PYG = f"torch_geometric cannot be imported: {reason}"

N, E = 300, 4000
generator = torch.Generator().manual_seed(5)
SRC, DST = torch.randint(N, (2, E), generator=generator)
DEGREES = torch.bincount(DST, minlength=N)
NODE_ROWS = {"half": torch.randn(N, 3, generator=generator).half(),
             "bf16": torch.randn(N, 2, 2, generator=generator).bfloat16(),
             "fp32": torch.randn(N, generator=generator), "label": torch.arange(N),
             "mask": torch.arange(N) % 3 == 0}
EDGE_ROWS = {"weight": torch.rand(E, generator=generator), "kind": torch.arange(E) % 7}


def graph_of():
    graph = Graph.from_coo(SRC, DST, N)
    graph.ndata.update(NODE_ROWS)
    graph.edata.update(EDGE_ROWS)
    return graph


def tensors(item):
    """All tensors of a batch, in a fixed order."""
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, Graph):
        return [x for part in (item.edges(), item.srcdata, item.dstdata, item.edata)
                for x in tensors(part)]
    if isinstance(item, dict) or hasattr(item, "to_dict"):
        item = item if isinstance(item, dict) else item.to_dict()
        return [x for name in sorted(item) for x in tensors(item[name])]
    return [x for part in item for x in tensors(part)] if isinstance(item, (list, tuple)) else []


def equal(first, second):
    first, second = tensors(first), tensors(second)
    return len(first) == len(second) and all(map(torch.equal, first, second))


class Batches(unittest.TestCase):
    def check_rows(self, rows, source, ids):
        for name, column in source.items():
            self.assertEqual(rows[name].dtype, column.dtype)
            self.assertTrue(torch.equal(rows[name], column[ids]), name)

    def check_edges(self, src, dst, edges):
        """src, dst: ids of the graph."""
        self.assertTrue(torch.equal(SRC[edges], src))
        self.assertTrue(torch.equal(DST[edges], dst))

    def check_draws(self, counts, nodes, fanout, replace=False):
        degrees = DEGREES[nodes]
        expected = degrees if fanout < 0 else degrees.clamp(max=fanout)
        if replace:
            expected = torch.where(degrees > 0, fanout, 0)
        self.assertTrue(torch.equal(counts, expected))


class Blocks(Batches):
    def test_blocks_are_drawn_edges_with_the_rows_of_their_nodes(self):
        for fanouts, replace in (
                ([5, 3], False), ([-1, 4], False), ([6], True), ([2, 0, 3], False)):
            loader = NeighborLoader(graph_of(), fanouts, batch_size=70, replace=replace, seed=1)
            self.assertEqual(len(loader), 5)
            seen = []
            for input_nodes, output_nodes, blocks in loader:
                seen.append(output_nodes)
                self.assertEqual(len(blocks), len(fanouts))
                self.check_rows(blocks[0].srcdata, NODE_ROWS, input_nodes)
                self.check_rows(blocks[-1].dstdata, NODE_ROWS, output_nodes)
                nodes = output_nodes
                for block, fanout in zip(reversed(blocks), fanouts):
                    src, dst = block.edges()
                    sources = input_nodes[:block.num_src_nodes()]
                    self.assertTrue(torch.equal(sources[:block.num_dst_nodes()], nodes))
                    self.assertEqual(sources.unique().numel(), sources.numel())
                    self.check_edges(sources[src], nodes[dst], block.edata["_ID"])
                    self.check_draws(block.in_degrees(), nodes, fanout, replace)
                    self.check_rows(block.edata, EDGE_ROWS, block.edata["_ID"])
                    if not replace:
                        self.assertEqual(block.edata["_ID"].unique().numel(), block.num_edges())
                    nodes = sources
                self.assertTrue(torch.equal(nodes, input_nodes))
            self.assertTrue(torch.equal(torch.cat(seen), torch.arange(N)))

    def test_layers_take_the_blocks(self):
        graph = graph_of()
        layers = [mnn.SAGEConv(3, 4, "mean"), mnn.SAGEConv(4, 2, "mean")]
        x = graph.ndata["half"].float()
        expected = layers[1](graph, layers[0](graph, x))
        for input_nodes, output_nodes, blocks in NeighborLoader(graph, [-1, -1], batch_size=64):
            h = blocks[0].srcdata["half"].float()
            for layer, block in zip(layers, blocks):
                h = layer(block, h)
            torch.testing.assert_close(h, expected[output_nodes])
        h.sum().backward()

    def test_labor_gives_the_inverse_probabilities(self):
        loader = NeighborLoader(graph_of(), [4], batch_size=N, labor=True, seed=3)
        sums = torch.zeros(N)
        for _ in range(200):
            (_, _, (block,)), = loader
            self.assertTrue(bool((block.edata["edge_weights"] >= 1).all()))
            sums.index_add_(0, block.edges()[1], block.edata["edge_weights"])
        torch.testing.assert_close(sums / 200, DEGREES.float(), rtol=0.15, atol=0.5)

    def test_draws_follow_the_weights(self):
        graph = graph_of()
        graph.edata["weight"] = (torch.arange(E) % 2).double()
        for _, _, (block,) in NeighborLoader(graph, [4], batch_size=64, weight_attr="weight"):
            self.assertTrue(bool((block.edata["_ID"] % 2 == 1).all()))


class Epochs(Batches):
    def loaders(self, **options):
        """Of every kind, with equal seeds."""
        return [NeighborLoader(graph_of(), [4, 4], batch_size=32, shuffle=True, **options),
                NeighborLoader(graph_of(), [4], batch_size=32, labor=True, **options),
                ClusterLoader(graph_of(), 12, batch_size=5, shuffle=True, **options),
                SaintLoader(graph_of(), 20, num_steps=6, sample_coverage=3, **options)]

    def test_a_batch_depends_on_the_seed_and_its_place_alone(self):
        first = [[list(loader) for _ in range(2)] for loader in self.loaders(seed=7, num_workers=0)]
        for epochs, loader in zip(first, self.loaders(seed=8)):
            self.assertEqual([len(epoch) for epoch in epochs], [len(loader)] * 2)
            self.assertFalse(equal(epochs[0], epochs[1]))
            self.assertFalse(equal(epochs[0], list(loader)))
        for workers, threads, prefetch in ((0, 2, 1), (1, 1, 1), (2, 1, 3), (3, 2, 2)):
            torch.set_num_threads(threads)
            with torch.inference_mode(threads == 2):
                again = [[list(loader) for _ in range(2)] for loader in self.loaders(
                    seed=7, num_workers=workers, prefetch_factor=prefetch)]
            torch.set_num_threads(1)
            self.assertTrue(equal(first, again))

    def test_the_seed_comes_from_torchs_generator(self):
        results = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            results.append(list(self.loaders()[0]))
        self.assertTrue(equal(results[0], results[1]))
        self.assertFalse(equal(results[0], results[2]))

    def test_every_seed_comes_once_an_epoch(self):
        mask = NODE_ROWS["mask"]
        shares = [mask.nonzero().squeeze(1)[rank::2] for rank in range(2)]  # of two processes
        for drop in (False, True):
            loaders = [NeighborLoader(graph_of(), [2], ids, batch_size=32, shuffle=True,
                                      drop_last=drop, seed=4) for ids in (mask, *shares)]
            for _ in range(3):
                epoch, *parts = [torch.cat([batch[1] for batch in loader]) for loader in loaders]
                for ids, full in ((epoch, 96), (torch.cat(parts), 64)):
                    self.assertEqual(ids.unique().numel(), full if drop else 100)
                    self.assertEqual(ids.numel(), full if drop else 100)
                    self.assertTrue(bool(mask[ids].all()))
            self.assertEqual([len(loader) for loader in loaders], [3, 1, 1] if drop else [4, 2, 2])

    def test_a_loop_may_end_early_or_in_an_error(self):
        for loader in self.loaders(num_workers=2):
            before = count_threads()
            for _ in loader:
                break
            with self.assertRaisesRegex(KeyError, "own"):
                for _ in loader:
                    raise KeyError("own")
            gc.collect()
            self.assertEqual(count_threads(), before)
            pairs = list(zip(loader, loader))  # two loops at once
            self.assertFalse(equal([a for a, _ in pairs], [b for _, b in pairs]))
            self.assertEqual(len(list(loader)), len(loader))

    def test_waiting_releases_the_interpreter(self):
        nodes = 20000
        graph = Graph.from_coo(*torch.randint(nodes, (2, 50 * nodes)), nodes)
        graph.ndata["x"] = torch.ones(nodes, 500)
        times, done = [], threading.Event()

        def record():
            while not done.wait(0.001):
                times.append(time.monotonic())

        other = threading.Thread(target=record)
        other.start()
        begin = time.monotonic()
        next(iter(NeighborLoader(graph, [-1, -1], batch_size=nodes, num_workers=0)))
        duration = time.monotonic() - begin
        done.set()
        other.join()
        self.assertTrue(any(0.2 < (moment - begin) / duration < 0.8 for moment in times))


def count_threads():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


class Subgraphs(Batches):
    def check_all_edges(self, graph):
        nodes, edges = graph.ndata["_ID"], graph.edata["_ID"]
        src, dst = graph.edges()
        self.check_edges(nodes[src], nodes[dst], edges)
        inside = torch.isin(SRC, nodes) & torch.isin(DST, nodes)
        self.assertTrue(torch.equal(edges.sort().values, inside.nonzero().squeeze(1)))
        self.check_rows(graph.ndata, NODE_ROWS, nodes)
        self.check_rows(graph.edata, EDGE_ROWS, edges)
        return nodes

    def test_clusters_have_every_node_once_and_the_edges_among_them(self):
        loader = ClusterLoader(graph_of(), 10, batch_size=4, shuffle=True)
        self.assertEqual(len(loader), 3)
        nodes = torch.cat([self.check_all_edges(graph) for graph in loader])
        self.assertTrue(torch.equal(nodes.sort().values, torch.arange(N)))

    def test_saint_weighs_nodes_and_edges(self):
        for kind in ("node", "edge", "walk"):
            loader = SaintLoader(graph_of(), 40, kind=kind, num_steps=100, sample_coverage=50)
            ones = [float(graph.ndata["node_norm"].sum()) for graph in loader]
            self.assertEqual(len(ones), 100)
            self.assertAlmostEqual(sum(ones) / 100, 1, delta=0.1)
        graph = next(iter(SaintLoader(graph_of(), 40)))
        self.check_all_edges(graph)
        self.assertNotIn("node_norm", graph.ndata)


@unittest.skipIf(NO_PYG, NO_PYG)
class OfPyG(Batches):
    def data(self):
        return Data(edge_index=torch.stack([SRC, DST]), x=NODE_ROWS["bf16"], y=NODE_ROWS["label"],
                    edge_attr=EDGE_ROWS["weight"], name="whole", num_nodes=N)

    def test_a_batch_is_the_sampled_subgraph(self):
        data, seeds = self.data(), torch.randperm(N, generator=generator)[:200]
        for fanouts, replace in (([5, 3], False), ([-1, 4, 2], False), ([6, 2], True)):
            loader = NeighborLoader(data, fanouts, seeds, batch_size=30, shuffle=True, seed=2,
                                    replace=replace)
            seen = []
            for batch in loader:
                self.assertIsInstance(batch, Data)
                self.assertEqual((batch.name, batch.num_nodes), ("whole", batch.n_id.numel()))
                self.assertEqual(batch.n_id.unique().numel(), batch.num_nodes)
                own = batch.n_id[:batch.batch_size]
                self.assertTrue(torch.equal(own, seeds[batch.input_id]))
                seen.append(own)
                src, dst = batch.edge_index
                self.check_edges(batch.n_id[src], batch.n_id[dst], batch.e_id)
                self.check_rows(batch, {"x": data.x, "y": data.y}, batch.n_id)
                self.check_rows(batch, {"edge_attr": data.edge_attr}, batch.e_id)
                self.assertEqual(sum(batch.num_sampled_nodes), batch.num_nodes)
                self.assertEqual(sum(batch.num_sampled_edges), batch.num_edges)
                counts, first, edge = torch.bincount(dst, minlength=batch.num_nodes), 0, 0
                for hop, fanout in enumerate(fanouts):
                    end = first + batch.num_sampled_nodes[hop]
                    self.check_draws(counts[first:end], batch.n_id[first:end], fanout, replace)
                    into = dst[edge:edge + batch.num_sampled_edges[hop]]
                    self.assertTrue(bool(((into >= first) & (into < end)).all()))
                    first, edge = end, edge + into.numel()
                self.assertEqual(counts[first:].sum(), 0)
            self.assertTrue(torch.equal(torch.cat(seen).sort().values, seeds.sort().values))

    def test_accelerated_models_compute_the_same_on_the_kept_structure(self):
        data = self.data()
        data.x = NODE_ROWS["half"].double()
        for layers in ([pyg.SAGEConv(3, 4), pyg.SAGEConv(4, 2)],
                       [pyg.GCNConv(3, 4), pyg.GATConv(4, 2)]):
            model = pyg.Sequential("x, e", [(layer, "x, e -> x") for layer in layers]).double()
            batches = list(NeighborLoader(data, [4, 4], batch_size=50))
            expected = [model(batch.x, batch.edge_index) for batch in batches]
            mezzo.pyg.accelerate(model, verbose=False)
            for batch, value in zip(batches, expected):
                result = model(batch.x, batch.edge_index)
                torch.testing.assert_close(result, value)
                count = batch.num_nodes
                made = mezzo.graph.kept(batch.edge_index, (count, count, 0), lambda: None)
                self.assertTrue(torch.equal(torch.stack(made.edges()), batch.edge_index))
            result.sum().backward()

    def test_clusters_and_saint(self):
        for loader in (ClusterLoader(self.data(), 8), SaintLoader(self.data(), 30)):
            for batch in loader:
                src, dst = batch.edge_index
                self.check_edges(batch.n_id[src], batch.n_id[dst], batch.e_id)
                self.check_rows(batch, {"x": self.data().x}, batch.n_id)
                self.assertEqual(batch.num_nodes, batch.n_id.numel())


class Errors(unittest.TestCase):
    def test_name_the_argument(self):
        graph, short = graph_of(), graph_of()
        short.ndata["x"] = torch.ones(3)
        for kind, text, call in (
                (ValueError, "num_neighbors of at least 0, or -1 for all, got -2",
                 lambda: NeighborLoader(graph, [3, -2])),
                (ValueError, r"num_neighbors in \[0, 2\^31\) with replace, got -1",
                 lambda: NeighborLoader(graph, [-1], replace=True)),
                (ValueError, "num_neighbors of 1 to 256 hops, got 0",
                 lambda: NeighborLoader(graph, [])),
                (TypeError, "argument 'num_neighbors'", lambda: NeighborLoader(graph, 3)),
                (TypeError, "argument 'input_nodes'", lambda: NeighborLoader(graph, [3], "a")),
                (TypeError, "argument 'batch_size'",
                 lambda: NeighborLoader(graph, [3], batch_size="a")),
                (TypeError, "argument 'num_parts'", lambda: ClusterLoader(graph, None)),
                (ValueError, r"expected input_nodes in \[0, 300\), got 300",
                 lambda: NeighborLoader(graph, [3], torch.tensor([300]))),
                (ValueError, "distinct input_nodes, got 2 more than once",
                 lambda: NeighborLoader(graph, [3], torch.tensor([2, 1, 2]))),
                (ValueError, "batch_size of at least 1, got 0",
                 lambda: NeighborLoader(graph, [3], batch_size=0)),
                (ValueError, "replace = False with labor",
                 lambda: NeighborLoader(graph, [3], labor=True, replace=True)),
                (ValueError, "weight_attr to name edge weights, got w",
                 lambda: NeighborLoader(graph, [3], weight_attr="w")),
                (ValueError, "'x'.*300", lambda: NeighborLoader(short, [3])),
                (ValueError, "num_workers: expected 0 to 256, got -1",
                 lambda: NeighborLoader(graph, [3], num_workers=-1)),
                (ValueError, "kind to be node, edge or walk, got 'x'",
                 lambda: SaintLoader(graph, 3, kind="x")),
                (ValueError, "num_parts in", lambda: ClusterLoader(graph, 301)),
                (ValueError, "expected data with an edge_index, got list",
                 lambda: NeighborLoader([], [3]))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
