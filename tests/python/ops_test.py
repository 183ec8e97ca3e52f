#!/usr/bin/env python3
"""The operators from Python, as docs/python.md shows them.

usage: ops_test.py LIBMEZZO VERSION_OF_TORCH DOCS_PYTHON_MD
"""
import copy
import io
import pathlib
import pickle
import re
import sys
import unittest

from load_torch import load_torch

LIBRARY, VERSION = sys.argv[1:3]
DOCUMENT = pathlib.Path(sys.argv[3]).read_text()
torch = load_torch(VERSION)
torch.ops.load_library(LIBRARY)
mezzo = torch.ops.mezzo
Topology = torch.classes.mezzo.Topology

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
REDUCERS = {  # the names in torch
    "sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def four_nodes():
    """Edges 0->1, 0->2, 1->2, 3->2; nodes 0 and 3 have no in-edges."""
    return Topology.from_coo(ids(0, 0, 1, 3), ids(1, 2, 2, 2), 4, 4)


def random_graph():
    generator = torch.Generator().manual_seed(1)
    src = torch.randint(12, (60,), generator=generator)
    dst = torch.randint(9, (60,), generator=generator)
    return src, dst, Topology.from_coo(src, dst, 12, 9)


def numbers(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64).add(0.5).to(dtype)


def leaf(*shape, dtype=torch.float64, seed=0):
    return numbers(*shape, dtype=dtype, seed=seed).requires_grad_()


def copy_u(graph, reduce, x):
    return mezzo.gspmm(graph, "copy_lhs", reduce, x, None, "u", "e")


def reduced(reduce, messages, index, rows):
    """The definition of a reduction, in torch's own operation."""
    zeros = torch.zeros(rows, messages.shape[1], dtype=messages.dtype)
    return zeros.scatter_reduce(0, index.unsqueeze(1).expand_as(messages), messages,
                                REDUCERS[reduce], include_self=False)


class Structure(unittest.TestCase):
    def test_it_comes_from_pairs_or_compressed_rows(self):
        src, dst = ids(0, 0, 1, 3), ids(1, 2, 2, 2)
        by_source = Topology.from_csr(ids(0, 2, 3, 3, 4), dst, 4)
        by_destination = Topology.from_csc(ids(0, 0, 1, 4, 4), ids(0, 0, 1, 3), 4)
        for graph in (four_nodes(), by_source, by_destination):
            self.assertEqual((graph.num_src(), graph.num_dst(), graph.num_edges()), (4, 4, 4))
            self.assertTrue(torch.equal(graph.edges()[0], src))
            self.assertTrue(torch.equal(graph.edges()[1], dst))
            self.assertEqual(graph.in_degrees().tolist(), [0, 1, 3, 0])
            self.assertEqual(graph.out_degrees().tolist(), [2, 1, 0, 1])

    def test_its_reverse_runs_the_other_way(self):
        back = random_graph()[2].reverse()
        self.assertEqual((back.num_src(), back.num_dst()), (9, 12))
        self.assertTrue(torch.equal(back.edges()[0], random_graph()[1]))

    def test_writing_to_ids_does_not_change_it(self):
        src, dst = ids(0, 1).int(), ids(1, 0).int()
        graph = Topology.from_coo(src, dst, 2, 2)
        src.fill_(99)
        graph.edges()[1].fill_(99)
        self.assertEqual([side.tolist() for side in graph.edges()], [[0, 1], [1, 0]])

    def test_it_prints_its_counts(self):
        expected = "mezzo.Topology(12 sources, 9 destinations, 60 edges, cpu)"
        self.assertEqual(str(random_graph()[2]), expected)
        self.assertEqual(repr(random_graph()[2]), expected)

    def test_it_is_copied_and_stored_with_its_edges_in_order(self):
        def through_a_file(graph):
            file = io.BytesIO()
            torch.save(graph, file)
            file.seek(0)
            return torch.load(file, weights_only=False)

        src, dst, graph = random_graph()
        module = torch.nn.Module()
        module.graph = graph
        for other in (copy.deepcopy(graph), copy.deepcopy(module).graph, through_a_file(graph),
                      pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph.reverse()).reverse()):
            self.assertEqual((other.num_src(), other.num_dst()), (12, 9))
            self.assertTrue(torch.equal(other.edges()[0], src))
            self.assertTrue(torch.equal(other.edges()[1], dst))


