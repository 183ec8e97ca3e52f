#!/usr/bin/env python3
"""mezzo.pyg.accelerate and mezzo.dgl.accelerate against the layers of PyG and DGL, where these can
be imported; otherwise the tests of that library are skipped.

usage: package_peers_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import copy
import io
import sys
import unittest
import unittest.mock
import warnings

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
torch.set_num_threads(1)  # small graphs
import mezzo.nn as mnn  # noqa: E402
from mezzo.graph import Graph  # noqa: E402

try:
    import torch_geometric.nn as pyg
    from torch_geometric.data import Batch, Data

    import mezzo.pyg
    NO_PYG = ""
except ImportError as reason:
    NO_PYG = f"torch_geometric cannot be imported: {reason}"
try:
    import dgl

    import mezzo.dgl
    NO_DGL = ""
except (ImportError, OSError) as reason:
    NO_DGL = f"dgl cannot be imported: {reason}"

N, IN = 12, 6


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class Peers(unittest.TestCase):
    def compare(self, layer, accelerate, call, *inputs):
        """Values and gradients of the layer and of its accelerated copy, which keeps its
        parameters and their names."""
        layer = layer.double()
        model = torch.nn.Sequential(copy.deepcopy(layer))
        before = dict(model.named_parameters())
        report = accelerate(model, verbose=False)
        self.assertEqual((len(report.replaced), report.left), (1, {}))
        self.assertEqual(list(model.state_dict()), [f"0.{key}" for key in layer.state_dict()])
        after = dict(model.named_parameters())
        self.assertTrue(all(after[name] is before[name] for name in before))
        results = []
        for module in (model[0], layer):
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = call(module, *leaves)
            gradients = torch.autograd.grad((out * numbers(*out.shape, seed=9)).sum(),
                                            [*leaves, *module.parameters()], allow_unused=True)
            results.append((out, [g for g in gradients if g is not None]))
        torch.testing.assert_close(*results)


@unittest.skipIf(NO_PYG, NO_PYG)
class PyG(Peers):
    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        self.edges = torch.randint(N, (2, 60), generator=generator)
        self.edges[:, :2] = torch.tensor([4, 5])  # self loops
        self.edges = self.edges[:, self.edges[1] != 2]  # node 2 has no in-edges
        self.weight = numbers(self.edges.shape[1], seed=3).abs() + 0.2

    def check(self, layer, *inputs):
        self.compare(layer, mezzo.pyg.accelerate,
                     lambda l, *x: l(x if len(x) > 1 else x[0], self.edges),
                     *(inputs or [numbers(N, IN)]))

    def test_gcn(self):
        for out in (3, 8):
            for options in ({}, {"improved": True}, {"add_self_loops": False}, {"cached": True},
                            {"normalize": False, "bias": False}):
                with self.subTest(f"{out} {options}"):
                    layer = pyg.GCNConv(IN, out, **options)
                    self.check(layer)
                    self.compare(layer, mezzo.pyg.accelerate,
                                 lambda l, x, w: l(x, self.edges, w), numbers(N, IN), self.weight)
                    self.compare(layer, mezzo.pyg.accelerate,
                                 lambda l, x: l(x, self.edges, self.weight), numbers(N, IN))

    def test_sage_and_gin(self):
        for out in (3, 8):
            for aggr in ("mean", "sum", "add", "max", "min"):
                with self.subTest(f"{out} {aggr}"):
                    self.check(pyg.SAGEConv(IN, out, aggr=aggr))
            self.check(pyg.SAGEConv(IN, out, normalize=True, project=True))
            self.check(pyg.SAGEConv(IN, out, root_weight=False, bias=False))
            self.check(pyg.SAGEConv((IN, 4), out), numbers(N, IN), numbers(N, 4))
            for trains in (False, True):
                self.check(pyg.GINConv(torch.nn.Linear(IN, out), 0.3, trains))
                self.check(pyg.GINConv(torch.nn.Sequential(
                    torch.nn.Linear(IN, out), torch.nn.ReLU(), torch.nn.Linear(out, 2))))

    def test_attention(self):
        for kind in (pyg.GATConv, pyg.GATv2Conv):
            for options in ({}, {"concat": False}, {"residual": True}, {"add_self_loops": False},
                            {"residual": True, "concat": False, "bias": False}):
                with self.subTest(f"{kind.__name__} {options}"):
                    self.check(kind(IN, 3, heads=2, **options))
                    self.check(kind((IN, 4), 3, heads=2, **options), numbers(N, IN), numbers(N, 4))
        self.check(pyg.GATv2Conv(IN, 3, heads=2, share_weights=True))

    def test_attention_drops_while_training(self):
        for kind in (pyg.GATConv, pyg.GATv2Conv):
            layer = kind(IN, 64, dropout=0.5).double()
            expected, x = layer.eval()(numbers(N, IN), self.edges), numbers(N, IN)
            mezzo.pyg.accelerate(layer.train(), verbose=False)
            with torch.no_grad():
                self.assertFalse(torch.allclose(layer(x, self.edges), expected))
                mean = sum(layer(x, self.edges) for _ in range(1000)) / 1000
            torch.testing.assert_close(mean, expected, rtol=0.1, atol=0.3)

    def test_it_says_what_it_left(self):
        model = torch.nn.Sequential(
            pyg.GCNConv(IN, 4), pyg.GATConv(IN, 4, edge_dim=3), pyg.GraphConv(IN, 3),
            pyg.SAGEConv(IN, 4, aggr=["mean", "max"]), pyg.GCNConv(4, 4, flow="target_to_source"),
            type("Own", (pyg.GCNConv,), {})(4, 4), torch.nn.Linear(3, 3))
        report = mezzo.pyg.accelerate(model, verbose=False)
        self.assertEqual(report.replaced, ["0 (GCNConv)"])
        self.assertEqual(report.left, {
            "1 (GATConv)": "edge_dim is set", "2 (GraphConv)": "no counterpart",
            "3 (SAGEConv)": "aggr is ['mean', 'max']", "4 (GCNConv)": "flow is target_to_source",
            "5 (Own)": "a subclass, which may compute something else"})
        self.assertIn("left 2 (GraphConv): no counterpart", str(report))
        self.assertEqual(mezzo.pyg.accelerate(model[0], verbose=False).replaced, [])

    def test_a_structure_lives_as_long_as_its_edges_and_follows_their_changes(self):
        layer, x = pyg.GCNConv(IN, 3).double(), numbers(N, IN)
        plain = copy.deepcopy(layer)
        mezzo.pyg.accelerate(layer, verbose=False)
        edges = self.edges.clone()
        first = mezzo.pyg._structure(edges, N, N, N)
        layer(x, edges)
        self.assertIs(mezzo.pyg._structure(edges, N, N, N), first)
        edges[0, 5] = 11
        torch.testing.assert_close(layer(x, edges), plain(x, edges))
        self.assertIsNot(mezzo.pyg._structure(edges, N, N, N), first)
        before = len(mezzo.graph._kept)
        del edges
        self.assertEqual(len(mezzo.graph._kept), before - 1)

    def test_a_call_without_counterpart_runs_pygs_code(self):
        layer, x = pyg.GATConv(IN, 3).double(), numbers(N, IN)
        plain = copy.deepcopy(layer)
        mezzo.pyg.accelerate(layer, verbose=False)
        torch.testing.assert_close(layer(x, self.edges, return_attention_weights=True)[1],
                                   plain(x, self.edges, return_attention_weights=True)[1])

    def test_a_layer_that_changes_after_the_swap_runs_pygs_code(self):
        layer, x = pyg.GCNConv(-1, 3).double(), numbers(N, IN)  # PyG's code gives it its sizes
        self.assertEqual(len(mezzo.pyg.accelerate(layer, verbose=False).replaced), 1)
        self.assertEqual(layer(x, self.edges).shape, (N, 3))
        plain = pyg.GCNConv(IN, 3, flow="target_to_source").double()
        plain.load_state_dict(layer.state_dict())
        layer.flow = "target_to_source"
        torch.testing.assert_close(layer(x, self.edges), plain(x, self.edges))

    def test_a_copy_can_be_explained_and_scripted(self):
        layer, x = pyg.GCNConv(IN, 3).double(), numbers(N, IN)
        mezzo.pyg.accelerate(layer, verbose=False)
        expected, layer = layer(x, self.edges), copy.deepcopy(layer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            scripted = torch.jit.script(layer)
        torch.testing.assert_close(scripted(x, self.edges), expected)
        torch.testing.assert_close(layer(x, self.edges), expected)
        layer._edge_mask, layer._apply_sigmoid = torch.zeros(self.edges.shape[1]).double(), False
        layer._loop_mask, layer.explain = self.edges[0] != self.edges[1], True
        self.assertFalse(torch.allclose(layer(x, self.edges), expected))

    def test_a_model_trains_and_is_saved_with_the_optimizer_it_had(self):
        torch.manual_seed(4)
        model = pyg.models.GCN(IN, 8, 2, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        mezzo.pyg.accelerate(model, verbose=False)
        x, labels, losses = numbers(N, IN).float(), torch.arange(N) % 2, []
        for _ in range(40):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(x, self.edges)
            loss = torch.nn.functional.cross_entropy(logits.float(), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
        torch.testing.assert_close(other(x, self.edges), model(x, self.edges))
        pyg.models.GCN(IN, 8, 2, 2).load_state_dict(model.state_dict())

    def test_models_compile_without_graph_breaks_and_are_exported(self):
        models = {"GCN": pyg.models.GCN, "SAGE": pyg.models.GraphSAGE, "GAT": pyg.models.GAT,
                  "GATv2": lambda *sizes: pyg.models.GAT(*sizes, v2=True), "GIN": pyg.models.GIN}
        x, edges, weight = numbers(N, IN).float(), self.edges, {"edge_weight": self.weight.float()}
        for name, make in models.items():
            cases = [("aot_eager", {})]
            cases += [("inductor", {})] if name in ("GCN", "SAGE", "GAT") else []
            cases += [("aot_eager", weight)] if name == "GCN" else []
            for backend, named in cases:
                with self.subTest(name, backend=backend, weighted=bool(named)):
                    torch._dynamo.reset()
                    model = make(IN, 8, 2, 3)
                    mezzo.pyg.accelerate(model, verbose=False)
                    compiled = torch.compile(model, fullgraph=True, backend=backend)
                    for nodes in (N, N + 3):
                        rows = torch.cat([x, x[:nodes - N]])
                        out, expected = compiled(rows, edges, **named), model(rows, edges, **named)
                        torch.testing.assert_close(out, expected)
                        torch.testing.assert_close(
                            *(torch.autograd.grad(y.square().sum(), list(model.parameters()))
                              for y in (out, expected)))
                    exported = torch.export.export(model, (x, edges), named).module()
                    torch.testing.assert_close(exported(x, edges, **named),
                                               model(x, edges, **named))

    def test_a_compiled_model_makes_its_structure_once(self):
        layer, edges = pyg.GATConv(IN, 3), self.edges.clone()
        mezzo.pyg.accelerate(layer, verbose=False)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        with unittest.mock.patch.object(Graph, "from_coo", wraps=Graph.from_coo) as made:
            for i in range(3):
                compiled(numbers(N, IN, seed=i).float(), edges).sum().backward()
        self.assertEqual(made.call_count, 1)

    def test_a_graph_is_made_of_data(self):
        data = Data(x=numbers(N, 2), edge_index=self.edges, edge_attr=self.weight, y=torch.zeros(N))
        graph = Graph.from_pyg(data)
        self.assertEqual((graph.num_nodes(), graph.num_edges()), (N, self.edges.shape[1]))
        self.assertIs(graph.ndata["x"], data.x)
        self.assertIs(graph.edata["edge_attr"], data.edge_attr)
        self.assertTrue(torch.equal(graph.edges()[1], self.edges[1]))
        batch = Graph.from_pyg(Batch.from_data_list([data, data]))
        self.assertEqual(batch.batch_num_nodes().tolist(), [N, N])


@unittest.skipIf(NO_DGL, NO_DGL)
class Dgl(Peers):
    LAYERS = {  # arguments, and those of forward after the features
        "APPNPConv": [((3, 0.2), ())], "ChebConv": [((IN, 3, 3), ([2.0],)), ((IN, 8, 2), ([1.5],))],
        "DotGatConv": [((IN, 3, 2), ())], "EdgeConv": [((IN, 3), ()), ((IN, 8, True), ())],
        "GATConv": [((IN, 3, 2), ()), ((IN, 4, 2, 0, 0, 0.1, True), ())],
        "GATv2Conv": [((IN, 3, 2), ()), ((IN, 4, 2, 0, 0, 0.1, True), ())],
        "GCN2Conv": [((IN, 2), (numbers(N, IN, seed=4),))], "GINConv": [((None, "mean", 0.2), ())],
        "GatedGraphConv": [((IN, 8, 2, 1), ())], "SGConv": [((IN, 3, 2), ()), ((IN, 8), ())],
        "GraphConv": [((IN, 3), ()), ((IN, 8, "right"), ()), ((IN, 3, "left"), ())],
        "SAGEConv": [((IN, 3, "mean"), ()), ((IN, 8, "gcn"), ()), ((IN, 3, "pool"), ()),
                     ((IN, 3, "lstm"), ())],
        "TAGConv": [((IN, 3), ()), ((IN, 8), ())]}

    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        edges = torch.randint(N, (2, 60), generator=generator)
        self.graph = dgl.add_self_loop(dgl.graph((edges[0], edges[1]), num_nodes=N))

    def test_layers_compute_the_same_and_have_the_same_state(self):
        self.assertEqual(sorted(self.LAYERS), sorted(mezzo.dgl._NAMES))
        for name, calls in self.LAYERS.items():
            for arguments, more in calls:
                with self.subTest(f"{name} {arguments}"):
                    layer = getattr(dgl.nn, name)(*arguments)
                    # DGL's edge weights of APPNPConv are float32
                    inputs = numbers(N, IN)
                    if name != "APPNPConv":
                        self.compare(layer, mezzo.dgl.accelerate,
                                     lambda l, x: l(self.graph, x, *more), inputs)
                    own = getattr(mnn, name)(*arguments)
                    own.load_state_dict(layer.float().state_dict())
                    inputs = inputs.float()
                    more = [x.float() if isinstance(x, torch.Tensor) else x for x in more]
                    torch.testing.assert_close(own(Graph.from_dgl(self.graph), inputs, *more),
                                               layer(self.graph, inputs, *more))

    def test_readouts_of_a_batch(self):
        batch = dgl.batch([dgl.graph(([0], [1]), num_nodes=5), dgl.graph(([], []), num_nodes=7)])
        x, gate = numbers(N, IN).float(), torch.nn.Linear(IN, 1)
        for name, arguments in (("SumPooling", ()), ("AvgPooling", ()), ("MaxPooling", ()),
                                ("GlobalAttentionPooling", (gate,)), ("Set2Set", (IN, 3, 2)),
                                ("WeightAndSum", (IN,))):
            layer, own = (getattr(nn, name)(*arguments) for nn in (dgl.nn, mnn))
            own.load_state_dict(layer.state_dict())
            for graph in (batch, Graph.from_dgl(batch)):
                torch.testing.assert_close(own(graph, x), layer(batch, x))
        layers = [x, 2 * x, x + 1]
        for mode in ("cat", "max", "lstm"):
            layer, own = (nn.JumpingKnowledge(mode, IN, 3) for nn in (dgl.nn, mnn))
            own.load_state_dict(layer.state_dict())
            torch.testing.assert_close(own(layers), layer(layers))

    def test_blocks_and_changed_graphs(self):
        block = dgl.to_block(dgl.in_subgraph(self.graph, torch.arange(5)), torch.arange(5))
        x = numbers(block.num_src_nodes(), IN)
        for layer in (dgl.nn.GraphConv(IN, 3), dgl.nn.SAGEConv(IN, 3, "mean"),
                      dgl.nn.GATConv(IN, 3, 2)):
            layer = layer.double()
            expected = layer(block, x)
            mezzo.dgl.accelerate(layer, verbose=False)
            torch.testing.assert_close(layer(block, x), expected)
        layer, x = dgl.nn.GraphConv(IN, 3).double(), numbers(N, IN)
        plain = copy.deepcopy(layer)
        mezzo.dgl.accelerate(layer, verbose=False)
        layer(self.graph, x)
        self.graph.add_edges(torch.tensor([1]), torch.tensor([2]))
        torch.testing.assert_close(layer(self.graph, x), plain(self.graph, x))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
