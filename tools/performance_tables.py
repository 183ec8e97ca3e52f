"""The tables and the pictures of docs/performance.md, from the data files docs/performance/*.json.

A data file describes a machine and has a row for each measured work: "ms" is [minimum, median] of each
candidate, "mib" its peak memory. "over" is how many times as long as Mezzo another candidate took if
its time was not kept.
"""
import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/performance.md"
DATA = ROOT / "docs/performance"
PRECISIONS = ["fp32", "bf16", "fp16"]
BOTH = "forward+backward"


def number(value):
    """Three digits, at most two of them decimals."""
    if value == 0 or value >= 1000:
        return f"{value:.0f}"
    return f"{value:.{min(max(2 - math.floor(math.log10(value)), 0), 2)}f}"


def lines_of(header, rows):
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return text + ["| " + " | ".join(row) + " |" for row in rows]


def replace_table(document, name, lines):
    """`document` with `lines` between the markers of the table. Raises ValueError without them."""
    marker = f"<!-- table: {name} -->\n"
    begin = document.find(marker)
    if begin < 0 or document.find(marker, begin + 1) >= 0:
        raise ValueError(f"expected one line {marker.strip()!r}")
    begin += len(marker)
    end = document.find("<!-- end -->", begin)
    if end < 0 or "<!-- table: " in document[begin:end]:
        raise ValueError(f"expected '<!-- end -->' after {marker.strip()!r}")
    return document[:begin] + "".join(f"{line}\n" for line in lines) + document[end:]


# Converts reports of tools/bench to data files.


def row_of(run, result, edges):
    """The row of a result, with four digits. `edges`: of the report's graph."""
    candidates = {one["name"]: one for one in result["candidates"] if not one["skipped"]}
    row = {"run": run, "work": result["work"]}
    if result["width"]:
        row["features"] = result["width"]
    scale, key = 1, "ms"
    if run == "scaling":
        row["work"], _, count = re.fullmatch(r"(.*), (rmat\d+), (\d+) edges", result["work"]).groups()
        row["million_edges"] = round(int(count) * 1e-6, 2)
        scale, key = 1e6 / int(count), "ns_per_edge"
    row[key] = {name: [float(f"{one[time] * scale:.4g}") for time in ("min_ms", "median_ms")]
                for name, one in candidates.items()}
    if result["work"].startswith("neighbour sampling"):
        row["million_edges_per_s"] = {
            name: [float(f"{one['items'] * 1e-3 / ms:.4g}") for ms in row[key][name]]
            for name, one in candidates.items()}
        del row[key]
    if run.startswith("attention"):
        row["mib"] = {name: round(one["peak_bytes"] / 2**20) for name, one in candidates.items()}
    shares = {name: round(100 * one["share_of_stream"]) for name, one in candidates.items()
              if one.get("share_of_stream") and name.startswith("mezzo")}
    return {**row, "stream_percent": shares} if shares else row


def rows_of(run, report):
    return [row_of(run, result, report["edges"]) for result in report["results"]
            if not result["skipped"]]


def data_text(data):
    """The data as JSON with one row a line."""
    head = "".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n"
                   for key, value in data.items() if key not in ("runs", "rows"))
    runs = ",\n".join(f"    {json.dumps(run)}: {json.dumps(of)}" for run, of in data["runs"].items())
    rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in data["rows"])
    return f'{{\n{head}  "runs": {{\n{runs}\n  }},\n  "rows": [\n{rows}\n  ]\n}}\n'


# Converts data files to tables.


class Processor:
    def __init__(self, data):
        self.name, self.machine, self.date = data["processor"], data["machine"], data["date"]
        self.rows = data["rows"]

    def find(self, run, work, features=None):
        """The row whose work is or begins with `work`; {} without one."""
        for row in self.rows:
            same = row["work"] == work or row["work"].startswith(f"{work}, ")
            if row["run"] == run and same and features in (None, row.get("features")):
                return row
        return {}


