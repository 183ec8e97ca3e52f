"""Builds and packs what tools/gpu_run needs on a machine without network: a part of this checkout
with its programs in build/release, as one archive."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from call import ROOT

MOST_BYTES = 25_000_000
LAYERS = ["graph", "ops", "message_passing", "sampling", "nn", "amp", "dist", "train"]
EXAMPLES = ["01_message_passing", "02_gat_mixed_precision", "03_full_graph", "04_node_flow",
            "05_multi_process", "06_sage_node_flow", "07_cnn_mixed_precision", "08_loss_scaling",
            "09_precisions", "10_blocks", "mixed_precision", "in_practice", "custom_op",
            "bf16_parameters"]
# In the build folder, and the target that builds each.
PROGRAMS = {"bin/mezzo": "mezzo_cli", "bin/message_passing_fuzz": "message_passing_fuzz",
            "bench/cuda": "bench_cuda", "lib/libmezzo_cuda.so": "mezzo_cuda",
            "lib/libfake_cuda_library.so": "fake_cuda_library",  # tests load it
            **{f"bin/{layer}_tests": f"{layer}_tests" for layer in LAYERS},
            **{f"examples/{name}": f"example_{name}" for name in EXAMPLES}}
FILES = ["mezzo/core/*.h", "mezzo/kernels/*.h", "mezzo/kernels/cuda", "bench/gpu_kernels",
         "bench/peers", "tests/data/cora", "tools/gpu", "tools/gpu_run", "tools/scaling"]
# Libraries on every machine, and those of libtorch and CUDA, which come with torch.
ELSEWHERE = tuple("ld-linux libc.so libm.so libdl.so librt.so libpthread.so libgcc_s.so "
                  "libstdc++.so libgomp.so libtorch libc10 libcu libnv libnccl".split())


def run(*command):
    print("+", *command, flush=True)
    if subprocess.run([str(word) for word in command], cwd=ROOT).returncode != 0:
        sys.exit(f"gpu_run: failed: {' '.join(map(str, command))}")


def jobs():
    """One a core, but no more than there are 2 GB of free memory for."""
    text = pathlib.Path("/proc/meminfo").read_text()
    free_kib = int(re.search(r"MemAvailable:\s+(\d+)", text)[1])
    return max(1, min(os.cpu_count(), free_kib // 2_000_000))


def built():
    """Builds what is packed by the preset `cuda`. Returns the build folder."""
    if shutil.which("nvcc") is None and not pathlib.Path("/usr/local/cuda/bin/nvcc").exists():
        sys.exit("gpu_run: there is no nvcc; NVIDIA's CUDA toolkit 13 has it")
    run("tools/bootstrap")
    run("cmake", "--preset", "cuda")
    run("cmake", "--build", "--preset", "cuda", "-j", jobs(), "--target", *PROGRAMS.values())
    return ROOT / "build/cuda"


def output_of(*command):
    path = os.environ["PATH"] + ":/sbin:/usr/sbin"
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**os.environ, "PATH": path}).stdout


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def add_libraries(build, out):
    """Copies what the packed files need and every other machine lacks: Mezzo's library, and those
    of Debian."""
    text = output_of("ldconfig", "-p")
    known = {name: pathlib.Path(path) for name, path in
             re.findall(r"^\s+(\S+) \([^)]*x86-64[^)]*\) => (\S+)$", text, re.M)}
    known.update((path.name, path) for path in (build / "lib").glob("*.so*"))
    waiting = [path for path in out.rglob("*") if path.is_file()]
    while waiting:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", waiting.pop())):
            target = out / "lib" / name
            if name.startswith(ELSEWHERE) or target.exists():
                continue
            if name not in known:
                sys.exit(f"gpu_run: a program needs {name}, which this machine does not have")
            copy_stripped(known[name].resolve(), target)
            waiting.append(target)


def add_programs(build, out):
    missing = [name for name in PROGRAMS if not (build / name).exists()]
    if missing:
        sys.exit(f"gpu_run: not in {build}: {', '.join(missing)}")
    for name in PROGRAMS:
        copy_stripped((build / name).resolve(), out / name)
    add_libraries(build, out)


def add_files(out):
    ignored = shutil.ignore_patterns("__pycache__")
    for pattern in FILES:
        for path in ROOT.glob(pattern):
            target = out / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, ignore=ignored)
            else:
                shutil.copy(path, target)


def pack(archive, build):
    build = build.resolve() if build else built()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "mezzo"
        add_programs(build, out / "build/release")
        add_files(out)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as file:
            file.add(out, arcname=out.name)
    size = archive.stat().st_size
    print(f"{archive}: {size / 1e6:.1f} MB; there: tar xf {archive.name} && mezzo/tools/gpu_run 1")
    if size > MOST_BYTES:
        sys.exit(f"gpu_run: more than {MOST_BYTES / 1e6:.0f} MB")
