#!/usr/bin/env python3
"""Makes the tables of docs/performance.md from reports and data written by hand.

usage: performance_test.py FOLDER_OF_TOOLS
"""
import json
import pathlib
import sys
import unittest
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
import performance_tables as performance  # noqa: E402

BOTH = "forward+backward"


def candidate(name, minimum, median, **more):
    return {"name": name, "min_ms": minimum, "median_ms": median, "peak_bytes": 2**20,
            "skipped": None, "items": 3000000, **more}


def report(*results, edges=2500000):
    return {"edges": edges, "results": list(results)}


def result(work, *candidates, width=32, skipped=None):
    return {"work": work, "width": width, "skipped": skipped, "candidates": candidates}


def processor(*rows, name="A"):
    return performance.Processor(
        {"processor": name, "machine": "m", "date": "d", "rows": list(rows)})


def kernel(width, **ms):
    return {"run": "spmm-rmat17", "work": f"copy_u sum, {BOTH}", "features": width,
            "ms": {key.replace("_", " "): [value, 9] for key, value in ms.items()}}


class Rows(unittest.TestCase):
    def test_a_row_has_the_times_of_what_was_not_skipped(self):
        rows = performance.rows_of("spmm", report(
            result("a", candidate("CSR mm", 20.123456, 30), candidate("gather", 1, 1, skipped="x"),
                   candidate("mezzo fp32", 5, 6, share_of_stream=0.5)),
            result("b", skipped="no memory")))
        self.assertEqual(rows, [
            {"run": "spmm", "work": "a", "features": 32,
             "ms": {"CSR mm": [20.12, 30], "mezzo fp32": [5, 6]},
             "stream_percent": {"mezzo fp32": 50}}])

    def test_sampling_is_in_million_edges_a_second(self):
        rows = performance.rows_of("sampling", report(
            result("neighbour sampling [15,10], batch 8", candidate("mezzo, 1 thread", 30, 60))))
        self.assertEqual(rows[0]["million_edges_per_s"], {"mezzo, 1 thread": [100, 50]})

    def test_growing_graphs_are_in_nanoseconds_an_edge(self):
        rows = performance.rows_of("scaling", report(
            result("u_dot_v, forward, rmat14, 250000 edges", candidate("mezzo fp32", 1, 2))))
        self.assertEqual(rows[0]["work"], "u_dot_v, forward")
        self.assertEqual(rows[0]["million_edges"], 0.25)
        self.assertEqual(rows[0]["ns_per_edge"], {"mezzo fp32": [4, 8]})

    def test_layers_have_their_memory(self):
        rows = performance.rows_of("attention-rmat17", report(
            result("GAT layer", candidate("mezzo fp32", 1, 2))))
        self.assertEqual(rows[0]["mib"], {"mezzo fp32": 1})

    def test_data_files_keep_what_is_written(self):
        data = {"processor": "é", "runs": {"a": {"rounds": 3}}, "rows": [{"run": "a"}, {"run": "b"}]}
        self.assertEqual(json.loads(performance.data_text(data)), data)


