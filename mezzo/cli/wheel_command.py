#!/usr/bin/env python3
"""The command `mezzo` of the wheel: runs the program in the package with this Python's libtorch.

It imports neither torch nor mezzo, which would take seconds.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import signal
import sys


def installed_torch():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def package_folder(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def main():
    requirements = importlib.metadata.requires("mezzo")
    expected = next(text.removeprefix("torch==") for text in requirements if "torch==" in text)
    torch = installed_torch()
    if torch.split("+")[0] != expected:
        print(f"mezzo: expected torch {expected}, got {torch}; run: pip install torch=={expected}",
              file=sys.stderr)
        return 2
    # torch may be in another site-packages than mezzo, which the program does not search.
    folders = [str(package_folder("torch") / "lib"), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; exec would keep that
        signal.signal(ignored, signal.SIG_DFL)
    program = package_folder("mezzo") / "bin/mezzo"
    return os.execv(program, [str(program), *sys.argv[1:]])


sys.exit(main())
