#!/usr/bin/env python3
"""Writes a small data set in the npy layout: a ring of 40 nodes in two classes. No NumPy.

usage: make_tiny_dataset.py FOLDER
"""
import pathlib
import struct
import sys

NUM_NODES = 40


def write_npy(path, dtype, shape, values, code):
    """A version 1.0 .npy file: magic, header padded to 64 bytes, little-endian values."""
    header = str({"descr": dtype, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = struct.pack(f"<{len(values)}{code}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    nodes = range(NUM_NODES)
    edges = sorted((i, (i + step) % NUM_NODES) for i in nodes for step in (1, NUM_NODES - 1))
    write_npy(folder / "edge_index.npy", "<i8", (2, len(edges)),
              [src for src, _ in edges] + [dst for _, dst in edges], "q")
    write_npy(folder / "features.npy", "<f4", (NUM_NODES, 4),
              [float((i * 7 + j * 3) % 5) for i in nodes for j in range(4)], "f")
    write_npy(folder / "labels.npy", "<i8", (NUM_NODES,), [i * 2 // NUM_NODES for i in nodes], "q")
    for name, rest in (("train", (0, 1)), ("val", (2,)), ("test", (3,))):
        write_npy(folder / f"{name}_mask.npy", "|b1", (NUM_NODES,), [i % 4 in rest for i in nodes],
                  "?")


if __name__ == "__main__":
    main()
