"""Graphs: a structure, and the tensors of its nodes and edges."""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, Union, cast

import torch
from torch import Tensor, nn
from torch._C import DispatchKey
from torch._library.fake_class_registry import FakeScriptObject, register_fake_class
from torch.utils.weak import WeakTensorKeyDictionary

from mezzo.errors import call, check, check_all, check_tensors

GraphLike = Union["Graph", torch.ScriptObject, Tensor]  # a tensor: of Graph.tensor()
_Function = TypeVar("_Function", bound=Callable[..., Any])
_traced = torch.ops.mezzo_traced


def once(function: _Function) -> _Function:
    """function(graph, ...), computed once for each graph and other arguments."""
    @functools.wraps(function)
    def computed(graph: Graph, *arguments: Any) -> Any:
        key = (function.__name__, *arguments)
        if key not in graph._facts:
            if torch.compiler.is_compiling():  # a compiled function computes it in each call
                return function(graph, *arguments)
            with torch.inference_mode(False):  # a later call may train
                graph._facts[key] = function(graph, *arguments)
        return graph._facts[key]

    return cast(_Function, computed)


class Graph:
    """An immutable structure and named tensors. Edge i runs from source src[i] to destination
    dst[i], of one set of N nodes, or, in a block of a mini-batch and in a bipartite graph, of two.
    Make a graph once and reuse it: it keeps what it builds.

    `srcdata`, `dstdata` and `edata` are dicts of tensors with one row per source, destination and
    edge; `topology` is the `torch.classes.mezzo.Topology` that `torch.ops.mezzo` takes."""

    def __init__(self, topology: torch.ScriptObject, *, is_block: bool | None = None) -> None:
        """The graph of a Topology; by default a block if it has other numbers of src and dst."""
        kinds = (torch.ScriptObject, FakeScriptObject)
        if not isinstance(topology, kinds) and not torch.compiler.is_compiling():
            raise TypeError(f"Graph: expected a Topology, got {type(topology).__name__}")
        self.topology = topology
        self._tensor = as_tensor(topology)
        self._num_src, self._num_dst, self._num_edges = self._tensor.shape[1:]
        self.is_block = self._num_src != self._num_dst if is_block is None else is_block
        self.srcdata: dict[str, Tensor] = {}
        self.dstdata: dict[str, Tensor] = {} if self.is_block else self.srcdata
        self.edata: dict[str, Tensor] = {}
        self._facts: dict[Any, Any] = {}
        self._batch: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tensor": None, "_facts": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._tensor = as_tensor(self.topology)  # a copy of the tensor does not own a structure

    @classmethod
    def _of(cls, kind: str, *arguments: Any, nodes: int, other: int | None) -> Graph:
        """other: the number of nodes of the other side; None: the same nodes."""
        topology = call(getattr(torch.classes.mezzo.Topology, kind), *arguments,
                        nodes if other is None else other)
        return cls(topology, is_block=other is not None)

    @classmethod
    def from_coo(cls, src: Tensor, dst: Tensor, num_nodes: int | None = None,
                 num_dst: int | None = None) -> Graph:
        """Edges as pairs. src, dst: integer [E], checked and copied. num_nodes: by default the
        largest id plus one; with num_dst the number of sources."""
        check_tensors("from_coo", src=src, dst=dst)
        if num_nodes is None:
            sides = (src, dst) if num_dst is None else (src,)
            num_nodes = max((int(ids.max()) + 1 for ids in sides if ids.numel() > 0), default=0)
        return cls._of("from_coo", src, dst, num_nodes, nodes=num_nodes, other=num_dst)

    @classmethod
    def from_csr(cls, indptr: Tensor, indices: Tensor, num_dst: int | None = None) -> Graph:
        """Rows by source. indptr: integer [N + 1]; indices: integer [E], the destinations of the
        edges, in their order. num_dst: by default the number of sources."""
        check_tensors("from_csr", indptr=indptr, indices=indices)
        return cls._of("from_csr", indptr, indices, nodes=indptr.numel() - 1, other=num_dst)

    @classmethod
    def from_csc(cls, indptr: Tensor, indices: Tensor, num_src: int | None = None) -> Graph:
        """from_csr by destination: `indices` are sources; num_src is by default that of rows."""
        check_tensors("from_csc", indptr=indptr, indices=indices)
        return cls._of("from_csc", indptr, indices, nodes=indptr.numel() - 1, other=num_src)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """The graph of a `torch_geometric.data.Data` or `Batch` with an edge_index [2, E]. Its
        tensors of nodes and edges go to ndata and edata under PyG's names, without a copy."""
        check(getattr(data, "edge_index", None) is not None,
              "from_pyg: expected data with an edge_index, got {}", type(data).__name__)
        graph = cls.from_coo(*data.edge_index, data.num_nodes)
        if getattr(data, "ptr", None) is not None:
            graph.set_batch_num_nodes(data.ptr.diff())
        tensors = {k: x for k, x in data.items() if k != "edge_index" and isinstance(x, Tensor)}
        graph.ndata.update({k: x for k, x in tensors.items() if data.is_node_attr(k)})
        graph.edata.update({k: x for k, x in tensors.items() if data.is_edge_attr(k)})
        return graph

    @classmethod
    def from_dgl(cls, g: Any) -> Graph:
        """The graph of a homogeneous `dgl.DGLGraph` or block, with its edge ids and tensors."""
        etypes = getattr(g, "canonical_etypes", ())
        check(len(etypes) == 1, "from_dgl: expected a graph of one type of edges, got {}",
              len(etypes) or type(g).__name__)
        two_sides = g.is_block or len(g.ntypes) > 1
        num_dst = g.num_dst_nodes() if two_sides else None
        graph = cls.from_coo(*g.edges(order="eid"), g.num_src_nodes(), num_dst)
        for side in ("srcdata", "dstdata", "edata"):
            getattr(graph, side).update(getattr(g, side))
        if not two_sides and g.batch_size > 1:
            graph.set_batch_num_nodes(g.batch_num_nodes())
        return graph

    @property
    def ndata(self) -> dict[str, Tensor]:
        """The tensors of the nodes, [N, ...]. A ValueError in a block, which has two sets."""
        check(not self.is_block, "ndata: expected a graph of one set of nodes, got a block")
        return self.srcdata

    @property
    def device(self) -> torch.device:
        """The device of the structure."""
        return self._tensor.device

    def num_nodes(self) -> int:
        """The number of nodes. A ValueError in a block."""
        check(not self.is_block, "num_nodes: expected a graph of one set of nodes, got a block")
        return self._num_src

    def num_src_nodes(self) -> int:
        """The number of sources."""
        return self._num_src

    def num_dst_nodes(self) -> int:
        """The number of destinations."""
        return self._num_dst

    def set_batch_num_nodes(self, sizes: Tensor) -> None:
        """Makes the graph a batch: integer [B], the numbers of nodes of its graphs, in order."""
        check_tensors("set_batch_num_nodes", sizes=sizes)
        check(sizes.dim() == 1 and not sizes.is_floating_point() and not bool((sizes < 0).any())
              and int(sizes.sum()) == self.num_nodes(), "set_batch_num_nodes: expected integer "
              "sizes [B] that sum to {}, got {}", self.num_nodes(), sizes)
        self._batch = sizes.to(self.device, torch.int64)
        self._facts.pop(("members",), None)

    def batch_num_nodes(self) -> Tensor:
        """The numbers of nodes of the graphs of a batch, int64 [B]; [1] for one graph."""
        return torch.tensor([self.num_nodes()]) if self._batch is None else self._batch

    @once
    def members(self) -> Graph:
        """An edge from each node to its graph of the batch."""
        ends = self.batch_num_nodes().cumsum(0).to(self.device)
        return Graph.from_csc(nn.functional.pad(ends, (1, 0)),
                              torch.arange(self._num_src, device=self.device), self._num_src)

    def num_edges(self) -> int:
        """The number of edges."""
        return self._num_edges

    def edges(self) -> tuple[Tensor, Tensor]:
        """(src, dst), int64 [E] each; copies."""
        return self.topology.edges()

    @once
    def in_degrees(self) -> Tensor:
        """Edges into each destination, int64 [num_dst_nodes]. Do not change it in place."""
        return _traced.in_degrees(self.tensor())

    @once
    def out_degrees(self) -> Tensor:
        """Edges out of each source, int64 [num_src_nodes]. Do not change it in place."""
        return _traced.out_degrees(self.tensor())

    def to(self, device: torch.device | str) -> Graph:
        """The graph and its tensors on `device`; this graph if it is there."""
        if torch.empty(0, device=device).device == self.device:
            return self
        other = Graph.from_coo(*(ids.to(device) for ids in self.edges()), self._num_src,
                               self._num_dst if self.is_block else None)
        for side in ("srcdata", "dstdata", "edata"):
            getattr(other, side).update({k: x.to(device) for k, x in getattr(self, side).items()})
        other._batch = None if self._batch is None else self._batch.to(device)
        return other

    def __repr__(self) -> str:
        dst = f"sources, {self._num_dst} destinations" if self.is_block else "nodes"
        return f"mezzo.Graph({self._num_src} {dst}, {self._num_edges} edges, {self.device})"

    def tensor(self) -> Tensor:
        """The structure as the operators of mezzo_traced take it: [0, num_src, num_dst, E]."""
        # An exported program keeps the Topology, which can be saved. In Dynamo is_exporting() is
        # always true.
        if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            return as_tensor(self.topology)
        return self._tensor

    @once
    def reversed_topology(self) -> Tensor:
        """The structure with each edge reversed and the same edge ids."""
        return _traced.reverse(self.tensor())

    @once
    def own_rows(self) -> Tensor:
        """The structure of one edge from each destination to itself."""
        lengths = torch.ones(self._num_dst, dtype=torch.int64, device=self.device)
        return _traced.segments("own_rows", lengths, self._num_dst)

    @once
    def check_in_degrees(self, text: str) -> None:
        """An error with this text if some destination has no in-edge; synchronises."""
        check_all(self.in_degrees() > 0, text)

    @once
    def degree_factors(self, side: str, power: float, dtype: torch.dtype) -> Tensor:
        """max(d, 1) ** power of the "in"-degrees of destinations or "out"-degrees of sources."""
        degrees = self.in_degrees() if side == "in" else self.out_degrees()
        return degrees.clamp(min=1).double().pow(power).to(dtype)


