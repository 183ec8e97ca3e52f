"""A class that stands for a structure while torch.compile or torch.export traces a graph.

A compiled graph passes tensors from the forward to the backward, but no objects. So each operator
with a structure is registered twice: in the namespace mezzo it receives the object, in mezzo_traced
a tensor [0, num_src, num_dst, num_edges] that owns it. A traced call in mezzo becomes one in
mezzo_traced, whose gradients torch traces in the library.
"""
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._library.fake_class_registry import FakeScriptObject, register_fake_class

_traced = torch.ops.mezzo_traced


@register_fake_class("mezzo::Topology")
class FakeTopology:
    """The counts of a structure, and its device. Torch traces methods that return one tensor."""

    def __init__(self, num_src: int, num_dst: int, num_edges: int, device: str) -> None:
        self.counts_and_device = f"{num_src} {num_dst} {num_edges} {device}"
        self.counts, self.device = (num_src, num_dst, num_edges), torch.device(device)

    @classmethod
    def __obj_unflatten__(cls, state: Any) -> "FakeTopology":
        *counts, device = dict(state)["counts_and_device"].split()
        return cls(*map(int, counts), device)

    def num_src(self) -> int:
        return self.counts[0]

    def num_dst(self) -> int:
        return self.counts[1]

    def num_edges(self) -> int:
        return self.counts[2]

    def in_degrees(self) -> Tensor:
        return torch.empty(self.counts[1], dtype=torch.int64, device=self.device)

    def out_degrees(self) -> Tensor:
        return torch.empty(self.counts[0], dtype=torch.int64, device=self.device)

    def edges(self) -> None:
        raise NotImplementedError("Topology: call edges() and reverse() outside of the function")

    reverse = edges


@torch.library.register_fake("mezzo_traced::topology")
def _tensor_of(topology: Any) -> Tensor:
    """topology: the library's object, or torch's wrapper of its fake."""
    fake = (topology.wrapped_obj if isinstance(topology, FakeScriptObject)
            else FakeTopology.__obj_unflatten__(topology.__obj_flatten__()))
    sizes, strides = (0, *fake.counts), (0, 0, 0, 0)
    return torch.empty_strided(sizes, strides, dtype=torch.uint8, device=fake.device)


def _redirect(name: str) -> None:
    """Makes calls with a fake structure call mezzo_traced."""
    operator, traced = getattr(torch.ops.mezzo, name).default, getattr(_traced, name)

    def call(topology: Any, *others: Any, **named: Any) -> Any:
        return traced(_traced.topology(topology), *others, **named)

    torch.library.register_fake(operator, call)
    for key in ("AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA"):
        operator.py_impl(getattr(DispatchKey, key))(call)


_names = set(torch._C._dispatch_get_all_op_names())
for _name in _names:
    if _name.startswith("mezzo::") and _name.replace("mezzo", "mezzo_traced", 1) in _names:
        _redirect(_name.removeprefix("mezzo::"))