class Tables(unittest.TestCase):
    def test_times_are_compared_with_the_fastest_float32_candidate(self):
        row = kernel(32, CSR_mm=20, CSR_mm_reduce=10, CSR_mm_reduce_bf16=1, mezzo_fp32=5,
                     mezzo_bf16=2)
        self.assertEqual(performance.TABLES["kernels"]([processor(row)])[2:],
                         ["| rmat17 | `copy_u sum` | 32 | 5.00 (2.0x) | 2.00 (5.0x) |"])

    def test_what_was_not_measured_is_empty(self):
        one = processor(kernel(32, mezzo_fp32=5), name="A")
        other = processor(kernel(64, CSR_mm=8, mezzo_bf16=2), name="B")
        self.assertEqual(performance.TABLES["kernels"]([one, other, processor(name="C")]), [
            "| graph | work | F | A: fp32 | bf16 | B: fp32 | bf16 |",
            "|---|---|---|---|---|---|---|",
            "| rmat17 | `copy_u sum` | 32 | 5.00 |  |  |  |",
            "| rmat17 | `copy_u sum` | 64 |  |  |  | 2.00 (4.0x) |"])

    def test_layers_epochs_products_and_optimizers(self):
        one = processor(
            {"run": "attention-rmat17", "work": f"GAT layer, 4 x 64, {BOTH}",
             "ms": {"gather-scatter": [100, 110], "mezzo bf16": [10, 11]},
             "mib": {"gather-scatter": 16, "mezzo bf16": 1}},
            {"run": "epoch-rmat17", "work": "gcn epoch, rmat17",
             "ms": {"mezzo fp32": [4, 5], "mezzo bf16": [2, 2]}},
            {"run": "linear", "work": f"linear 512 x 64 x 64, {BOTH}",
             "ms": {"libtorch": [4, 4], "mezzo fp32": [2, 2], "mezzo bf16": [1, 1]}},
            {"run": "optimizer", "work": "Adam, 6800 parameters",
             "ms": {"libtorch": [4, 4], "fused": [2, 2]}})
        for name, expected in {
                "layers": ["| GAT | gather-scatter, fp32 | 100, 16 MiB |",
                           "| GAT | Mezzo, bf16 | 10.0 (10.0x), 1 MiB |"],
                "epochs": ["| rmat17 | GCN | 4.00 / 2.00 (2.0x) / – |"],
                "products": ["| 512 x 64 x 64 | 2.00 (2.0x) / 1.00 / – |"],
                "optimizers": ["| Adam | 6,800 | 2.00 (2.0x) |"]}.items():
            self.assertEqual(performance.TABLES[name]([one])[2:], expected)

    def test_sampling_pipelining_and_growing_graphs(self):
        one = processor(
            {"run": "sampling-rmat20", "work": "neighbour sampling [15,10,5], batch 8",
             "million_edges_per_s": {"mezzo, 1 thread": [100, 50], "hash maps, 1 thread": [10, 9],
                                     "mezzo, with degrees, 1 thread": [60, 50]}},
            {"run": "sampling-rmat20", "work": "mini-batch SAGE epoch",
             "ms": {"prepare alone": [1, 1], "train alone, fp32": [5, 5], "pipelined, fp32": [6, 6]}},
            *({"run": "scaling", "work": f"u_dot_v, {BOTH}", "million_edges": size,
               "ns_per_edge": {"mezzo fp32": [size * 10, 99]}} for size in (0.25, 1)))
        for name, expected in {
                "sampling": ["| rmat20 | 15,10,5 | 1 | 100 (10.0x) / 60.0 |"],
                "pipelining": ["| rmat20 | fp32 | 1.00 / 5.00 / 6.00 |"],
                "growing": ["| A | u_dot_v | fp32 | 2.50 | 10.0 |"]}.items():
            self.assertEqual(performance.TABLES[name]([one])[2:], expected)

    def test_the_pictures_are_well_formed_and_have_a_bar_for_each_time(self):
        sums = kernel(performance.WIDTH_OF_PICTURE, CSR_mm=20, mezzo_fp32=5, mezzo_bf16=2)
        epoch = {"run": "epoch-rmat17", "work": "gcn epoch",
                 "ms": {"mezzo fp32": [60, 60], "mezzo bf16": [20, 20], "mezzo fp16": [40, 40]}}
        pictures = performance.pictures([processor(sums, epoch)])
        for name, heights in {"kernels.svg": ["4.0", "10.0"], "epochs.svg": ["3.0", "1.5"]}.items():
            root = ElementTree.fromstring(pictures[name])
            words = [shape.text for shape in root if shape.tag.endswith("text")]
            for height in heights:
                self.assertIn(height, words)


class Document(unittest.TestCase):
    TEXT = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\n<!-- end -->\n"

    def test_a_table_is_written_between_its_markers_and_nowhere_else(self):
        text = performance.replace_table(self.TEXT, "x", ["new"])
        self.assertEqual(text, self.TEXT.replace("old\n", "new\n"))
        self.assertEqual(performance.replace_table(text, "x", ["new"]), text)

    def test_missing_markers_are_an_error(self):
        for text in ["", self.TEXT * 2, self.TEXT.replace("<!-- end -->", "")]:
            with self.assertRaises(ValueError):
                performance.replace_table(text, "x", ["new"])
        with self.assertRaises(ValueError):
            performance.replace_table(self.TEXT.replace("<!-- end -->", "", 1), "x", ["new"])

    def test_the_page_has_a_place_for_every_table_and_no_other(self):
        text = performance.DOCUMENT.read_text(encoding="utf-8")
        self.assertEqual(text.count("<!-- table: "), len(performance.TABLES))
        performance.page([], text)


if __name__ == "__main__":
    unittest.main()
