"""What the peers share: the graphs of bench/cuda.cpp, rounds in turn, and its JSON.

Needs torch with CUDA. A candidate is a name, a precision and a function that does the work once and
returns its results as a list of tensors.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch

DEVICE = "cuda"
REDDIT = ("reddit-like", 232_965, 114_615_892)
PRODUCTS = ("products-like", 2_449_029, 123_718_280)
REDDIT_SPARSE = ("reddit-like, 4 M edges", 232_965, 4_000_000)


def rmat(size):
    """Sources and destinations (int64) of the graph that bench/cases/device_graphs.cpp makes."""
    a, b, c = 0.57, 0.19, 0.19
    _, num_nodes, num_edges = size
    torch.manual_seed(0)
    src = torch.zeros(num_edges, dtype=torch.long, device=DEVICE)
    dst = torch.zeros_like(src)
    for _ in range(math.ceil(math.log2(num_nodes))):
        draw = torch.rand(num_edges, device=DEVICE)
        lower = draw >= a + b
        right = ((draw >= a) & (draw < a + b)) | (draw >= a + b + c)
        src.mul_(2).add_(lower)
        dst.mul_(2).add_(right)
    order = torch.randperm(num_nodes, device=DEVICE)
    return order[src % num_nodes], order[dst % num_nodes]


def rows_by(keys, others, num_rows):
    """indptr and indices (int32) of rows by `keys`, in each row in the order of the edges."""
    order = torch.argsort(keys, stable=True)
    counts = torch.bincount(keys, minlength=num_rows)
    indptr = torch.zeros(num_rows + 1, dtype=torch.long, device=DEVICE)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr.int(), others[order].int()


def sampled_sums(indptr, indices, x, rows=256):
    """Every stride-th row's sum of the neighbours' rows in float64, and the stride."""
    starts = indptr.tolist()
    stride = (len(starts) - 1) // rows
    sums = [x[indices[starts[row]:starts[row + 1]].long()].double().sum(0)
            for row in range(0, len(starts) - 1, stride)]
    return torch.stack(sums), stride


def error_of(results, expected):
    worst = 0.0
    for got, (value, stride) in zip(results, expected):
        difference = (got[::stride].double() - value).abs().max().item()
        worst = max(worst, difference / max(value.abs().max().item(), 1e-30))
    return worst


class Report:
    """The outcomes of one program; its options are --rounds, --json and those that it adds."""

    def __init__(self, description):
        self.parser = argparse.ArgumentParser(description=description)
        self.parser.add_argument("--rounds", type=int, default=7)
        self.parser.add_argument("--json")
        self.results = []

    def parse(self):
        self.options = self.parser.parse_args()
        return self.options

    def measure(self, work, width, candidates, expected=None, repeats=1, warm_ups=3):
        """Runs them in turn; `expected`: (values, stride) of each result, else those of the first
        run of the first candidate that can."""
        expected = list(expected or [])
        rows = [self._begin(one, warm_ups, expected) for one in candidates]
        for _ in range(self.options.rounds):
            for row, (_, _, run) in zip(rows, candidates):
                if row["skipped"] is None:
                    self._time_once(row, run, repeats)
        for row in rows:
            times = row["rounds_ms"]
            row["min_ms"] = min(times) if times else None
            row["median_ms"] = statistics.median(times) if times else None
            print(f"{work}, F={width}: {row['name']}: " + (
                f"{row['min_ms']:.3f} ms (median {row['median_ms']:.3f}), "
                f"error {row['max_relative_error']}, peak {row['peak_bytes'] / 2**20:.0f} MiB"
                if times else f"skipped: {row['skipped']}"), flush=True)
        self.results.append({"work": work, "width": width, "skipped": None, "candidates": rows})
        self.write()  # what comes next may take longer than there is time
        torch.cuda.empty_cache()

    def _begin(self, candidate, warm_ups, expected):
        name, precision, run = candidate
        row = {"name": name, "ours": False, "precision": precision, "rounds_ms": [],
               "max_relative_error": None, "peak_bytes": 0, "skipped": None}
        try:
            for i in range(warm_ups):
                results = run()
                if i > 0:
                    continue
                if not expected:
                    expected += [(one.detach().double().clone(), 1) for one in results]
                row["max_relative_error"] = error_of(results, expected)
            torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            row["skipped"] = "out of memory"
            torch.cuda.empty_cache()
        except Exception as error:  # the other candidates go on, whatever it raises
            row["skipped"] = "FAILED: " + (str(error).split("\n")[0] or type(error).__name__)
            torch.cuda.empty_cache()
        return row

    @staticmethod
    def _time_once(row, run, repeats):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
        row["rounds_ms"].append((time.perf_counter() - start) * 1e3 / repeats)
        row["peak_bytes"] = torch.cuda.max_memory_allocated() - before

    def finish(self):
        """Ends with 1 if a candidate could not run for another reason than memory."""
        failed = [row["name"] for result in self.results for row in result["candidates"]
                  if (row["skipped"] or "").startswith("FAILED")]
        if failed:
            sys.exit("failed: " + ", ".join(failed))

    def write(self):
        if not self.options.json:
            return
        with open(self.options.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "rounds": self.options.rounds, "results": self.results}, file, indent=2)
            file.write("\n")
