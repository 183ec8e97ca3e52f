#!/usr/bin/env python3
"""Puts the results of run_on_gpu together; part of the folder that tools/gpu_check packs.

usage: gpu_summary.py RESULTS

Reads RESULTS/checks.tsv and RESULTS/logs/*.json, writes summary.json and summary.md there. Fails
where a check did; a target that is missed is told and fails nothing.
"""
import glob
import json
import os
import subprocess
import sys

REDDIT_EDGES = "114615892 edges"


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def read_checks(results):
    with open(f"{results}/checks.tsv", encoding="utf-8") as file:
        checks = [dict(zip(["part", "name", "state", "seconds"], line.rstrip("\n").split("\t")))
                  for line in file]
    for check in checks:
        log = f"{results}/logs/{check['part']}-{check['name']}.json"
        if check["part"] == "tests" and os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                counts = json.load(file)
            tests = [test for suite in counts["testsuites"] for test in suite["testsuite"]]
            check["tests"] = counts["tests"]
            check["failures"] = counts["failures"]
            check["skipped"] = sum(test.get("result") == "SKIPPED" for test in tests)
    return checks


def read_outcomes(results, checks):
    """What was measured, one dictionary a contender. Contenders that failed become checks."""
    outcomes = []
    for path in sorted(glob.glob(f"{results}/logs/bench-*.json") +
                       glob.glob(f"{results}/logs/peers-*.json")):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for outcome in report["results"]:
            for contender in outcome["contenders"]:
                outcomes.append({"work": outcome["work"], "width": outcome["width"], **contender})
                if str(contender.get("skipped") or "").startswith("FAILED"):
                    checks.append({"part": "bench", "name": f"{outcome['work']}: "
                                   f"{contender['name']}", "seconds": "0",
                                   "state": "failed: " + contender["skipped"]})
    return outcomes


class Contenders:
    """Those of one work and width that were timed."""

    def __init__(self, outcomes, work, width):
        self.rows = [one for one in outcomes if one["work"] == work and one["width"] == width and
                     one.get("min_ms") is not None]

    def fastest(self, precision=None, ours=False, name=""):
        """The one of least time whose name begins so, or None."""
        rows = [row for row in self.rows
                if precision in (None, row["precision"]) and bool(row.get("ours")) == ours and
                row["name"].startswith(name)]
        return min(rows, key=lambda row: row["min_ms"], default=None)


def ratio(slow, fast):
    return slow["min_ms"] / fast["min_ms"] if slow and fast else None


def spmm_targets(of):
    wide = of.fastest("fp32", ours=True)

    def cusparse(precision):
        rows = [of.fastest(precision, name=name) for name in ("cuSPARSE", "libtorch csr")]
        return min(filter(None, rows), key=lambda row: row["min_ms"], default=None)

    for precision in ("fp16", "bf16"):
        ours = of.fastest(precision, ours=True)
        yield f"{precision}: times as fast as cuSPARSE", ratio(cusparse(precision), ours), ">=", 2.5
        yield f"{precision}: as our fp32", ratio(wide, ours), ">=", 1.9
        loop = of.fastest(precision, name="row loop")
        yield f"{precision}: as a row loop", ratio(loop, ours), ">=", 4
    yield "fp32: times as fast as cuSPARSE", ratio(cusparse("fp32"), wide), ">=", 1.2


def gat_targets(of, work):
    for precision in ("fp16", "bf16"):
        ours = of.fastest(precision, ours=True)
        if ours and work.endswith(REDDIT_EDGES):
            yield f"{precision}: ms", ours["min_ms"], "<=", 150
            yield f"{precision}: GB", ours["peak_bytes"] / 1e9, "<=", 2.5
            wide = of.fastest("fp32", ours=True)
            yield f"{precision}: times as fast as our fp32", ratio(wide, ours), ">=", 1.7
        peer = of.fastest(precision, name="PyG")
        yield f"{precision}: times as fast as PyG", ratio(peer, ours), ">=", 5