class Values(unittest.TestCase):
    def test_messages_are_reduced_in_every_dtype(self):
        for dtype in DTYPES:
            x = torch.tensor([1, 2, 3, 4], dtype=dtype, requires_grad=True)
            total = copy_u(four_nodes(), "sum", x)
            self.assertEqual(total.dtype, dtype)
            self.assertEqual(total.tolist(), [0, 1, 7, 0])
            self.assertEqual(copy_u(four_nodes(), "max", x).tolist(), [0, 1, 4, 0])
            self.assertEqual(copy_u(four_nodes(), "min", x).tolist(), [0, 1, 1, 0])
            self.assertEqual(copy_u(four_nodes(), "prod", x).tolist(), [0, 1, 8, 0])
            total.sum().backward()
            self.assertEqual(x.grad.dtype, dtype)
            self.assertEqual(x.grad.tolist(), [2, 1, 0, 1])


class Gradients(unittest.TestCase):
    def check(self, function, formula, *inputs):
        """Value and gradients are those of the formula in torch's own operations."""
        value, expected = function(*inputs), formula(*inputs)
        torch.testing.assert_close(value, expected)
        weights = numbers(*value.shape, seed=9)
        torch.testing.assert_close(torch.autograd.grad((value * weights).sum(), inputs),
                                   torch.autograd.grad((expected * weights).sum(), inputs))

    def test_of_message_passing_are_right(self):
        src, dst, graph = random_graph()
        x, w, v = leaf(12, 2), leaf(60, 1, seed=1), leaf(9, 2, seed=2)
        for reduce in REDUCERS:
            self.check(lambda a, b: mezzo.gspmm(graph, "mul", reduce, a, b, "u", "e"),
                       lambda a, b: reduced(reduce, a[src] * b, dst, 9), x, w)
            self.check(lambda b: mezzo.gspmm(graph, "copy_rhs", reduce, None, b, "u", "e"),
                       lambda b: reduced(reduce, b, dst, 9), w)
        self.check(lambda a, b: mezzo.scaled_sum(graph, a, b, None, None),
                   lambda a, b: reduced("sum", a[src] * b, dst, 9), x, w)
        self.check(lambda a, b: mezzo.gsddmm(graph, "dot", a, b, "u", "v"),
                   lambda a, b: (a[src] * b[dst]).sum(-1, keepdim=True), x, v)
        self.check(lambda b: mezzo.gsddmm(graph, "copy_rhs", None, b, "u", "v"),
                   lambda b: b[dst], v)
        for by, node, rows in (("dst", dst, 9), ("src", src, 12)):
            self.check(lambda a: mezzo.edge_softmax(graph, a, by),
                       lambda a: a.exp() / reduced("sum", a.exp(), node, rows)[node], w)

    def test_of_attention_are_right(self):
        src, dst, graph = random_graph()
        leaky = torch.nn.functional.leaky_relu

        def weighted(logits, factors, rows):
            powers = logits.exp()
            shares = factors * powers / reduced("sum", powers, dst, 9)[dst]
            messages = (shares.unsqueeze(-1) * rows[src]).flatten(1)
            return reduced("sum", messages, dst, 9).view(9, 2, 3)

        def negative(*shape, seed):
            return numbers(*shape, seed=seed).neg().requires_grad_()

        z, score_src, score_dst = leaf(12, 2, 3), leaf(12, 2, seed=1), negative(9, 2, seed=2)
        self.check(lambda *given: mezzo.gat_attention(graph, *given, 0.2, 0.0, 0),
                   lambda a, s, d, w: weighted(leaky(s[src] + d[dst], 0.2), w, a),
                   z, score_src, score_dst, leaf(60, 2, seed=3))

        def pairs(a, b, attn):
            return (attn * leaky(a[src] + b[dst], 0.2)).sum(-1)

        self.check(lambda *given: mezzo.gatv2_scores(graph, *given, 0.2), pairs, z,
                   negative(9, 2, 3, seed=4), leaf(2, 3, seed=5))

    def test_of_dropout_fall_on_what_stays(self):
        x = leaf(50, 4)
        out = mezzo.dropout(x, 0.5, 7)
        self.assertTrue(torch.equal(out, mezzo.dropout(x, 0.5, 7)))
        self.assertFalse(torch.equal(out, mezzo.dropout(x, 0.5, 8)))
        kept = torch.where(out == 0, 0.0, 2.0).to(x.dtype)
        self.assertTrue(torch.equal(out, x * kept))
        self.assertTrue(torch.equal(torch.autograd.grad(out.sum(), x)[0], kept))

    def test_of_segments_are_right(self):
        x, lengths = leaf(6, 3), ids(2, 0, 4)
        segment = torch.arange(3).repeat_interleave(lengths)
        for reduce in REDUCERS:
            self.check(lambda a: mezzo.segment_reduce(reduce, lengths, a),
                       lambda a: reduced(reduce, a, segment, 3), x)
        self.check(lambda a: mezzo.segment_softmax(lengths, a),
                   lambda a: torch.cat([part.softmax(0) for part in a.split([2, 4])]), x)

    def test_of_products_are_right(self):
        x, b, idx = leaf(6, 3), leaf(3, 3, 4, seed=1), ids(2, 0, 1, 2, 0, 0)
        self.check(lambda a, w: mezzo.linear(a, w, None), lambda a, w: a @ w.T, x,
                   leaf(4, 3, seed=2))
        self.check(lambda a, w: mezzo.segment_mm(a, w, ids(2, 0, 4)),
                   lambda a, w: torch.cat([a[:2] @ w[0], a[2:] @ w[2]]), x, b)
        self.check(lambda a, w: mezzo.gather_mm(a, w, idx),
                   lambda a, w: torch.bmm(a.unsqueeze(1), w[idx]).squeeze(1), x, b)

    def test_a_second_one_is_an_error(self):
        x = leaf(4)
        with self.assertRaisesRegex(RuntimeError, "second derivatives"):
            torch.autograd.grad(copy_u(four_nodes(), "sum", x).sum(), x, create_graph=True)

    def test_none_are_kept_without_autograd(self):
        x = leaf(4)
        with torch.no_grad():
            self.assertFalse(copy_u(four_nodes(), "sum", x).requires_grad)
        with torch.inference_mode():
            self.assertFalse(copy_u(four_nodes(), "sum", x).requires_grad)


