"""The tables of docs/performance.md, of reports of tools/bench: minima, medians in parentheses."""
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/performance.md"
PRECISIONS = ["fp32", "bf16", "fp16"]
NONE = "–"


def number(value):
    """Three digits, as tables of times need them."""
    if value is None or math.isnan(value):
        return NONE
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 2)}f}" if value < 1000 else f"{value:.0f}"


def contender(result, name):
    """The contender of a work, or None where it is not there or was skipped."""
    for one in result["contenders"] if result else []:
        if one["name"] == name and not one["skipped"]:
            return one
    return None


def ours(result, precision):
    return contender(result, f"mezzo {precision}")


def cell(one, scale=1):
    """Minimum and median, in ms times `scale`."""
    if one is None:
        return NONE
    return f"{number(one['min_ms'] * scale)} ({number(one['median_ms'] * scale)})"


def ratio(one, other, bold=False):
    """How often as fast as `other` a contender is."""
    if one is None or other is None:
        return NONE
    text = f"{other['min_ms'] / one['min_ms']:.2f}x"
    return f"**{text}**" if bold else text


def fastest_yardstick(result):
    found = [one for one in result["contenders"]
             if not one["ours"] and not one["skipped"] and one["precision"] == "fp32"]
    return min(found, key=lambda one: one["min_ms"], default=None)


def find(report, work, width=None):
    """The result of a work; None where it was not measured."""
    for result in report["results"] if report else []:
        if result["work"] == work and width in (None, result["width"]) and not result["skipped"]:
            return result
    return None


def lines_of(header, rows):
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return text + ["| " + " | ".join(row) + " |" for row in rows]


def conditions(name, report):
    words = f"{report['threads']} threads, {report['rounds']} rounds"
    if report["stream_bytes_per_second"]:
        words += f", memory read at {report['stream_bytes_per_second'] * 1e-9:.0f} GB/s"
    return f"`{name}`: {words}."


SPEEDS = ["best yardstick, ms", "fp32, ms", "", "bf16, ms", "fp32 / bf16", "fp16, ms",
          "fp32 / fp16"]


def speeds(result):
    yardstick = fastest_yardstick(result)
    wide, brain, half = (ours(result, precision) for precision in PRECISIONS)
    best = f"{cell(yardstick)}, {yardstick['name']}" if yardstick else NONE
    return [best, cell(wide), ratio(wide, yardstick, bold=True), cell(brain), ratio(brain, wide),
            cell(half), ratio(half, wide)]


def of_stream(result):
    shares = []
    for precision in ("fp32", "bf16"):
        one = ours(result, precision)
        share = one["share_of_stream"] if one else None
        shares.append(NONE if share is None else f"{100 * share:.0f}")
    return " / ".join(shares) + " %"


class Widths:
    """One work, a row a width. versus: heading, precision of ours, names of the other one."""

    def __init__(self, run, work, versus=None):
        self.runs, self.work, self.versus = [run], work, versus

    def lines(self, reports):
        header = ["F", *SPEEDS, "of stream, fp32 / bf16"]
        if self.versus:
            header.insert(-1, self.versus[0])
        rows = []
        for result in reports[self.runs[0]]["results"]:
            if result["work"] != self.work or result["skipped"]:
                continue
            row = [str(result["width"]), *speeds(result), of_stream(result)]
            if self.versus:
                _, precision, other = self.versus
                row.insert(-1, ratio(ours(result, precision), contender(result, other)))
            rows.append(row)
        return lines_of(header, rows)


class Works:
    """Every work of some runs, a row each, sorted by work and pass."""

    def __init__(self, *runs, stream=False):
        self.runs, self.stream = list(runs), stream

    def lines(self, reports):
        found = {}
        for run in self.runs:
            for result in reports[run]["results"]:
                if not result["skipped"]:
                    found.setdefault(result["work"], []).append(result)
        header = ["work", "F", *SPEEDS] + ["of stream, fp32 / bf16"] * self.stream
        rows = []
        for work, results in found.items():
            for i, result in enumerate(sorted(results, key=lambda one: one["width"])):
                row = ["" if i else work, str(result["width"]), *speeds(result)]
                rows.append(row + [of_stream(result)] * self.stream)
        return lines_of(header, rows)


class Layer:
    """A layer of attention: gather-scatter and ours, time and memory."""

    def __init__(self, name, run):
        self.runs, self.name = [run], name

    def lines(self, reports):
        by_pass = {}
        for result in reports[self.runs[0]]["results"]:
            work, _, passes = result["work"].rpartition(", ")
            if work.startswith(self.name + " layer") and not result["skipped"]:
                by_pass[passes] = result
        forward, both = by_pass.get("forward"), by_pass.get("forward+backward")
        base = contender(both, "gather-scatter")
        rows = []
        for label, name in [("gather-scatter, fp32", "gather-scatter"),
                            *((precision, f"mezzo {precision}") for precision in PRECISIONS)]:
            one = contender(both, name)
            memory = f"{one['peak_bytes'] / 2**20:.0f} MiB" if one else NONE
            compared = one and base and one is not base
            rows.append([label, cell(contender(forward, name)), cell(one), memory,
                         f"1/{base['min_ms'] / one['min_ms']:.1f}" if compared else "",
                         f"1/{base['peak_bytes'] / one['peak_bytes']:.0f}" if compared else ""])
        return lines_of(["", "forward, ms", "forward + backward, ms", "memory, forward + backward",
                         "time", "memory"], rows)


