"""The program bench/gpu_kernels and libraries of the kernels alone, compiled on the machine itself;
and variants of the kernels with other tunings."""
import concurrent.futures
import difflib
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

from call import ROOT

KERNELS = pathlib.Path("mezzo/kernels/cuda")
HARNESS = pathlib.Path("bench/gpu_kernels")
EMULATOR = pathlib.Path("tests/support/cuda_emulator")

# The tunings that a sweep varies. `threads`: values of kThreads * kBlocks, which bounds the
# registers of a thread. Times of `kinds` decide.
SWEEPS = [
    {"struct": "RowSumTuning", "kinds": "sum,weighted-sum", "widths": "64,256",
     "values": {"kThreads": [64, 128, 256], "kSlabBytes": [64, 128, 256, 512],
                "kUnroll": [4, 8]}, "threads": [768]},
    {"struct": "HeadLaunch", "kinds": "attention,attention-grad,gatv2", "widths": "256",
     "values": {"kThreads": [64, 128, 256], "kSlabBytes": [64, 128, 256, 512]},
     "threads": [512, 640]},
    {"struct": "WeightedGradTuning", "kinds": "dot,weighted-sum-grad", "widths": "256",
     "values": {"kThreads": [64, 128, 256], "kFeatures": [8, 16]}, "threads": []},
]


def kernel_sources():
    return sorted(path.relative_to(ROOT) for path in (ROOT / KERNELS).rglob("*.cu"))


class Compiler:
    """nvcc for the machine's GPU; or, to run on a CPU, g++ with the emulator. Objects are kept by
    the hash of what they are made of."""

    def __init__(self, folder, emulated, architecture="native"):
        self.folder, self.emulated = folder, emulated
        self.cache = ROOT / "build/gpu_run"
        self.cache.mkdir(parents=True, exist_ok=True)
        if emulated:
            self.command = ["g++", "-std=c++20", "-O0", "-w", "-fPIC", "-fvisibility=hidden",
                            f"-I{EMULATOR}", "-x", "c++"]
        else:
            nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
            self.command = [nvcc, "-std=c++20", "-O3", f"-arch={architecture}",
                            "--expt-relaxed-constexpr", "-Xcompiler=-fPIC,-fvisibility=hidden"]
        self.jobs = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.sources = hashlib.sha256()
        for top in ["mezzo/core", "mezzo/kernels", HARNESS, EMULATOR]:
            for path in sorted((ROOT / top).rglob("*")):
                if path.is_file():
                    self.sources.update(path.read_bytes())

    def _run(self, *command):
        done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")

    def _object(self, source, variant):
        # Files of the variant's folder go before those of the same name.
        own = variant / source if variant and (variant / source).exists() else source
        command = [*self.command, *([f"-I{variant}"] if variant else []), "-I.", "-c", own]
        key = self.sources.copy()
        for path in sorted(variant.rglob("*.*")) if variant else []:
            key.update(path.read_bytes())
        key.update(repr([str(word) for word in command if word != f"-I{variant}"]).encode())
        path = self.cache / f"{key.hexdigest()[:24]}.o"
        if not path.exists():
            self._run(*command, "-o", f"{path}.new")
            os.replace(f"{path}.new", path)
        return path

    def objects(self, sources, variant=None):
        """Futures of the object files."""
        return [self.jobs.submit(self._object, source, variant) for source in sources]

    def link(self, name, objects, *options):
        linker = "g++" if self.emulated else self.command[0]
        path = self.folder / name
        self._run(linker, "-o", path, *[one.result() for one in objects], *options)
        return path

    def emulator(self):
        return [EMULATOR / "emulator.cpp", EMULATOR / "fiber.cpp"] if self.emulated else []

    def library_objects(self):
        """Of the kernels, by source."""
        sources = kernel_sources() + [KERNELS / "table.cpp", HARNESS / "check_launch.cu"]
        sources += self.emulator()
        return dict(zip(sources, self.objects(sources)))

    def library(self, name, objects):
        return self.link(f"{name}.so", objects.values(), "-shared")

    def harness(self):
        sources = [path.relative_to(ROOT) for path in sorted((ROOT / HARNESS).glob("*.c*"))]
        return self.link("gpu_kernels", self.objects(sources + self.emulator()), "-ldl",
                         *(["-pthread"] if self.emulated else ["-Xcompiler=-pthread"]))


# ---- variants

