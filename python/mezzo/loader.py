"""Loaders: mini-batches that the library's threads draw and gather ahead.

    for batch in mezzo.NeighborLoader(data, [15, 10], batch_size=1024):  # a PyG Data
        out = model(batch.x, batch.edge_index)[:batch.batch_size]
    for input_nodes, output_nodes, blocks in mezzo.NeighborLoader(graph, [15, 10], batch_size=1024):
        out = model(blocks, blocks[0].srcdata["feat"])                   # a mezzo.Graph

Each loop is the next epoch. A batch has the rows of all tensors of nodes and edges, in any dtype;
do not write to these tensors during a loop. It depends only on its place and on `seed`, by default
drawn from torch's generator."""
import copy
import re
from typing import Any, Iterator

import torch
from torch import Tensor

from mezzo.errors import call, check
from mezzo.graph import Graph, kept

_Rows = dict[str, Tensor]


class _Loader:
    """What the loaders share. data: a PyG Data or a mezzo.Graph, on the CPU. num_workers: threads
    that prepare batches, each prefetch_factor of them ahead; 0: the caller, by torch's threads."""

    def __init__(self, loader: str, data: Any, /, **options: Any) -> None:
        """options: the other arguments of the library's loader, in their order."""
        self.data = data
        self._graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
        if options["seed"] is None:
            options["seed"] = int(torch.empty((), dtype=torch.int64).random_())
        arguments = {"topology": self._graph.topology, "ndata": self._graph.ndata,
                     "edata": self._graph.edata, **options}
        try:
            self._loader = call(getattr(torch.classes.mezzo.Loader, loader), *arguments.values())
        except TypeError as error:  # which has the numbers of the arguments
            text = re.sub(r"'_(\d+)'", lambda n: repr([*arguments][int(n[1])]), str(error))
            raise TypeError(text.split("\n")[0]) from None

    def __len__(self) -> int:
        return self._loader.num_batches()

    def __iter__(self) -> Iterator[Any]:
        batches = self._loader.begin()
        while (parts := call(batches.next)) is not None:
            yield self._batch(*parts)

    def _batch(self, structures: list[Any], nodes: _Rows, edges: list[_Rows], more: _Rows) -> Any:
        graph = Graph(structures[0], is_block=False)
        if self._graph is self.data:
            graph.ndata.update(nodes)
            graph.edata.update(edges[0])
            return graph
        batch, count, edge_index = copy.copy(self.data), graph.num_nodes(), more["edge_index"]
        kept(edge_index, (count, count, 0), lambda: graph)  # of accelerated convolutions
        batch.edge_index, batch.n_id, batch.e_id = edge_index, nodes.pop("_ID"), edges[0].pop("_ID")
        if "num_nodes" in batch:
            batch.num_nodes = count
        batch.update(nodes | edges[0])
        return batch


class NeighborLoader(_Loader):
    """Batches of some nodes and their sampled in-neighbours. num_neighbors: in-edges drawn for a
    node in each hop from the seeds, -1: all. input_nodes: the seeds, distinct ids or a mask, by
    default all; of several processes each passes its share. replace: draws with replacement.
    weight_attr: the name of edge weights to draw in proportion to. labor: nodes share the
    neighbours that they draw, with the edges' 1 / probability as `edge_weights`.

    Of Data a batch is Data as PyG's, seeds first, with n_id, e_id, batch_size, input_id,
    num_sampled_nodes and num_sampled_edges. Of a Graph it is (input_nodes, output_nodes, blocks),
    input layer first: blocks[0].srcdata has the rows of the input nodes, blocks[-1].dstdata those
    of the seeds, and "_ID" the ids, as in DGL."""

    def __init__(self, data: Any, num_neighbors: list[int], input_nodes: Tensor | None = None, *,
                 batch_size: int = 1, shuffle: bool = False, drop_last: bool = False,
                 replace: bool = False, weight_attr: str | None = None, labor: bool = False,
                 num_workers: int = 1, prefetch_factor: int = 2, seed: int | None = None) -> None:
        edges = data.edata if isinstance(data, Graph) else data
        check(weight_attr is None or weight_attr in edges,
              "NeighborLoader: expected weight_attr to name edge weights, got {}", weight_attr)
        super().__init__("neighbors", data, input_nodes=input_nodes, num_neighbors=num_neighbors,
                         as_blocks=isinstance(data, Graph), labor=labor, replace=replace,
                         weights=weight_attr and edges[weight_attr], batch_size=batch_size,
                         shuffle=shuffle, drop_last=drop_last, num_workers=num_workers,
                         prefetch_factor=prefetch_factor, seed=seed)

    def _batch(self, structures: list[Any], nodes: _Rows, edges: list[_Rows], more: _Rows) -> Any:
        if self._graph is not self.data:
            batch = super()._batch(structures, nodes, edges, more)
            batch.input_id, batch.batch_size = more["input_id"], more["input_id"].numel()
            batch.num_sampled_nodes = more["num_sampled_nodes"].tolist()
            batch.num_sampled_edges = more["num_sampled_edges"].tolist()
            return batch
        blocks = [Graph(topology, is_block=True) for topology in structures]
        for block, rows in zip(blocks, edges):
            block.edata.update(rows)
        blocks[0].srcdata.update(nodes)
        count = blocks[-1].num_dst_nodes()
        blocks[-1].dstdata.update({name: rows[:count] for name, rows in nodes.items()})
        return nodes["_ID"], nodes["_ID"][:count], blocks


class ClusterLoader(_Loader):
    """Batches of `batch_size` random parts of a METIS partition into `num_parts`, with all edges
    among their nodes (Cluster-GCN): Data with n_id and e_id, or a Graph with "_ID" in its data."""

    def __init__(self, data: Any, num_parts: int, *, batch_size: int = 1, shuffle: bool = False,
                 drop_last: bool = False, num_workers: int = 1, prefetch_factor: int = 2,
                 seed: int | None = None) -> None:
        super().__init__("clusters", data, num_parts=num_parts, batch_size=batch_size,
                         shuffle=shuffle, drop_last=drop_last, num_workers=num_workers,
                         prefetch_factor=prefetch_factor, seed=seed)


class SaintLoader(_Loader):
    """`num_steps` batches, as ClusterLoader's, of all edges among drawn nodes (GraphSAINT):
    `batch_size` nodes, edges or walks of `walk_length` steps by `kind`. sample_coverage: how often
    nodes are drawn beforehand for node_norm, of losses, and edge_norm, of means of messages."""

    def __init__(self, data: Any, batch_size: int, *, kind: str = "walk", walk_length: int = 2,
                 num_steps: int = 1, sample_coverage: int = 0, num_workers: int = 1,
                 prefetch_factor: int = 2, seed: int | None = None) -> None:
        super().__init__("saint", data, kind=kind, batch_size=batch_size, walk_length=walk_length,
                         num_steps=num_steps, sample_coverage=sample_coverage,
                         num_workers=num_workers, prefetch_factor=prefetch_factor, seed=seed)
