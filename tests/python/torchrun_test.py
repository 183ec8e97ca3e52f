#!/usr/bin/env python3
"""torchrun starts two processes of `mezzo train`, which train together.

usage: torchrun_test.py MEZZO VERSION_OF_TORCH
"""
import contextlib
import json
import os
import pathlib
import runpy
import socket
import sys
import tempfile

from load_torch import load_torch

MEZZO, VERSION = sys.argv[1:3]
load_torch(VERSION)


def write_two_rings(folder, nodes=40):
    """Nodes of two classes, each joined to its neighbours of the same class."""
    edges, rows = [], []
    for node in range(nodes):
        following = (node + 2) % nodes
        edges += [f"{node},{following}", f"{following},{node}"]
        split = "train" if node < nodes // 2 else "test"
        rows.append(f"{node},{node % 2},{split},{1 - node % 2},{node % 2}")
    (folder / "edges.csv").write_text("src,dst\n" + "\n".join(edges) + "\n")
    (folder / "nodes.csv").write_text("id,label,split,f0,f1\n" + "\n".join(rows) + "\n")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_two_rings(folder)
        report = folder / "report.json"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        sys.argv = ["torchrun", "--master-port", port, "--nproc-per-node", "2", "--no-python",
                    MEZZO, "train",
                    "--dataset", name, "--recipe", "planetoid", "--model", "sage",
                    "--hidden", "4", "--epochs", "20",
                    "--batch-size", "5", "--fanout", "2,2", "--dropout", "0", "--json", str(report)]
        with contextlib.suppress(SystemExit):
            runpy.run_module("torch.distributed.run", run_name="__main__")
        result = json.loads(report.read_text())
    assert result["world_size"] == 2, result
    assert result["steps"] == 40, result["steps"]  # 20 nodes in batches of 5, in two processes
    assert result["test"] == {"accuracy": 1}, result["test"]
    print("torchrun: good")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