class Autocast(unittest.TestCase):
    def test_nodes_and_weights_are_lowered_and_gradients_are_not(self):
        graph = random_graph()[2]
        for dtype in (torch.bfloat16, torch.float16):
            x, w = leaf(12, 4, dtype=torch.float32), leaf(60, 1, dtype=torch.float32)
            weight = leaf(3, 4, dtype=torch.float32)
            b = leaf(2, 4, 3, dtype=torch.float32)
            with torch.autocast("cpu", dtype=dtype):
                h = mezzo.linear(x, weight, None)
                made = [h, mezzo.gspmm(graph, "mul", "mean", h, w, "u", "e"),
                        mezzo.segment_reduce("sum", ids(5, 7), x),
                        mezzo.segment_mm(x, b, ids(5, 7))]
                self.assertEqual(mezzo.edge_softmax(graph, w, "dst").dtype, torch.float32)
            self.assertEqual([one.dtype for one in made], [dtype] * 4)
            sum(one.float().sum() for one in made).backward()
            for one in (x, w, weight, b):
                self.assertEqual(one.grad.dtype, torch.float32)

    def test_a_model_learns_in_a_region(self):
        """Two layers of neighbours' means tell apart two rings whose features are noise."""
        nodes = torch.arange(40)
        dst = torch.where(nodes % 20 == 19, nodes - 19, nodes + 1)
        graph = Topology.from_coo(torch.cat([nodes, nodes]), torch.cat([dst, nodes]), 40, 40)
        labels = (nodes >= 20).long()
        torch.manual_seed(1)
        x = torch.randn(40, 8) + labels.unsqueeze(1)
        weights = [torch.nn.Parameter(torch.randn(16, 8) / 4),
                   torch.nn.Parameter(torch.randn(2, 16) / 4)]
        losses = []
        for _ in range(60):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = torch.relu(copy_u(graph, "mean", mezzo.linear(x, weights[0], None)))
                logits = copy_u(graph, "mean", mezzo.linear(h, weights[1], None))
            loss = torch.nn.functional.cross_entropy(logits.float(), labels)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients):
                    weight -= 0.5 * gradient
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 4)
        self.assertEqual(logits.argmax(1).tolist(), labels.tolist())


