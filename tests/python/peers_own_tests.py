#!/usr/bin/env python3
"""Runs the tests that PyG and DGL have of their layers, unmodified, on accelerated layers: each
layer is swapped as soon as it is made. Prints how many calls ran Mezzo's operators.

usage: peers_own_tests.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE plain|pyg|dgl
                          ARGUMENT_OF_PYTEST...

"plain" swaps nothing. In the folders of the sources of PyG 2.8 and of DGL 2.1, whose tests need
`PYTHONPATH=tests DGLBACKEND=pytorch` and NumPy 1, ARGUMENT_OF_PYTEST are
    test/nn/conv/test_{gcn,sage,gat,gatv2,gin}_conv.py test/nn/conv/test_message_passing.py
    tests/python/pytorch/nn/test_nn.py
"""
import functools
import importlib
import logging
import sys
import types

import pytest
from load_torch import load_package

load_package(*sys.argv[1:4])
library, arguments = sys.argv[4], sys.argv[5:]
# DGL 2.1 has a binary of it for torch 2.2 at most; the layers do not use it.
sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
counts = {"layers": 0, "calls": 0, "calls that ran the original code": 0}


def count(name):
    counts[name] += 1


def swapped_when_made(original, accelerate):
    construct = original.__init__

    @functools.wraps(construct)
    def init(self, *args, **kwargs):
        construct(self, *args, **kwargs)
        if type(self) is original:
            counts["layers"] += len(accelerate(self, verbose=False).replaced)
    original.__init__ = init


def counted(replacement):
    forward = replacement.forward

    @functools.wraps(forward)
    def call(self, *args, **kwargs):
        count("calls")
        return forward(self, *args, **kwargs)
    replacement.forward = call


if library != "plain":
    module = importlib.import_module(f"mezzo.{library}")
    for original, replacement in module._REPLACEMENTS.items():
        swapped_when_made(original, module.accelerate)
        counted(replacement)
    logger = logging.getLogger("mezzo")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: count("calls that ran the original code"))
status = pytest.main(["-q", "-p", "no:cacheprovider", *arguments])
print(counts)
sys.exit(status)
