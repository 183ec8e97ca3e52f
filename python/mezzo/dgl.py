"""`mezzo.dgl.accelerate(model)` runs the convolutions of a DGL model by Mezzo's operators.
The numbers are DGL's within rounding; dropout draws other elements."""
from typing import Any

import dgl.nn.pytorch as dgl_nn
from torch import nn

import mezzo.nn
from mezzo.nn.support import Report, logger, swap

_NAMES = ("APPNPConv", "ChebConv", "DotGatConv", "EdgeConv", "GATConv", "GATv2Conv", "GCN2Conv",
          "GINConv", "GatedGraphConv", "GraphConv", "SAGEConv", "SGConv", "TAGConv")


def accelerate(model: nn.Module, verbose: bool = True) -> Report:
    """As mezzo.pyg.accelerate, for the convolutions of DGL that `mezzo.nn` has. The structure made
    of a DGLGraph is kept with it. A call without counterpart (a graph of several types, features of
    more dimensions) runs DGL's own code."""
    def is_convolution(module: nn.Module) -> bool:
        return any(base.__module__.startswith("dgl.nn.pytorch.conv") for base in type(module).mro())

    return swap(model, is_convolution, _REPLACEMENTS, lambda module: None, verbose)


def _replacement(name: str) -> type:
    """A class with DGL's state and Mezzo's forward."""
    own, original = getattr(mezzo.nn, name), getattr(dgl_nn, name)

    def forward(self: nn.Module, graph: Any, feat: Any, *args: Any, **kwargs: Any) -> Any:
        rows = feat if isinstance(feat, tuple) else (feat,)
        one_type = len(getattr(graph, "canonical_etypes", ("",))) == 1
        of_batch = name == "ChebConv" and getattr(graph, "batch_size", 1) > 1
        if one_type and not of_batch and all(x.dim() == 2 for x in rows):
            return own.forward(self, graph, feat, *args, **kwargs)
        logger.info("%s: a call without counterpart runs DGL's code", name)
        return original.forward(self, graph, feat, *args, **kwargs)

    return type(name, (own, original), {"forward": forward, "__module__": __name__,
                                        "__doc__": f"DGL's {name} on Mezzo's operators."})


globals().update({name: _replacement(name) for name in _NAMES})
_REPLACEMENTS = {getattr(dgl_nn, name): globals()[name] for name in _NAMES}
