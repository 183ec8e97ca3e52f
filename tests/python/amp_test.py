#!/usr/bin/env python3
"""GradScaler against torch.amp.GradScaler: states change hands, and a training is the same.

usage: amp_test.py AMP_PEER VERSION_OF_TORCH [NAME_OF_A_TEST_CLASS]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from load_torch import load_torch

PEER, VERSION = sys.argv[1:3]
torch = load_torch(VERSION)


def peer(*arguments):
    """What the C++ side prints, as rows of numbers."""
    done = subprocess.run([PEER, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{PEER} {arguments}: {done.stderr}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def play(scaler, iterations):
    """The scales after each iteration: c clean, i with inf."""
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scales = []
    for letter in iterations:
        optimizer.zero_grad()
        scaler.scale((weight * (float("inf") if letter == "i" else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append([scaler.get_scale()])
    return scales


def odd_scaler():
    """Factors that are no powers of two, so that each bit of the scale counts."""
    return torch.amp.GradScaler("cpu", init_scale=1.1, growth_factor=1.7, backoff_factor=0.3,
                                growth_interval=3)


class States(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def pass_on(self, scaler, iterations):
        """C++ goes on from the state of the scaler; its scales and its last state."""
        before, after = self.folder / "before.json", self.folder / "after.json"
        before.write_text(json.dumps(scaler.state_dict()))
        scales = peer("play", before, iterations, after)
        return scales, json.loads(after.read_text())

    def test_cpp_goes_on_from_a_state_of_python(self):
        for first in ("", "c", "cc", "ccc", "ccccc", "i", "ccic", "iiii"):
            scaler = odd_scaler()
            play(scaler, first)
            scales, state = self.pass_on(scaler, "ccciccccicc")
            self.assertEqual(scales, play(scaler, "ccciccccicc"), first)
            expected = scaler.state_dict()
            self.assertEqual({key: state[key] for key in expected}, expected)

    def test_python_goes_on_from_a_state_of_cpp(self):
        for first in ("", "cc", "ccic", "cccccci"):
            scaler = odd_scaler()
            play(scaler, "c")
            _, state = self.pass_on(scaler, first)
            play(scaler, first)
            restored = torch.amp.GradScaler("cpu")
            restored.load_state_dict(state)
            self.assertEqual(play(restored, "ccciccccicc"), play(scaler, "ccciccccicc"), first)
            self.assertEqual(restored.state_dict(), scaler.state_dict())


class Training(unittest.TestCase):
    STEPS = 500

    def tensors(self):
        """Two layers, and batches of which one overflows at any scale, others at large ones."""
        generator = torch.Generator().manual_seed(5)

        def normal(*shape):
            return torch.randn(*shape, generator=generator)

        batches = normal(41, 32, 16)
        targets = batches.sum(-1, keepdim=True).div(4).tanh() + 0.1 * normal(41, 32, 1)
        batches[23] *= 3e4
        batches[31] *= 4
        return {"batches": batches, "targets": targets, "weight_1": normal(24, 16) / 4,
                "bias_1": torch.zeros(24), "weight_2": normal(1, 24) / 5,
                "bias_2": torch.zeros(1)}

    def train(self, tensors):
        """Rows of step, loss, skipped and the scale after it."""
        names = ("weight_1", "bias_1", "weight_2", "bias_2")
        weights = [tensors[name].clone().requires_grad_() for name in names]
        optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=20)
        rows = []
        for step in range(self.STEPS):
            batch = step % len(tensors["batches"])
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                hidden = torch.relu(torch.nn.functional.linear(
                    tensors["batches"][batch], weights[0], weights[1]))
                output = torch.nn.functional.linear(hidden, weights[2], weights[3])
                loss = torch.nn.functional.mse_loss(output, tensors["targets"][batch])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            finite = all(weight.grad.isfinite().all() for weight in weights)
            scaler.step(optimizer)
            scaler.update()
            rows.append([step, loss.item(), float(not finite), scaler.get_scale()])
        return rows

    def test_skips_and_scales_alike_and_ends_where_python_does(self):
        tensors = self.tensors()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tensors.pt"
            torch.save(tensors, path)
            rows = peer("train", path, self.STEPS)
        expected = self.train(tensors)
        self.assertEqual([row[0] for row in rows], list(range(self.STEPS)))
        self.assertEqual([row[2] for row in rows], [row[2] for row in expected])
        self.assertEqual([row[3] for row in rows], [row[3] for row in expected])
        torch.testing.assert_close(torch.tensor([row[1] for row in rows]),
                                   torch.tensor([row[1] for row in expected]), equal_nan=True)
        self.assertGreater(sum(row[2] for row in expected), self.STEPS / 41)
        self.assertGreater(len({row[3] for row in expected}), 3)
        clean = [row[1] for row in expected if row[0] % 41 not in (23, 31)]
        self.assertLess(sum(clean[-41:]), sum(clean[:41]) / 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
