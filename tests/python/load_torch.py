"""Brings torch into the process, also from a wheel without its CUDA libraries.

Such a wheel names them all the same, and the loader asks for every one. On a CPU none of their
functions is ever called, so empty libraries of these names stand in, and symbols are bound when
they are called, not before. Where torch cannot be had the process ends with 77, which ctest reports
as skipped.
"""
import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

SKIPPED = 77


def missing_libraries(library):
    """The names of the shared libraries that this one needs and the loader does not find."""
    listing = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    return sorted({line.split()[0] for line in listing.splitlines() if "not found" in line})


def load_stand_ins(names):
    """Loads an empty library under each of the names; needs a C compiler."""
    sys.setdlopenflags(os.RTLD_LAZY)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = os.path.join(folder, name)
            subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", os.devnull,
                            f"-Wl,-soname,{name}", "-o", path], check=True)
            ctypes.CDLL(path)


def load_torch(version):
    """The module torch, if it is of this version."""
    try:
        found = importlib.util.find_spec("torch")
        if found is None:
            raise ImportError("there is no torch")
        library = pathlib.Path(found.origin).parent / "lib" / "libtorch_python.so"
        load_stand_ins(missing_libraries(library))
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch
        if torch.__version__.split("+")[0] != version:
            raise ImportError(f"torch is {torch.__version__}, the library was built with {version}")
    except (ImportError, OSError, subprocess.SubprocessError) as reason:
        print(f"SKIPPED: {sys.executable} cannot import torch {version}: {reason}")
        sys.exit(SKIPPED)
    return torch


def load_package(library, version, folder):
    """torch, with this libmezzo.so, and `mezzo` as the package of the sources in `folder`, whose
    __init__ would load the installed library."""
    torch = load_torch(version)
    torch.ops.load_library(library)
    sys.modules["mezzo"] = types.ModuleType("mezzo")
    sys.modules["mezzo"].__path__ = [folder]
    return torch
