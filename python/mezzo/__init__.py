"""Mezzo: graph neural networks in mixed precision.
Importing this package loads libmezzo.so, which registers the operators torch.ops.mezzo and the
class torch.classes.mezzo.Topology. A torch of another version than the library's is an ImportError.
`mezzo.pyg` and `mezzo.dgl` are imported by name, because they need those libraries."""
import importlib.metadata
import pathlib

import torch

__version__ = importlib.metadata.version("mezzo")
_expected = next(text.removeprefix("torch==") for text in importlib.metadata.requires("mezzo")
                 if "torch==" in text)
if torch.__version__.split("+")[0] != _expected:
    raise ImportError(f"mezzo {__version__}: expected torch {_expected}, got {torch.__version__}; "
                      f"run: pip install torch=={_expected}")
torch.ops.load_library(str(pathlib.Path(__file__).parent / "lib/libmezzo.so"))

from mezzo import nn, ops  # noqa: E402
from mezzo.graph import Graph  # noqa: E402
from mezzo.loader import ClusterLoader, NeighborLoader, SaintLoader  # noqa: E402

__all__ = ["ClusterLoader", "Graph", "NeighborLoader", "SaintLoader", "nn", "ops"]