def as_graph(graph: Any) -> Graph:
    """The graph, that of a Topology, or that of a DGLGraph, which keeps it until it changes."""
    if isinstance(graph, (Graph, torch.ScriptObject, FakeScriptObject)):
        return graph if isinstance(graph, Graph) else Graph(graph)
    if not hasattr(graph, "canonical_etypes"):
        raise TypeError(f"expected a mezzo.Graph or a Topology, got {type(graph).__name__}")
    # DGL replaces _graph when it changes a structure, and its local copies share both attributes.
    structure, batch, own = getattr(graph, "_mezzo", (None, None, None))
    if own is None or structure is not graph._graph or batch is not graph._batch_num_nodes:
        own = Graph.from_dgl(graph)
        own.srcdata, own.dstdata, own.edata = {}, {}, {}
        graph._mezzo = (graph._graph, graph._batch_num_nodes, own)
    return own


def as_tensor(graph: GraphLike) -> Tensor:
    """The structure of a Graph or a Topology as the operators of mezzo_traced take it."""
    if isinstance(graph, Graph):
        return graph.tensor()
    return graph if isinstance(graph, Tensor) else call(_traced.topology, graph)


_kept = WeakTensorKeyDictionary()


def kept(tensor: Tensor, key: Any, make: Callable[[], Any]) -> Any:
    """make(), which must not refer to the tensor, once for this tensor object and key, until it is
    freed or changed in place; each time of an inference tensor, which counts no changes."""
    if tensor.is_inference():
        return make()
    version, values = _kept.get(tensor, (None, {}))
    if version != tensor._version:
        values = {}
        _kept[tensor] = (tensor._version, values)
    if key not in values:
        with torch.inference_mode(False):  # a later call may train
            values[key] = make()
    return values[key]


@register_fake_class("mezzo::Topology")
class FakeTopology:
    """Stands for a structure while torch.compile or torch.export traces a graph: its counts and its
    device. Torch traces methods that return one tensor."""

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
    sizes = (0, *fake.counts)
    return torch.empty_strided(sizes, (0,) * 4, dtype=torch.uint8, device=fake.device)


# A compiled graph passes tensors from the forward to the backward, but no objects. So an operator
# takes the object in the namespace mezzo, and in mezzo_traced a tensor [0, num_src, num_dst,
# num_edges] that owns it. A traced call in mezzo becomes one in mezzo_traced.
def _redirect(name: str) -> None:
    operator, traced = getattr(torch.ops.mezzo, name).default, getattr(_traced, name)

    def call_traced(topology: Any, *others: Any, **named: Any) -> Any:
        return traced(_traced.topology(topology), *others, **named)

    torch.library.register_fake(operator, call_traced)
    for key in ("AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA"):
        operator.py_impl(getattr(DispatchKey, key))(call_traced)


_names = set(torch._C._dispatch_get_all_op_names())
for _name in _names:
    if _name.startswith("mezzo::") and _name.replace("mezzo", "mezzo_traced", 1) in _names:
        _redirect(_name.removeprefix("mezzo::"))
