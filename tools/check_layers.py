#!/usr/bin/env python3
"""Checks the includes under mezzo/ and bench/ against mezzo/LAYERS; prints each that is not allowed.

A file may include its own layer and those listed before it. A layer with a list after its colon may
be included by the listed ones only. `core`, `kernels` and `gpu_kernels` see no libtorch, and no
file of the library includes torch/torch.h but the umbrella header, which is for users.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
WITHOUT_LIBTORCH = {"core", "kernels", "gpu_kernels"}
OF_CUDA = re.compile(r"(cuda\w*|cublas\w*|cusparse\w*|nccl|curand\w*)\.h$|(cub|thrust|cooperative_groups)\b")
OF_LIBTORCH_CUDA = re.compile(r"(c10|ATen|torch/csrc)/(cuda|cudnn)/|torch/csrc/.*NCCL")


def read_layers():
    """The layers in order, and for some of them the set of layers that may include them."""
    order, only = [], {}
    for line in (ROOT / "mezzo/LAYERS").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, _, users = line.partition(":")
        order.append(name.strip())
        only[order[-1]] = set(users.split())  # empty: every later layer may use it
    return order, only


def fault(folder, target, order, only):
    """What is wrong when a file in `folder` of mezzo/ includes `target`; None if nothing is."""
    here = folder.split("/")[0]
    if OF_CUDA.match(target) and not (folder + "/").startswith(("kernels/cuda/", "cuda/")):
        return f"{folder} may not include CUDA ({target}): only the plug-in's folders may"
    if OF_LIBTORCH_CUDA.match(target) and folder != "cuda":
        return f"{folder} may not include libtorch's headers for CUDA ({target})"
    if re.match(r"(torch|ATen|c10)/", target):
        if here in WITHOUT_LIBTORCH:
            return f"{here} may not include libtorch ({target})"
        if target == "torch/torch.h":
            return "only users include torch/torch.h, it costs 12 s in each file"
        return None
    layer = re.match(r"(?:mezzo/(\w+)|bench/(gpu_kernels)|(bench))/", target)
    there = layer and (layer[1] or layer[2] or layer[3])
    if not there or there == here:
        return None
    if there not in order:
        return f"mezzo/LAYERS does not list {there}"
    if order.index(there) > order.index(here) or (only[there] and here not in only[there]):
        return f"{here} may not include {there}"
    return None


def main():
    order, only = read_layers()
    bad = 0
    files = [path for folder in ("mezzo", "bench") for path in (ROOT / folder).rglob("*")]
    for path in sorted(path for path in files if path.suffix in SUFFIXES):
        relative = path.relative_to(ROOT)
        folders = [name for name in relative.parts[:-1] if name != "mezzo"]
        if folders[:2] == ["bench", "gpu_kernels"]:
            folders = folders[1:]
        if not folders:  # the umbrella header and the version, above all layers
            continue
        here, folder = folders[0], "/".join(folders)
        if here not in order:
            print(f"{relative}:1: mezzo/LAYERS does not list {here}")
            bad += 1
            continue
        for number, text in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', text)
            problem = fault(folder, include[1], order, only) if include else None
            if problem:
                print(f"{relative}:{number}: {problem}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