class Errors(unittest.TestCase):
    def test_they_name_the_argument_and_what_came(self):
        graph = four_nodes()
        x = torch.ones(3)
        for text, run in {
                r"gspmm: expected lhs \[4, ...\]": lambda: copy_u(graph, "sum", x),
                "'avg' is not one of sum, mean, max, min": lambda: copy_u(graph, "avg", x),
                "from_coo: expected src in": lambda: Topology.from_coo(ids(7), ids(0), 2, 2),
                "lengths that add up to the 3 rows, got 2":
                    lambda: mezzo.segment_reduce("sum", ids(1, 1), x),
                "gather_mm: expected idx in": lambda: mezzo.gather_mm(
                    torch.ones(1, 2), torch.ones(1, 2, 2), ids(1)),
        }.items():
            with self.assertRaisesRegex(RuntimeError, text):
                run()

    def test_an_absent_tensor_and_a_weight_that_is_no_matrix_are_named(self):
        graph, x = four_nodes(), torch.ones(4, 3)
        for text, call in {
            "edge_softmax: expected logits, got an undefined tensor":
                lambda: mezzo.edge_softmax(graph, None, "dst"),
            "scaled_sum: expected x, got an undefined tensor":
                lambda: mezzo.scaled_sum(graph, None, torch.ones(4), None, None),
            "linear: expected x, got an undefined tensor": lambda: mezzo.linear(None, x, None),
            "linear: expected weight, got an undefined tensor": lambda: mezzo.linear(x, None, None),
            "weight \\[out, in\\], got x \\[4, 3\\] and weight \\[3\\]":
                lambda: mezzo.linear(x, torch.ones(3), None),
            "expected x \\[..., in\\]": lambda: mezzo.linear(torch.ones(()), x, None),
        }.items():
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                call()


class Document(unittest.TestCase):
    def test_its_schemas_are_those_of_the_library(self):
        documented = re.findall(r"^(\w+)(\(.*\) -> .*)$", DOCUMENT, re.MULTILINE)
        self.assertGreater(len(documented), 5)
        for name, arguments in documented:
            schema = str(getattr(mezzo, name).default._schema)
            schema = schema.replace("__torch__.torch.classes.mezzo.", "")
            self.assertEqual(schema, f"mezzo::{name}{arguments}")

    def test_its_words_are_those_of_the_library(self):
        graph, x = four_nodes(), torch.ones(4)
        for row, run in {
                "`op`": lambda: mezzo.gspmm(graph, "?", "sum", x, None, "u", "e"),
                "`reduce`": lambda: copy_u(graph, "?", x),
                "`by`": lambda: mezzo.edge_softmax(graph, x, "?"),
        }.items():
            with self.assertRaises(RuntimeError) as caught:
                run()
            known = re.search(r"is not one of ([\w, ]+)", str(caught.exception))[1].split(", ")
            line = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| {row} |"))
            self.assertEqual(re.findall(r"\w+", line.split("|")[2]), known)

    def test_its_example_runs(self):
        example = re.search(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
        exec(example[1].replace("PREFIX/lib/libmezzo.so", LIBRARY), {})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
