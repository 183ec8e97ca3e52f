#!/usr/bin/env python3
"""Makes the tables of docs/performance.md of reports made by hand.

usage: performance_test.py FOLDER_OF_TOOLS
"""
import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import unittest


def load(path):
    loader = importlib.machinery.SourceFileLoader("performance", path)
    spec = importlib.util.spec_from_loader("performance", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
TOOLS = pathlib.Path(sys.argv.pop(1))
performance = load(str(TOOLS / "performance_tables.py"))


def one(name, minimum, median, ours=False, precision="fp32", **more):
    return {"name": name, "ours": ours, "precision": precision, "min_ms": minimum,
            "median_ms": median, "share_of_stream": 0.5, "peak_bytes": 2**20, "skipped": None,
            "items": 3000000, "stages": {}, **more}


def mezzo(*times):
    return [one(f"mezzo {precision}", *pair, ours=True, precision=precision)
            for precision, pair in zip(performance.PRECISIONS, times)]


def result(work, contenders, width=32, skipped=None):
    return {"work": work, "width": width, "skipped": skipped, "contenders": contenders}


def report(*results, graph="rmat17"):
    return {"graph": graph, "nodes": 4, "edges": 2500000, "threads": 2, "rounds": 7,
            "stream_bytes_per_second": 4e10, "results": list(results)}


class Tables(unittest.TestCase):
    def test_a_row_holds_minima_medians_and_ratios_of_minima(self):
        work = "copy_u sum, forward"
        yardsticks = [one("CSR mm", 20, 30), one("CSR mm reduce", 10, 50),
                      one("CSR mm reduce bf16", 8, 9, precision="bf16"),
                      one("gather-scatter", 1, 1, skipped="no memory")]
        made = report(result(work, yardsticks + mezzo((5, 5.6), (2, 3), (4, 4))),
                      result("another", []),
                      result(work, [], width=64, skipped="no memory"))
        lines = performance.TABLES["copy_u-forward"].lines({"spmm-rmat17": made})
        self.assertEqual(lines[2:], [
            "| 32 | 10.0 (50.0), CSR mm reduce | 5.00 (5.60) | **2.00x** | 2.00 (3.00) | 2.50x "
            "| 4.00 (4.00) | 1.25x | 4.00x | 50 / 50 % |"])

    def test_what_was_not_measured_is_a_dash(self):
        made = report(result("u_mul_e sum, forward", mezzo((5, 5.6))))
        lines = performance.TABLES["u_mul_e-forward"].lines({"spmm-rmat17": made})
        self.assertEqual(lines[2:],
                         ["| 32 | – | 5.00 (5.60) | – | – | – | – | – | 50 / – % |"])

    def test_works_are_named_once_and_sorted_by_width(self):
        made = report(result("a", mezzo((5, 5)), 64), result("b", mezzo((5, 5))),
                      result("a", mezzo((5, 5)), 32))
        lines = performance.Works("x").lines({"x": made})
        self.assertEqual([line.split(" | ")[:2] for line in lines[2:]],
                         [["| a", "32"], ["| ", "64"], ["| b", "32"]])

    def test_layers_are_compared_in_time_and_memory(self):
        base = [one("gather-scatter", 100, 110, peak_bytes=2**24)]
        made = report(result("GAT layer, 4 x 64, forward", base + mezzo((20, 20))),
                      result("GAT layer, 4 x 64, forward+backward", base + mezzo((10, 11))),
                      result("GATv2 layer, 4 x 64, forward", base))
        lines = performance.TABLES["gat"].lines({"attention-rmat17": made})
        self.assertEqual(lines[2:4], [
            "| gather-scatter, fp32 | 100 (110) | 100 (110) | 16 MiB |  |  |",
            "| fp32 | 20.0 (20.0) | 10.0 (11.0) | 1 MiB | 1/10.0 | 1/16 |"])

    def test_edges_of_growing_graphs_are_told_in_nanoseconds(self):
        made = report(*(result(f"u_dot_v, forward, rmat{scale}, {edges} edges", mezzo((ms, ms)))
                        for scale, edges, ms in [(14, 250000, 1), (16, 1000000, 5)]))
        lines = performance.TABLES["scaling"].lines({"scaling": made})
        self.assertEqual(lines[0], "| work | F | precision | 0.25 M | 1.00 M |")
        self.assertEqual(lines[2],
                         "| u_dot_v, forward | 32 | fp32 | 4.00 (4.00) | 5.00 (5.00) |")

    def test_orders_are_compared_with_none(self):
        table = performance.TABLES["reorder"]
        reports = {run: report(result("copy_u sum, forward", mezzo((ms, ms)), 64))
                   for run, ms in zip(table.runs, [8, 4, 2])}
        lines = table.lines(reports)
        self.assertTrue(lines[3].startswith("|  | 64 | degree | 4.00 (4.00) | 2.00x |"), lines)
        self.assertTrue(lines[4].startswith("|  | 64 | rcmk | 2.00 (2.00) | 4.00x |"), lines)

    def test_sampling_is_told_in_edges_a_second(self):
        made = report(result("neighbour sampling [15,10], batch 8",
                             [one("mezzo, 1 thread", 30, 60, ours=True),
                              one("mezzo, with degrees, 1 thread", 60, 60, ours=True),
                              one("bare reads, 1 thread", 15, 15),
                              one("hash maps, 1 thread", 300, 300)]))
        lines = performance.TABLES["sampling"].lines({"sampling-rmat20": made})
        self.assertEqual(lines[2:], [
            "| rmat17, 2.5 M edges | 15,10 | 1 | 100 (50.0) | 50.0 (50.0) | 10.0 (10.0) | 10.00x "
            "| 200 (200) | 50 % |"])

    def test_products_epochs_and_optimizers_keep_their_columns(self):
        made = report(result("linear 8 x 4 x 2, forward+backward",
                             [one("libtorch", 4, 4), *mezzo((2, 2), (1, 1))]))
        self.assertEqual(
            performance.TABLES["linear"].lines({"linear": made})[2],
            "| 8 x 4 x 2 | forward + backward | 4.00 (4.00) / 2.00 (2.00) | – / 1.00 (1.00) "
            "| – / – | 2.00x |")
        epoch = report(result("gcn epoch, rmat17", mezzo((4, 5), (2, 2), (4, 4))))
        self.assertEqual(
            performance.TABLES["epochs"].lines({"epoch-rmat17": epoch,
                                                "epoch-rmat17-libtorch": epoch})[2],
            "| GCN | 4.00 (5.00) | 2.00 (2.00) | 2.00x | 4.00 (4.00) | 1.00x | 4.00 (5.00) |")
        self.assertEqual(performance.TABLES["cnn"].lines({"cnn": epoch})[3],
                         "| mezzo bf16 | 2.00 (2.00) | 2.00x |")
        step = report(result("Adam, 6800 parameters",
                             [one("libtorch", 4, 4), one("fused", 2, 2, ours=True)]))
        self.assertEqual(performance.TABLES["optimizers"].lines({"optimizer": step})[2],
                         "| 6,800 | 4.00 (4.00) / 2.00 (2.00), 2.00x |")


class Document(unittest.TestCase):
    TEXT = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\n<!-- end -->\n"

    def test_a_table_is_written_between_its_markers_and_nowhere_else(self):
        text = performance.replace_table(self.TEXT, "x", ["new"])
        self.assertEqual(text, self.TEXT.replace("old\n", "\nnew\n\n"))
        self.assertEqual(performance.replace_table(text, "x", ["new"]), text)
        self.assertEqual(performance.replace_table(self.TEXT, "y", ["new"]),
                         self.TEXT.replace("y -->\n", "y -->\n\nnew\n\n"))

    def test_missing_markers_are_an_error(self):
        for text in ["", self.TEXT * 2, self.TEXT.replace("<!-- end -->", "")]:
            with self.assertRaises(ValueError):
                performance.replace_table(text, "x", ["new"])
        with self.assertRaises(ValueError):
            performance.replace_table(self.TEXT.replace("<!-- end -->", "", 1), "x", ["new"])

    def test_every_table_has_a_place_and_every_place_is_a_tables(self):
        documents = sorted((performance.ROOT / "docs").glob("performance*.md"))
        self.assertIn(performance.DOCUMENT, documents)
        placed = set()
        for document in documents:
            text = document.read_text(encoding="utf-8")
            names = re.findall(r"<!-- table: (\S+) -->", text)
            self.assertLessEqual(set(names), set(performance.TABLES), document)
            for name in names:
                performance.replace_table(text, name, [])
            self.assertEqual(text.count("<!-- end -->"), len(names), document)
            placed.update(names)
        self.assertEqual(placed, set(performance.TABLES))

    def test_every_table_is_of_runs_that_exist(self):
        bench = load(str(TOOLS / "bench"))
        for name, table in performance.TABLES.items():
            self.assertLessEqual(set(table.runs), set(bench.RUNS), name)


if __name__ == "__main__":
    unittest.main()
