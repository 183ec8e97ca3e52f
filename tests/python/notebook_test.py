#!/usr/bin/env python3
"""Runs the code of a notebook, cell by cell, in the notebook's folder; no Jupyter is needed. The
notebook leaves the test accuracy of each precision in `accuracy`.

usage: notebook_test.py LIBMEZZO VERSION_OF_TORCH FOLDER_OF_THE_PACKAGE NOTEBOOK
"""
import json
import os
import pathlib
import sys

from load_torch import load_package

torch = load_package(*sys.argv[1:4])
torch.set_num_threads(1)  # a small graph
import mezzo  # noqa: E402
import mezzo.nn  # noqa: E402
import mezzo.ops  # noqa: E402
from mezzo.graph import Graph  # noqa: E402

mezzo.Graph = Graph  # as in the package's __init__

path = pathlib.Path(sys.argv[4])
notebook = json.loads(path.read_text())
os.chdir(path.parent)
names = {}
for number, cell in enumerate(notebook["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
for precision, accuracy in names["accuracy"].items():
    if accuracy < 0.75:
        sys.exit(f"{path.name}: {precision}: expected a test accuracy of 0.75, got {accuracy}")
if len(names["accuracy"]) != 2:
    sys.exit(f"{path.name}: expected two precisions, got {list(names['accuracy'])}")