def declaration(struct):
    """The file under the kernels that declares a struct, and the text of its body's span."""
    for path in sorted((ROOT / KERNELS).rglob("*")):
        if path.suffix in (".h", ".cu"):
            found = re.search(rf"^struct {struct} {{\n.*?^}};", path.read_text(), re.S | re.M)
            if found:
                return path.relative_to(ROOT), found.span()
    raise RuntimeError(f"sweep: no file of {KERNELS} declares struct {struct}")


def value_of(struct, name):
    path, (begin, end) = declaration(struct)
    body = (ROOT / path).read_text()[begin:end]
    found = re.search(rf"static constexpr int {name} = (\d+);", body)
    if not found:
        raise RuntimeError(f"sweep: struct {struct} of {path} has no 'static constexpr int {name}'")
    return int(found[1])


def with_values(struct, values):
    """The file that declares the struct, and its text with other values."""
    path, (begin, end) = declaration(struct)
    text = (ROOT / path).read_text()
    body = text[begin:end]
    for name, value in values.items():
        value_of(struct, name)
        body = re.sub(rf"(static constexpr int {name} = )\d+;", rf"\g<1>{value};", body)
    return path, text[:begin] + body + text[end:]


def dependents(header):
    """The kernels' sources that include a file, also through others."""
    def includes(path, seen):
        if path in seen or not (ROOT / path).exists():
            return seen
        seen.add(path)
        for name in re.findall(r'#include "(mezzo/[^"]+)"', (ROOT / path).read_text()):
            includes(pathlib.Path(name), seen)
        return seen
    return [source for source in kernel_sources() if header in includes(source, set())]


def points(sweep):
    """The values of all variants: first those checked in."""
    names = list(sweep["values"])
    bounded = ["kBlocks"] if sweep["threads"] else []
    yield {name: value_of(sweep["struct"], name) for name in names + bounded}
    for values in itertools.product(*sweep["values"].values()):
        point = dict(zip(names, values))
        for threads in sweep["threads"] or [0]:
            yield {**point, "kBlocks": threads // point["kThreads"]} if threads else point


def named(values):
    return "_".join(f"{name[1:]}{value}" for name, value in values.items())


def build_variants(compiler, sweep, most=None):
    """(name, values, path of the library) of each variant that compiles, and the errors of the
    others by name."""
    base = compiler.library_objects()
    waiting, seen = [], []
    for values in points(sweep):
        if values in seen or (most and len(seen) == most):
            continue
        seen.append(values)
        folder = compiler.folder / sweep["struct"] / named(values)
        path, text = with_values(sweep["struct"], values)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        changed = dependents(path) if len(seen) > 1 else []
        waiting.append((named(values), values,
                        {**base, **dict(zip(changed, compiler.objects(changed, folder)))}))
    built, errors = [], {}
    for name, values, objects in waiting:
        try:
            library = compiler.library(f"{sweep['struct']}_{name}", objects)
            built.append((name, values, library))
        except RuntimeError as error:
            errors[name] = str(error)
    return built, errors


def ranking(report, names):
    """(geometric mean of the times relative to the first variant's, name), best first; variants
    that failed somewhere come last."""
    times = {}
    for result in report["results"]:
        for one in result["candidates"]:
            key = (result["work"], result["width"], one["precision"])
            times.setdefault(one["library"], {})[key] = one["min_ms"]
    first, ranks = times.get(names[0], {}), []
    for name in names:
        own = times.get(name, {})
        ratios = [own[key] / first[key] if own.get(key) and first.get(key) else math.inf
                  for key in first]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.inf
        ranks.append((mean, name))
    return sorted(ranks)


def choose(sweep, variants, report_path):
    """The best variant as a diff for `git apply` (empty if it is the one checked in), and a table
    of all variants."""
    report = json.loads(pathlib.Path(report_path).read_text())
    ranks = ranking(report, [name for name, _, _ in variants])
    values = {name: values for name, values, _ in variants}
    path, text = with_values(sweep["struct"], values[ranks[0][1]])
    diff = difflib.unified_diff((ROOT / path).read_text().splitlines(True), text.splitlines(True),
                                f"a/{path}", f"b/{path}")
    table = [f"| {sweep['struct']} | time, relative to what is checked in |", "| --- | --- |"]
    table += [f"| {name} | {mean:.3f} |" for mean, name in ranks]
    return "".join(diff), "\n".join(table) + "\n"
