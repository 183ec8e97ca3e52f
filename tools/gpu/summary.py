#!/usr/bin/env python3
"""The summary of calls of tools/gpu_run, and of several of them together.

usage: tools/gpu/summary.py call-1.json call-3.json ...

Prints the merged summary as Markdown. Targets that compare rows of several calls, such as those
over cuSPARSE, appear only there. Fails if a check did; a missed target is reported and fails
nothing.
"""
import json
import pathlib
import subprocess
import sys

REDDIT_EDGES = "114615892 edges"


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def count_tests(logs, checks):
    """Adds what GoogleTest counted to the checks that ran tests."""
    for check in checks:
        path = logs / f"{check['name']}.tests.json"
        if not path.exists():
            continue
        counts = json.loads(path.read_text(encoding="utf-8"))
        tests = [test for suite in counts["testsuites"] for test in suite["testsuite"]]
        check["tests"] = counts["tests"]
        check["failures"] = counts.get("failures", 0)
        check["skipped"] = sum(test.get("result") == "SKIPPED" for test in tests)


def read_outcomes(number, logs, checks):
    """What was measured, one dictionary a candidate. Candidates that failed become checks."""
    outcomes, bandwidth = [], {}
    for path in sorted(logs.glob("*.report.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        for name in ("copy_bytes_per_second", "cache_bytes_per_second"):
            if name in report:
                bandwidth[name] = report[name]
        for outcome in report["results"]:
            for candidate in outcome["candidates"]:
                outcomes.append({"work": outcome["work"], "width": outcome["width"], **candidate})
                if str(candidate.get("skipped") or "").startswith("FAILED"):
                    checks.append({"call": number, "seconds": 0, "state":
                                   "failed: " + candidate["skipped"].removeprefix("FAILED: "),
                                   "name": f"{outcome['work']}, F={outcome['width']}: "
                                           f"{candidate['name']}"})
    return outcomes, bandwidth


def of_call(call):
    """The summary of a finished call."""
    checks = list(call.checks)
    count_tests(call.logs, checks)
    outcomes, bandwidth = read_outcomes(call.number, call.logs, checks)
    return {"call": call.number, "name": call.name, "dry_run": call.dry_run,
            "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                             "--format=csv,noheader"),
            "failed": sum(check["state"].startswith("failed") for check in checks),
            "checks": checks, "outcomes": outcomes, "bandwidth": bandwidth, "tables": call.tables}


class Candidates:
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
    """The targets of docs/gpu.md for which both sides were timed."""
    found = []
    for work, width in sorted({(one["work"], one["width"]) for one in outcomes}):
        for what, value, relation, target in targets_of(work, Candidates(outcomes, work, width)):
            if value is not None:
                met = value >= target if relation == ">=" else value <= target
                found.append({"work": work, "width": width, "what": what, "value": value,
                              "target": f"{relation} {target}", "met": met})
    return found


def table(header, rows):
    lines = [header, ["---"] * len(header)] + rows
    return ["", *("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)]


def rate(one, bandwidth):
    """Bytes a second, and their share of a copy's."""
    if not one.get("moved_bytes"):
        return "", ""
    value = one["moved_bytes"] / (one["min_ms"] * 1e-3)
    copy = bandwidth.get("copy_bytes_per_second")
    return f"{value * 1e-9:.0f}", f"{100 * value / copy:.0f} %" if copy else ""


def measured_rows(outcomes, bandwidth):
    for one in sorted(outcomes, key=lambda one: (one["work"], one["width"])):
        if one.get("min_ms") is None:
            continue
        error = one.get("max_relative_error")
        yield [one["work"], one["width"], one["name"], f"{one['min_ms']:.3f}",
               f"{one['median_ms']:.3f}", "" if error is None else f"{error:.1e}",
               f"{one['peak_bytes'] / 2**20:.0f}", *rate(one, bandwidth)]


def verdict(calls):
    checks = [check for call in calls for check in call["checks"]]
    failed = sum(call["failed"] for call in calls)
    return f"{len(checks) - failed} of {len(checks)} checks passed or were skipped"


def markdown(calls):
    outcomes = [one for call in calls for one in call["outcomes"]]
    bandwidth = {name: value for call in calls for name, value in call["bandwidth"].items()}
    targets = compared(outcomes)
    lines = []
    if any(call["dry_run"] for call in calls):
        lines += ["**A dry run without a GPU: no figure here means anything.**", ""]
    for call in calls:
        lines.append(f"- call {call['call']}, {call['name']}: {call['gpu'] or 'no GPU found'}; "
                     f"{call['failed']} failed")
    if len({call["gpu"] for call in calls}) > 1:
        lines.append("- The calls ran on different GPUs: do not compare their times.")
    for name, value in bandwidth.items():
        lines.append(f"- {name.replace('_', ' ')}: {value:.3g}")
    lines += table(["call", "check", "state", "tests", "skipped", "s"],
                   [[check["call"], check["name"], check["state"], check.get("tests", ""),
                     check.get("skipped", ""), check["seconds"]]
                    for call in calls for check in call["checks"]])
    if targets:
        lines += table(["work", "F", "what", "measured", "target", "met"],
                       [[one["work"], one["width"], one["what"], f"{one['value']:.2f}",
                         one["target"], "yes" if one["met"] else "**no**"] for one in targets])
    measured = list(measured_rows(outcomes, bandwidth))
    if measured:
        lines += table(["work", "F", "candidate", "min ms", "median ms", "error", "peak MiB",
                        "GB/s", "of a copy"], measured)
    for call in calls:
        for name, text in call["tables"].items():
            fence = [] if text.startswith("|") else ["```"]
            lines += ["", f"{name}:", "", *fence, text.rstrip(), *fence]
    return "\n".join(lines) + "\n"


def write(calls, stem):
    """stem.json (of one call) and stem.md."""
    with open(f"{stem}.json", "w", encoding="utf-8") as file:
        json.dump(calls[0], file, indent=1)
        file.write("\n")
    with open(f"{stem}.md", "w", encoding="utf-8") as file:
        file.write(markdown(calls))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    calls = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:]]
    calls.sort(key=lambda call: call["call"])
    print(markdown(calls), end="")
    sys.exit(1 if any(call["failed"] for call in calls) else 0)


if __name__ == "__main__":
    main()
