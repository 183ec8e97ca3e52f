#!/usr/bin/env python3
"""torch.compile, torch.export, torch.func and torch.library.opcheck with the Python package.

usage: package_compile_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import importlib
import io
import os
import sys
import tempfile
import unittest
import unittest.mock

from load_torch import SKIPPED, load_package

torch = load_package(*sys.argv[1:4])
try:
    import torch._dynamo.testing
    import torch._inductor
except ImportError as reason:
    print(f"SKIPPED: {sys.executable} lacks what torch.compile needs: {reason}")
    sys.exit(SKIPPED)
torch.set_num_threads(1)  # small graphs
import mezzo.nn as mnn  # noqa: E402
from mezzo import ops  # noqa: E402
from mezzo.graph import Graph  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

library, traced = torch.ops.mezzo, torch.ops.mezzo_traced
REDUCERS = ("sum", "mean", "max", "min", "prod")


def random_graph(num_src=12, num_dst=9, num_edges=60, seed=1):
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(num_src, (num_edges,), generator=generator)
    dst = torch.randint(num_dst, (num_edges,), generator=generator)
    return torch.classes.mezzo.Topology.from_coo(src, dst, num_src, num_dst)


def graph_with_loops(num_nodes=20, num_edges=80, seed=1):
    src, dst = random_graph(num_nodes, num_nodes, num_edges, seed).edges()
    loops = torch.arange(num_nodes)
    return Graph.from_coo(torch.cat([src, loops]), torch.cat([dst, loops]), num_nodes)


def numbers(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator).add(0.5).to(dtype)


def leaf(*shape, dtype=torch.float32, seed=0):
    return numbers(*shape, dtype=dtype, seed=seed).requires_grad_()


class Model(torch.nn.Module):
    """Two layers of a kind, 8 features to 4."""

    def __init__(self, layer, width, classes, dtype=None):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(8, width), layer(16, classes)
        self.dtype = dtype

    def forward(self, graph, x):
        with torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None):
            x = self.first(graph, x).flatten(1).relu()
            return self.second(graph, x).flatten(1)


class OnGraph(torch.nn.Module):
    """A model of features only, for torch.export, whose inputs are tensors."""

    def __init__(self, model, graph):
        super().__init__()
        self.model, self.graph = model, graph

    def forward(self, x):
        return self.model(self.graph, x)


MODELS = {
    "GCN": lambda dtype=None: Model(mnn.GraphConv, 16, 4, dtype),
    "SAGE": lambda dtype=None: Model(lambda i, o: mnn.SAGEConv(i, o, "mean"), 16, 4, dtype),
    "SAGE, gcn": lambda dtype=None: Model(lambda i, o: mnn.SAGEConv(i, o, "gcn"), 16, 4, dtype),
    "GAT": lambda dtype=None: Model(lambda i, o: mnn.GATConv(i, o, 2), 8, 2, dtype),
}


def outcome(run, parameters, *inputs):
    """The output, and the gradients of a loss."""
    out = run(*inputs)
    loss = torch.nn.functional.cross_entropy(out.float(), torch.arange(len(out)) % 4)
    return out, *torch.autograd.grad(loss, parameters)


class Compile(unittest.TestCase):
    def compiled(self, function, backend="aot_eager"):
        """The compiled function, which counts its compilations."""
        torch._dynamo.reset()
        self.counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
        return torch.compile(function, fullgraph=True, backend=self.counter)

    def compare(self, compiled, function, parameters, *inputs):
        for value, expected in zip(outcome(compiled, parameters, *inputs),
                                   outcome(function, parameters, *inputs)):
            self.assertEqual(value.dtype, expected.dtype)
            torch.testing.assert_close(value, expected)

    def test_models_have_no_graph_breaks_and_the_same_gradients(self):
        for backend, dtypes in (("aot_eager", (None, torch.bfloat16, torch.float16)),
                                ("inductor", (None,))):
            for name, make in MODELS.items():
                for dtype in dtypes:
                    with self.subTest(name, backend=backend, dtype=dtype):
                        model = make(dtype)
                        self.compare(self.compiled(model, backend), model,
                                     list(model.parameters()), graph_with_loops(), numbers(20, 8))

    def test_a_model_is_compiled_twice_for_graphs_of_all_sizes(self):
        for name, make in MODELS.items():
            with self.subTest(name):
                model = make()
                compiled = self.compiled(model)
                for i, size in enumerate((20, 21, 35, 50)):
                    # The other call gets a graph of its own, which may keep what it computes.
                    graphs = [graph_with_loops(size, 4 * size + i, seed=i) for _ in range(2)]
                    values, expected = (
                        outcome(run, list(model.parameters()), graph, numbers(size, 8))
                        for run, graph in zip((compiled, model), graphs))
                    torch.testing.assert_close(values, expected)
                self.assertEqual(self.counter.frame_count, 2)

    def test_another_structure_of_the_raw_operators_is_compiled_again(self):
        def run(topology, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                sums = library.gspmm(topology, "copy_lhs", "sum", x, None, "u", "e")
            mean = sums / topology.in_degrees().clamp(min=1).unsqueeze(1)
            return library.gspmm(topology, "copy_lhs", "mean", x, None, "u", "e") + mean

        compiled = self.compiled(run)
        for num_dst, seed in ((9, 1), (9, 2), (5, 3)):
            x = leaf(12, 4)
            self.compare(compiled, run, [x], random_graph(num_dst=num_dst, seed=seed), x)
        self.assertEqual(self.counter.frame_count, 2)
        with torch.inference_mode():
            torch.testing.assert_close(compiled(random_graph(), x), run(random_graph(), x))

    def test_a_layer_takes_a_topology(self):
        layer, x = mnn.SAGEConv(8, 4, "mean"), numbers(12, 8)
        self.compare(self.compiled(layer), layer, list(layer.parameters()), random_graph(12, 9), x)

    def test_a_structure_may_be_freed_before_the_backward(self):
        def run(topology, x):
            return library.gspmm(topology, "copy_lhs", "sum", x, None, "u", "e")

        x = leaf(12, 3)
        value = self.compiled(run)(random_graph(), x)
        torch.testing.assert_close(torch.autograd.grad(value.sum(), x),
                                   torch.autograd.grad(run(random_graph(), x).sum(), x))

    def test_segments_and_products(self):
        lengths, ids = torch.tensor([2, 0, 4]), torch.tensor([2, 0, 1, 2, 0, 0])

        def run(x, b):
            return torch.cat([ops.segment_reduce("max", lengths, x),
                              ops.segment_softmax(lengths, x),
                              ops.segment_mm(x, b, lengths), ops.gather_mm(x, b, ids)])

        x, b = leaf(6, 4), leaf(3, 4, 4, seed=1)
        self.compare(self.compiled(run), run, [x, b], x, b)

    def test_the_gradient_of_dropout_draws_the_same_elements(self):
        for backend in ("aot_eager", "inductor"):
            compiled = self.compiled(lambda x: ops.dropout(x, 0.5) * 3, backend)
            x = leaf(50, 40)
            first, second = compiled(x), compiled(x)
            self.assertFalse(torch.equal(first, second))
            for value in (second, first):
                grad, = torch.autograd.grad(value.sum(), x)
                torch.testing.assert_close(grad * x, value)

    def test_a_node_without_in_edges_is_an_error(self):
        compiled = self.compiled(mnn.GraphConv(8, 4))
        graph = Graph(random_graph(20, 20, 5))
        with self.assertRaisesRegex(RuntimeError, "GraphConv: expected an in-edge"):
            compiled(graph, numbers(20, 8))


class Other(unittest.TestCase):
    def test_models_are_exported_saved_and_loaded(self):
        graph, x = graph_with_loops(), numbers(20, 8)
        for name, make in MODELS.items():
            with self.subTest(name):
                model = OnGraph(make(), graph)
                file = io.BytesIO()
                torch.export.save(torch.export.export(model, (x,)), file)
                file.seek(0)
                torch.testing.assert_close(torch.export.load(file).module()(x), model(x))

    def test_parameters_are_replaced_by_functional_call(self):
        graph, x = graph_with_loops(), numbers(20, 8)
        model, other = MODELS["SAGE"](), {}
        for name, parameter in model.named_parameters():
            other[name] = (parameter.detach() * 2).requires_grad_()
        expected = MODELS["SAGE"]()
        expected.load_state_dict(other)
        values = outcome(lambda *inputs: torch.func.functional_call(model, other, inputs),
                         list(other.values()), graph, x)
        torch.testing.assert_close(values, outcome(expected, list(expected.parameters()), graph, x))


def calls(dtype):
    """A name and arguments of each public operator, also of each kind of gradient."""
    graph = random_graph()
    x, w, v, logits = (leaf(12, 4, dtype=dtype), leaf(60, 1, dtype=dtype, seed=1),
                       leaf(9, 4, dtype=dtype, seed=2), leaf(60, 2, dtype=dtype, seed=3))
    z, scores = leaf(12, 2, 3, dtype=dtype), [leaf(n, 2, dtype=dtype, seed=n) for n in (12, 9)]
    b, lengths = leaf(3, 4, 5, dtype=dtype, seed=4), torch.tensor([7, 0, 5])
    for reduce in REDUCERS:
        yield "gspmm", (graph, "copy_lhs", reduce, x, None, "u", "e")
        yield "gspmm", (graph, "mul", reduce, x, w, "u", "e")
    yield "gspmm", (graph, "copy_rhs", "sum", None, w, "u", "e")
    yield "gspmm", (graph, "mul", "sum", x, leaf(60, 1, seed=1), "u", "e")  # float32 weights
    yield "gsddmm", (graph, "dot", x, v, "u", "v")
    yield "gsddmm", (graph, "add", x, v, "u", "v")
    yield "scaled_sum", (graph, x, None, numbers(12), None)
    yield "scaled_sum", (graph, x, w, numbers(12), numbers(9))
    yield "edge_softmax", (graph, logits, "dst")
    yield "edge_softmax", (graph, logits, "src")
    yield "gat_attention", (graph, z, *scores, None, 0.2, 0.5, 7)
    yield "gat_attention", (graph, z, *scores, logits, 0.2, 0.0, 0)
    yield "gatv2_scores", (graph, z, leaf(9, 2, 3, dtype=dtype, seed=4),
                           leaf(2, 3, dtype=dtype, seed=5), 0.2)
    yield "linear", (x, leaf(5, 4, dtype=dtype, seed=6), leaf(5, dtype=dtype, seed=7))
    yield "linear", (z, leaf(5, 3, dtype=dtype, seed=6), None)
    yield "dropout", (x, 0.5, 7)
    yield "segment_reduce", ("sum", lengths, x)
    yield "segment_softmax", (lengths, x)
    yield "segment_mm", (x, b, lengths)
    yield "gather_mm", (x, b, torch.arange(12) % 3)
    ends = leaf(12, 5, dtype=dtype), leaf(9, 5, dtype=dtype), leaf(60, 4, dtype=dtype)
    out = leaf(4, 5, dtype=dtype), leaf(4, dtype=dtype)
    norm = [leaf(4, dtype=torch.promote_types(dtype, torch.float32)) for _ in range(2)]
    for hidden in (None, None), (leaf(2, 5, 5, dtype=dtype), leaf(2, 5, dtype=dtype)):
        yield "edge_mlp", (graph, *ends, leaf(5, 4, dtype=dtype), *hidden, *out, *norm)


def registered(namespace):
    return {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names()
            if name.startswith(f"{namespace}::")}


class ComparesMeta(TorchDispatchMode):
    """Compares the results of each operator of Mezzo with those of its meta kernel."""

    def __init__(self, test):
        super().__init__()
        self.test, self.names = test, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        if function.namespace in ("mezzo", "mezzo_traced"):
            name = function.name().split("::")[1]
            self.names.add(name)
            if name != "topology":  # which takes no tensor
                metas = function(*torch.utils._pytree.tree_map_only(
                    torch.Tensor, lambda t: torch.empty_strided(
                        t.shape, t.stride(), dtype=t.dtype, device="meta"), args))
                self.test.assertEqual(self.facts(metas), self.facts(results), name)
        return results

    @staticmethod
    def facts(results):
        return [t if t is None else (t.shape, t.stride(), t.dtype)
                for t in (results if isinstance(results, tuple) else (results,))]


class Operators(unittest.TestCase):
    def setUp(self):
        """torch 2.11 takes the length of an object to see whether it is a list of tensors."""
        checks = importlib.import_module("torch._subclasses.schema_check_mode")
        is_list = checks.is_iterable_of_tensors
        patch = unittest.mock.patch.object(
            checks, "is_iterable_of_tensors",
            lambda one, *more: not isinstance(one, torch.ScriptObject) and is_list(one, *more))
        patch.start()
        self.addCleanup(patch.stop)

    def test_opcheck_passes_for_every_public_operator(self):
        names = set()
        for dtype in (torch.float32, torch.bfloat16):
            for name, arguments in calls(dtype):
                names.add(name)
                with self.subTest(name, dtype=dtype):
                    torch.library.opcheck(getattr(library, name).default, arguments)
        self.assertEqual(names, {one for one in registered("mezzo") if not one.startswith("_")})

    def test_meta_kernels_agree_with_every_operator(self):
        names = set()
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            with ComparesMeta(self) as mode:
                for name, arguments in calls(dtype):
                    if dtype == torch.float64 and name in ("gspmm", "scaled_sum"):
                        continue  # their factors are float64, too
                    operator = getattr(library, name)
                    if isinstance(arguments[0], torch.ScriptObject):
                        operator = getattr(traced, name)
                        arguments = (traced.topology(arguments[0]), *arguments[1:])
                    results = torch.utils._pytree.tree_leaves(operator(*arguments))
                    sum(t.sum() for t in results).backward()
                    with torch.inference_mode():  # else an internal operator replaces some
                        operator(*arguments)
                tensor = traced.topology(random_graph())
                for method in ("in_degrees", "out_degrees", "reverse"):
                    getattr(traced, method)(tensor)
            names |= mode.names
        # _same_ids, of sparse rows, returns a bool that depends on data.
        self.assertEqual(names, (registered("mezzo") | registered("mezzo_traced")) - {"_same_ids"})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        unittest.main(argv=sys.argv[:1])
