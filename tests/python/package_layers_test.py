#!/usr/bin/env python3
"""The layers of the Python package against dense definitions in double.

usage: package_layers_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE
"""
import copy
import sys
import unittest

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
torch.set_num_threads(1)  # small graphs
import mezzo.nn as mnn  # noqa: E402
from mezzo import ops  # noqa: E402
from mezzo.graph import Graph  # noqa: E402
from layer_cases import (DST, E, GRAPH, IN, N, SRC, WEIGHT, adjacency, cases, gat,  # noqa: E402
                         numbers, readouts)


class Layers(unittest.TestCase):
    def test_values_and_gradients_are_those_of_the_definition(self):
        torch.manual_seed(2)
        for name, layer, call, formula in [*cases(), *readouts()]:
            with self.subTest(name):
                layer = layer.double()
                inputs = [numbers(N, IN, seed=7).requires_grad_(), *layer.parameters()]
                value, expected = call(layer, inputs[0]), formula(layer, inputs[0])
                torch.testing.assert_close(value, expected)
                weights = numbers(*value.shape, seed=9)
                torch.testing.assert_close(torch.autograd.grad((value * weights).sum(), inputs),
                                           torch.autograd.grad((expected * weights).sum(), inputs))

    def test_autocast_computes_them_in_16_bits(self):
        torch.manual_seed(2)
        for dtype, tolerance in ((torch.bfloat16, 0.06), (torch.float16, 0.01)):
            for name, layer, call, formula in [*cases(), *readouts()]:
                with self.subTest(f"{name} {dtype}"):
                    x = numbers(N, IN, seed=7).requires_grad_()
                    expected = formula(copy.deepcopy(layer).double(), x).detach()
                    with torch.autocast("cpu", dtype=dtype):
                        value = call(layer, x.float())
                    keeps = isinstance(layer, mnn.JumpingKnowledge)
                    self.assertEqual(value.dtype, torch.float32 if keeps else dtype)
                    error = (value.double() - expected).abs().max() / expected.abs().max()
                    self.assertLess(error, tolerance)
                    value.float().sum().backward()
                    for parameter in layer.parameters():
                        self.assertEqual(parameter.grad.dtype, torch.float32)
                        self.assertTrue(parameter.grad.isfinite().all())

    def test_torchs_scaler_scales_their_gradients(self):
        torch.manual_seed(2)
        for name, layer, call, _ in [*cases(), *readouts()]:
            if not list(layer.parameters()):
                continue
            with self.subTest(name):
                before, x = copy.deepcopy(layer.state_dict()), numbers(N, IN, seed=7).float()
                scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
                optimizer, gradients = torch.optim.SGD(layer.parameters(), lr=0.1), []
                for scale in (64.0, 1.0):
                    optimizer.zero_grad()
                    with torch.autocast("cpu", dtype=torch.float16):
                        loss = call(layer, x).float().square().mean()
                    (scaler.scale(loss) if scale > 1 else loss).backward()
                    gradients.append([p.grad / scale for p in layer.parameters()])
                for scaled, plain in zip(*gradients):
                    bound = 0.01 * max(plain.abs().max().item(), 0.01)
                    torch.testing.assert_close(scaled, plain, rtol=0.02, atol=bound)
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.float16):
                    scaler.scale(call(layer, x).float().square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
                self.assertEqual(scaler.get_scale(), 64.0)  # no gradient overflowed
                after = layer.state_dict()
                self.assertTrue(any(not torch.equal(before[key], after[key]) for key in before))

    def test_a_pair_of_rows_is_sources_and_destinations(self):
        into_five = DST < 5
        block = Graph.from_coo(SRC[into_five], DST[into_five], N, 5)
        x = numbers(N, IN, seed=7)
        for layer in (mnn.GraphConv(IN, 3), mnn.SAGEConv(IN, 3, "mean"), mnn.SAGEConv(IN, 8, "gcn"),
                      mnn.SAGEConv((IN, IN), 3, "pool"), mnn.GATConv(IN, 3, 2), mnn.EdgeConv(IN, 3),
                      mnn.GATv2Conv((IN, IN), 3, 2), mnn.DotGatConv(IN, 3, 2), mnn.GINConv()):
            layer = layer.double()
            with self.subTest(type(layer).__name__):
                value = layer(block, (x, x[:5]))
                torch.testing.assert_close(layer(block, x), value)
                if not isinstance(layer, mnn.GraphConv):  # its factors read the out-degrees
                    torch.testing.assert_close(layer(GRAPH, x)[:5], value)

    def test_attention_sums_to_one_and_drops_the_same_edges(self):
        x = numbers(N, IN, seed=7)
        for layer in (mnn.GATConv(IN, 3, 2), mnn.GATv2Conv(IN, 3, 2), mnn.DotGatConv(IN, 3, 2)):
            _, attention = layer.double()(GRAPH, x, get_attention=True)
            self.assertEqual(attention.shape, (E, 2, 1))
            total = ops.gspmm(GRAPH, "copy_rhs", "sum", None, attention)
            torch.testing.assert_close(total, torch.ones_like(total))
        layer = mnn.GATConv(IN, 3, 2, attn_drop=0.5).double()
        results = []
        for seed, stored in ((4, False), (4, True), (5, False)):
            torch.manual_seed(seed)
            out = layer(GRAPH, x, get_attention=stored)
            results.append(out[0] if stored else out)
        torch.testing.assert_close(results[0], results[1])
        self.assertFalse(torch.allclose(results[0], results[2]))
        layer.eval()
        torch.testing.assert_close(layer(GRAPH, x), gat(layer, x))

    def test_dropout_of_features_and_edges_keeps_the_mean(self):
        x = torch.ones(N, IN)
        for layer in (mnn.SAGEConv(IN, 3, "mean", feat_drop=0.5), mnn.APPNPConv(3, 0.2, 0.5)):
            torch.manual_seed(3)
            with torch.no_grad():
                mean = sum(layer(GRAPH, x) for _ in range(300)) / 300
                torch.testing.assert_close(mean, layer.eval()(GRAPH, x), rtol=0.1, atol=0.25)

    def test_sgconv_caches_its_rows(self):
        layer, x = mnn.SGConv(IN, 3, 2, cached=True), numbers(N, IN).float()
        first = layer(GRAPH, x)
        torch.testing.assert_close(layer(GRAPH, 2 * x), first)
        layer.clear_cache()
        self.assertFalse(torch.allclose(layer(GRAPH, 2 * x), first))

    def test_a_graph_first_used_in_inference_mode_trains(self):
        for layer in (mnn.GraphConv(IN, 3), mnn.SAGEConv(IN, 3, "gcn"), mnn.TAGConv(IN, 3)):
            graph, x = Graph.from_coo(SRC, DST, N), torch.ones(N, IN)
            with torch.inference_mode():
                layer(graph, x)
            layer(graph, x).sum().backward()

    def test_edge_weights_are_normalised(self):
        matrix = adjacency(WEIGHT)
        both = (matrix.sum(1)[DST] * matrix.sum(0)[SRC]).rsqrt() * WEIGHT
        torch.testing.assert_close(mnn.EdgeWeightNorm()(GRAPH, WEIGHT), both)
        torch.testing.assert_close(mnn.EdgeWeightNorm("right", 0.5)(GRAPH, WEIGHT),
                                   WEIGHT / (matrix.sum(1) + 0.5)[DST])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