class Epochs:
    """Models, a row each; columns of every run. runs: run to (heading, whether of fp32 alone)."""

    def __init__(self, runs):
        self.headings, self.runs = runs, list(runs)

    def lines(self, reports):
        header, rows = ["model"], {}
        for run, (heading, float32_alone) in self.headings.items():
            header.append(heading)
            if not float32_alone:
                header += ["bf16", "", "fp16", ""]
            for result in reports[run]["results"] if run in reports else []:
                model = result["work"].split()[0]
                wide, brain, half = (ours(result, precision) for precision in PRECISIONS)
                row = rows.setdefault(model, [model.upper()])
                row.append(cell(wide))
                if not float32_alone:
                    row += [cell(brain), ratio(brain, wide), cell(half), ratio(half, wide)]
        return lines_of(header, rows.values())


class Contenders:
    """The contenders of the only work of a run, a row each."""

    def __init__(self, run):
        self.runs = [run]

    def lines(self, reports):
        result = reports[self.runs[0]]["results"][0]
        every = [one for one in result["contenders"] if not one["skipped"]]
        return lines_of(["", "ms", f"{every[0]['name']} / this"],
                        [[one["name"], cell(one), ratio(one, every[0])] for one in every])


class Products:
    """Dense products: libtorch's and ours of one precision in a cell."""

    runs = ["linear"]

    def lines(self, reports):
        rows = []
        for result in reports["linear"]["results"]:
            size = re.fullmatch(r"linear (.*), (forward.*)", result["work"])
            if result["skipped"] or not size:
                continue
            row = [size[1], size[2].replace("+", " + ")]
            for precision in PRECISIONS:
                name = "libtorch" if precision == "fp32" else f"libtorch {precision}"
                row.append(f"{cell(contender(result, name))} / {cell(ours(result, precision))}")
            rows.append([*row, ratio(ours(result, "bf16"), ours(result, "fp32"))])
        return lines_of(["rows x in x out", "pass", *PRECISIONS, "bf16 over fp32, Mezzo"], rows)


class Sampling:
    """Millions of sampled edges a second: best and, in parentheses, median."""

    runs = ["sampling-rmat20", "sampling-rmat21"]

    def lines(self, reports):
        rows = []
        for report in reports.values():
            graph = f"{report['graph']}, {report['edges'] * 1e-6:.1f} M edges"
            for result in report["results"]:
                fanouts = re.match(r"neighbour sampling \[([\d,-]*)\]", result["work"])
                if not fanouts or result["skipped"]:
                    continue
                for one in result["contenders"]:
                    if not one["name"].startswith("mezzo, ") or "degrees" in one["name"]:
                        continue
                    rows.append([graph, fanouts[1], *self.row(result, one)])
        return lines_of(["graph", "fan-outs", "threads", "Mezzo", "with degrees", "hash maps", "",
                         "bare reads", "share of it"], rows)

    def row(self, result, one):
        threads = one["name"].split(", ")[1]
        edges = one["items"] * 1e-6

        def rate(other):
            if other is None:
                return NONE
            best, median = (number(edges / (other[key] * 1e-3)) for key in ("min_ms", "median_ms"))
            return f"{best} ({median})"

        hashed, bare = (contender(result, f"{name}, {threads}") for name in ("hash maps",
                                                                            "bare reads"))
        share = f"{100 * bare['min_ms'] / one['min_ms']:.0f} %" if bare else NONE
        return [threads.split()[0], rate(one),
                rate(contender(result, f"mezzo, with degrees, {threads}")), rate(hashed),
                ratio(one, hashed), rate(bare), share]


class Pipelining:
    """The mini-batch epochs: preparing, training, both, and the stages of the pipeline."""

    runs = Sampling.runs
    STAGES = ["sample", "gather", "transfer", "wait"]

    def lines(self, reports):
        rows = []
        for report in reports.values():
            for result in report["results"]:
                if not result["work"].startswith("mini-batch") or result["skipped"]:
                    continue
                prepare = contender(result, "prepare alone")
                for precision in PRECISIONS:
                    train = contender(result, f"train alone, {precision}")
                    both = contender(result, f"pipelined, {precision}")
                    if not (prepare and train and both):
                        continue
                    slower = max(prepare["min_ms"], train["min_ms"])
                    rows.append([report["graph"], precision, cell(prepare), cell(train), cell(both),
                                 f"{both['min_ms'] / slower:.2f}x",
                                 *(number(both["stages"][stage]["median_ms"])
                                   for stage in self.STAGES)])
        return lines_of(["graph", "precision", "prepare, ms", "train, ms", "together, ms",
                         "of the slower", *(f"{stage}, ms" for stage in self.STAGES)], rows)