def cora_targets(of):
    for precision in ("fp32", "fp16"):
        ours = of.fastest(precision, ours=True, name=f"{precision} captured")
        yield f"{precision} captured: us", ours and ours["min_ms"] * 1e3, "<=", 150
        peer = of.fastest(precision, name=f"PyG, {precision} eager")
        yield f"{precision} captured: times as fast as PyG eager", ratio(peer, ours), ">=", 15


def cnn_targets(of):
    for precision in ("fp16", "bf16"):
        ours = of.fastest(precision, ours=True)
        wide = of.fastest("tf32", ours=True)
        yield f"{precision}: times as fast as our TF32", ratio(wide, ours), ">=", 1.9
        peer = of.fastest(precision, name="PyTorch")
        yield f"{precision}: as PyTorch's AMP", ratio(peer, ours), ">=", 1


def sampling_targets(of):
    yield "times as fast as two threads", ratio(of.fastest(), of.fastest(ours=True)), ">=", 10


def targets_of(work, of):
    if work.startswith("copy_u sum") and work.endswith(", forward"):
        return spmm_targets(of)
    if work.startswith("three-layer gat step"):
        return gat_targets(of, work)
    if work.startswith("gcn step"):
        return cora_targets(of)
    if work.startswith("training step of the cnn"):
        return cnn_targets(of)
    return sampling_targets(of) if work.startswith("neighbour sampling") else ()


def compared(outcomes):
    """The targets of docs/gpu.md with times for both sides."""
    targets = []
    for work, width in sorted({(one["work"], one["width"]) for one in outcomes}):
        for what, value, relation, target in targets_of(work, Contenders(outcomes, work, width)):
            if value is not None:
                met = value >= target if relation == ">=" else value <= target
                targets.append({"work": work, "width": width, "what": what, "value": value,
                                "target": f"{relation} {target}", "met": met})
    return targets


def table(header, rows):
    lines = [header, ["---"] * len(header)] + rows
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def markdown(summary):
    lines = [f"GPU: {summary['gpu'] or 'none found'}", ""]
    lines += table(["part", "check", "state", "tests", "skipped", "s"],
                   [[check["part"], check["name"], check["state"], check.get("tests", ""),
                     check.get("skipped", ""), check["seconds"]] for check in summary["checks"]])
    if summary["targets"]:
        lines += [""] + table(
            ["work", "F", "what", "measured", "target", "met"],
            [[one["work"], one["width"], one["what"], f"{one['value']:.2f}", one["target"],
              "yes" if one["met"] else "**no**"] for one in summary["targets"]])
    timed = [one for one in summary["outcomes"] if one.get("min_ms") is not None]
    if timed:
        def error(one):
            value = one.get("max_relative_error")
            return "" if value is None else f"{value:.1e}"
        lines += [""] + table(
            ["work", "F", "contender", "min ms", "median ms", "error", "peak MiB"],
            [[one["work"], one["width"], one["name"], f"{one['min_ms']:.3f}",
              f"{one['median_ms']:.3f}", error(one), f"{one['peak_bytes'] / 2**20:.0f}"]
             for one in sorted(timed, key=lambda one: (one["work"], one["width"]))])
    return "\n".join(lines) + "\n"


def main():
    results = sys.argv[1]
    checks = read_checks(results)
    outcomes = read_outcomes(results, checks)
    failed = sum(check["state"].startswith("failed") for check in checks)
    targets = compared(outcomes)
    summary = {"gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                                "--format=csv,noheader"),
               "failed": failed, "checks": checks, "targets": targets, "outcomes": outcomes}
    with open(f"{results}/summary.json", "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=2)
        file.write("\n")
    with open(f"{results}/summary.md", "w", encoding="utf-8") as file:
        file.write(markdown(summary))
    print(f"\n{len(checks) - failed} of {len(checks)} checks passed or were skipped, "
          f"{sum(one['met'] for one in targets)} of {len(targets)} targets were met; "
          f"{results}/summary.md")
    sys.exit(1 if failed else 0)


main()