def load():
    return [Processor(json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(DATA.glob("*.json"))]


def minimum(row, name, unit="ms"):
    return row[unit][name][0] if name in row.get(unit, {}) else None


def baseline(row):
    """The time of the fastest float32 candidate that is not Mezzo; None without one."""
    times = [of[0] for name, of in row.get("ms", {}).items()
             if not name.startswith("mezzo") and name.split()[-1] not in ("bf16", "fp16")]
    return min(times, default=None)


def times(value, base):
    """A time, and how many times as long `base` takes."""
    if value is None:
        return ""
    return number(value) + (f" ({base / value:.1f}x)" if base else "")


def joined(cells):
    return " / ".join(cell or "–" for cell in cells) if any(cells) else ""


def grid(labels, keys, cells, columns=("",)):
    """A table: a row for each (labels of the row, key), columns for each processor.

    cells(processor, key) returns one text for each of `columns`. Processors and rows without any
    text are left out.
    """
    def lines(processors):
        times = {(processor, i): cells(processor, key)
                 for processor in processors for i, (_, key) in enumerate(keys)}
        shown = [one for one in processors if any(any(times[one, i]) for i in range(len(keys)))]
        header = [*labels, *(f"{one.name}{': ' * bool(text)}{text}" if j == 0 else text
                             for one in shown for j, text in enumerate(columns))]
        rows = [[*names, *(text for one in shown for text in times[one, i])]
                for i, (names, _) in enumerate(keys) if any(any(times[one, i]) for one in shown)]
        return lines_of(header, rows)
    return lines


def compared(processor, key):
    row = processor.find(*key)
    return [times(minimum(row, f"mezzo {precision}"), baseline(row)) for precision in ("fp32", "bf16")]


def kernels():
    sums = [(f"spmm-{graph}", work, graph) for graph in ("rmat17", "rmat20")
            for work in ("copy_u sum", "u_mul_e sum")]
    dots = [(f"sddmm-{graph}", "u_dot_v", graph) for graph in ("rmat17", "rmat20")]
    return [((graph, f"`{work}`", str(width)), (run, f"{work}, {BOTH}", width))
            for run, work, graph in sorted(sums + dots, key=lambda one: one[2])
            for width in (32, 64, 256)]


def operations():
    works = [("softmax-rmat17", "edge softmax", width) for width in (4, 8)]
    works += [("reducers-rmat17", f"copy_u {reduce}", 64) for reduce in ("mean", "max", "min", "prod")]
    works += [("segment-rmat17", work, 256) for work in (
        "segment sum", "segment_mm, 131072 rows, 32 factors", "gather_mm, 131072 rows, 32 factors")]
    works += [("dropout", "dropout, 131072 rows", 256)]
    return [((work, str(width)), (run, f"{work}, {BOTH}", width)) for run, work, width in works]


LAYERS = [("GAT", "attention-rmat17"), ("GATv2", "attention-rmat15")]
CANDIDATES = {"gather-scatter, fp32": "gather-scatter",
              **{f"Mezzo, {precision}": f"mezzo {precision}" for precision in ("fp32", "bf16")}}


def layer(processor, key):
    run, work, name = key
    row = processor.find(run, work)
    if name not in row.get("ms", {}):
        return [""]
    base = None if name == "gather-scatter" else baseline(row)
    return [f"{times(minimum(row, name), base)}, {row['mib'][name]} MiB"]


EPOCHS = {"rmat17": "epoch-rmat17", "coauthor-physics, sparse": "epoch-coauthor-physics",
          "coauthor-physics, dense": "epoch-coauthor-physics-dense"}


def epoch(processor, key):
    row = processor.find(*key)
    return [joined([times(minimum(row, f"mezzo {precision}"),
                          precision != "fp32" and minimum(row, "mezzo fp32"))
                    for precision in PRECISIONS])]


SIZES = ["131072 x 602 x 256", "131072 x 256 x 256", "34493 x 8415 x 256", "131072 x 256 x 41",
         "2048 x 256 x 256", "512 x 64 x 64", "2048 x 64 x 64"]


def product(processor, key):
    row = processor.find(*key)
    return [joined([times(minimum(row, f"mezzo {precision}"), minimum(row, name))
                    for precision, name in zip(PRECISIONS, ("libtorch", "libtorch bf16",
                                                            "libtorch fp16"))])]


def growing(processors):
    """Nanoseconds an edge, of the processors with the run "scaling"; a column for each size."""
    rows = [(one.name, row) for one in processors for row in one.rows if row["run"] == "scaling"]
    sizes = sorted({row["million_edges"] for _, row in rows})
    cells = {}
    for name, row in rows:
        for precision in ("fp32", "bf16"):
            value = minimum(row, f"mezzo {precision}", "ns_per_edge")
            if value is not None:
                cells.setdefault((name, row["work"].removesuffix(f", {BOTH}"), precision), {})[row["million_edges"]] = value
    return lines_of(["processor", "work", "", *(f"{size} M" for size in sizes)],
                    [[*key, *(number(of[size]) if size in of else "" for size in sizes)]
                     for key, of in cells.items()])


def sampled(processor, key):
    run, work, threads = key
    row = processor.find(run, work)
    rates = [minimum(row, f"{name}, {threads}", "million_edges_per_s")
             for name in ("mezzo", "mezzo, with degrees", "hash maps")]
    if rates[0] is None:
        return [""]
    text = number(rates[0]) + (f" ({rates[0] / rates[2]:.1f}x)" if rates[2] else "")
    return [text if rates[1] is None else f"{text} / {number(rates[1])}"]


def pipelined(processor, key):
    run, precision = key
    row = processor.find(run, "mini-batch SAGE epoch")
    times = [minimum(row, name) for name in ("prepare alone", f"train alone, {precision}",
                                             f"pipelined, {precision}")]
    return [" / ".join(map(number, times)) if None not in times else ""]


def optimizer(processor, key):
    row = processor.find("optimizer", key)
    return [times(minimum(row, "fused"), minimum(row, "libtorch"))]


TWO = ("fp32", "bf16")
TABLES = {
    "machines": lambda processors: lines_of(
        ["", "machine", "measured"], [[one.name, one.machine, one.date] for one in processors]),
    "kernels": grid(["graph", "work", "F"], kernels(), compared, TWO),
    "operations": grid(["work", "F"], operations(), compared, TWO),
    "layers": grid(["layer", "candidate"],
                   [((title, shown), (run, f"{title} layer, 4 x 64, {BOTH}", name))
                    for title, run in LAYERS for shown, name in CANDIDATES.items()], layer),
    "epochs": grid(["graph", "model"], [((graph, model.upper()), (run, f"{model} epoch"))
                                        for graph, run in EPOCHS.items()
                                        for model in ("gcn", "sage", "gat")], epoch),
    "products": grid(["rows x in x out"], [((size,), ("linear", f"linear {size}, {BOTH}"))
                                           for size in SIZES], product),
    "growing": growing,
    "sampling": grid(["graph", "fan-outs", "threads"],
                     [((graph, "15,10,5", threads[0]),
                       (f"sampling-{graph}", "neighbour sampling [15,10,5]", threads))
                      for graph in ("rmat20", "rmat21") for threads in ("1 thread", "2 threads")],
                     sampled),
    "pipelining": grid(["graph", "precision"],
                       [((graph, precision), (f"sampling-{graph}", precision))
                        for graph in ("rmat20", "rmat21") for precision in ("fp32", "bf16")],
                       pipelined),
    "optimizers": grid(["optimizer", "parameters"],
                       [((name, f"{count:,}"), f"{name}, {count} parameters") for count in
                        (6800, 4010000) for name in ("Adam", "SGD with momentum")],
                       optimizer),
}


def page(processors, document):
    """The text of the page with the tables of the processors."""
    for name, table in TABLES.items():
        document = replace_table(document, name, table(processors))
    return document


# The pictures: bars of how many times as fast, for each processor, as SVG.

WORKS = [("copy_u", "spmm-rmat17", f"copy_u sum, {BOTH}"),
         ("u_mul_e", "spmm-rmat17", f"u_mul_e sum, {BOTH}"),
         ("u_dot_v", "sddmm-rmat17", f"u_dot_v, {BOTH}")]
COLOURS = {"fp32": "#7f8fa6", "bf16": "#2f6fb0", "fp16": "#c98a2b"}
WIDTH_OF_PICTURE = 128


def kernel_bars(processor):
    for title, run, work in WORKS:
        row = processor.find(run, work, WIDTH_OF_PICTURE)
        for precision in TWO:
            yield title, precision, baseline(row), minimum(row, f"mezzo {precision}")


def epoch_bars(processor):
    for model in ("gcn", "sage", "gat"):
        row = processor.find("epoch-rmat17", f"{model} epoch")
        for precision in ("bf16", "fp16"):
            yield (model.upper(), precision, minimum(row, "mezzo fp32"),
                   minimum(row, f"mezzo {precision}"))


def picture(processors, title, subtitle, bars_of):
    """bars_of(processor) yields (title, precision, time of the compared, time); two of each title."""
    bars = {one.name: [(*names, base / value) for *names, base, value in bars_of(one)
                       if base and value] for one in processors}
    bars = {name: of for name, of in bars.items() if of}
    precisions = list(dict.fromkeys(precision for of in bars.values() for _, precision, _ in of))
    top = math.ceil(max(height for of in bars.values() for _, _, height in of))
    panel, left, floor, unit = 196, 40, 250, 180 / top
    width = left + panel * len(bars) + 10
    shapes = []

    def text(x, y, words, size=12, anchor="middle"):
        shapes.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{words}</text>')

    text(left, 22, title, 14, "start")
    text(left, 42, subtitle, 12, "start")
    for level in range(0, top + 1):
        y = floor - level * unit
        dash = ' stroke-dasharray="4 3"' if level == 1 else ""
        colour = "#444" if level == 1 else "#ddd"
        shapes.append(f'<path d="M{left} {y:.1f}H{width - 10}" stroke="{colour}"{dash}/>')
        text(left - 6, f"{y + 4:.1f}", f"{level}x", 11, "end")
    for i, (name, of) in enumerate(bars.items()):
        x = left + panel * i
        for j, (work, precision, height) in enumerate(of):
            at = x + 12 + 26 * j + 8 * (j // 2)
            shapes.append(f'<rect x="{at}" y="{floor - height * unit:.1f}" width="24" '
                          f'height="{height * unit:.1f}" fill="{COLOURS[precision]}"/>')
            text(at + 12, f"{floor - height * unit - 3:.1f}", f"{height:.1f}", 10)
            if j % 2 == 0:
                text(at + 25, floor + 15, work, 11)
        text(x + panel / 2 - 4, floor + 34, name, 13)
    for i, precision in enumerate(precisions):
        x = width - 120 + 60 * i
        shapes.append(f'<rect x="{x}" y="32" width="10" height="10" fill="{COLOURS[precision]}"/>')
        text(x + 14, 42, precision, 12, "start")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{floor + 45}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(shapes) + "\n</svg>\n")


def pictures(processors):
    """The text of each picture, by the name of its file."""
    return {
        "kernels.svg": picture(
            processors, "Sums and dot products over the edges, forward and backward, "
            f"{WIDTH_OF_PICTURE} features",
            "times as fast as the best of libtorch's float32 operations on the same processor",
            kernel_bars),
        "epochs.svg": picture(
            processors, "Training steps of two layers on a graph of 2 million edges, 602 features",
            "times as fast as Mezzo's own float32 on the same processor", epoch_bars)}