class Optimizers:
    """A step by libtorch and fused, a row a number of parameters."""

    runs = ["optimizer"]

    def lines(self, reports):
        names, rows = [], {}
        for result in reports["optimizer"]["results"]:
            name, _, parameters = result["work"].rpartition(", ")
            if result["skipped"]:
                continue
            if name not in names:
                names.append(name)
            torch, fused = contender(result, "libtorch"), contender(result, "fused")
            count = int(parameters.split()[0])
            rows.setdefault(count, {})[name] = (f"{cell(torch)} / {cell(fused)}, "
                                                f"{ratio(fused, torch)}")
        return lines_of(["parameters", *names],
                        [[f"{count:,}", *(row.get(name, NONE) for name in names)]
                         for count, row in sorted(rows.items())])


class Scaling:
    """Nanoseconds an edge of each kernel, a column a graph."""

    runs = ["scaling"]

    def lines(self, reports):
        sizes, rows = [], {}
        for result in reports["scaling"]["results"]:
            parts = re.fullmatch(r"(.*), rmat\d+, (\d+) edges", result["work"])
            if not parts or result["skipped"]:
                continue
            edges = int(parts[2])
            if edges not in sizes:
                sizes.append(edges)
            for precision in PRECISIONS:
                one = ours(result, precision)
                if one:
                    key = (parts[1], result["width"], precision)
                    rows.setdefault(key, {})[edges] = cell(one, 1e6 / edges)
        header = ["work", "F", "precision", *(f"{edges * 1e-6:.2f} M" for edges in sizes)]
        return lines_of(header, [[key[0], str(key[1]), key[2],
                                  *(row.get(edges, NONE) for edges in sizes)]
                                 for key, row in rows.items()])


class Orders:
    """The same works on a graph as drawn and in other orders of its nodes."""

    ORDERS = {"none": "spmm-rmat20", "degree": "spmm-rmat20-degree", "rcmk": "spmm-rmat20-rcmk"}
    runs = list(ORDERS.values())

    def lines(self, reports):
        first = reports[self.ORDERS["degree"]]
        rows = []
        for result in first["results"]:
            base = find(reports[self.ORDERS["none"]], result["work"], result["width"])
            for order, run in self.ORDERS.items():
                one = find(reports[run], result["work"], result["width"])
                row = [result["work"] if order == "none" else "", str(result["width"]), order]
                for precision in PRECISIONS:
                    row += [cell(ours(one, precision)),
                            ratio(ours(one, precision), ours(base, precision))]
                rows.append(row)
        header = ["work", "F", "order"]
        for precision in PRECISIONS:
            header += [f"{precision}, ms", "over none"]
        return lines_of(header, rows)


BACK = "forward+backward"
TABLES = {
    "copy_u-forward": Widths("spmm-rmat17", "copy_u sum, forward",
                             ("vs bf16 reduce", "bf16", "CSR mm reduce bf16")),
    "copy_u-backward": Widths("spmm-rmat17", f"copy_u sum, {BACK}",
                              ("vs autograd", "fp32", "CSR autograd")),
    "u_mul_e-forward": Widths("spmm-rmat17", "u_mul_e sum, forward"),
    "u_mul_e-backward": Widths("spmm-rmat17", f"u_mul_e sum, {BACK}",
                               ("vs gather", "fp32", "gather-scatter")),
    "u_dot_v-forward": Widths("sddmm-rmat17", "u_dot_v, forward", ("vs gather", "fp32", "gather")),
    "u_dot_v-backward": Widths("sddmm-rmat17", f"u_dot_v, {BACK}", ("vs gather", "fp32", "gather")),
    "rmat20": Works("spmm-rmat20", "sddmm-rmat20"),
    "reducers": Works("reducers-rmat17"),
    "reorder": Orders(),
    "scaling": Scaling(),
    "gat": Layer("GAT", "attention-rmat17"),
    "gatv2": Layer("GATv2", "attention-rmat15"),
    "softmax": Works("softmax-rmat17", stream=True),
    "segment": Works("segment-rmat17"),
    "dropout": Works("dropout", stream=True),
    "epochs": Epochs({"epoch-rmat17": ("fp32", False),
                      "epoch-rmat17-libtorch": ("fp32, products by MKL", True)}),
    "epochs-coauthor-physics": Epochs({"epoch-coauthor-physics": ("sparse: fp32", False),
                                       "epoch-coauthor-physics-dense": ("dense: fp32", False)}),
    "cnn": Contenders("cnn"),
    "linear": Products(),
    "sampling": Sampling(),
    "pipelining": Pipelining(),
    "optimizers": Optimizers(),
}


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
    return document[:begin] + "\n".join(["", *lines, ""]) + "\n" + document[end:]
