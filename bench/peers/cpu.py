#!/usr/bin/env python3
"""The works of bench/{spmm,sddmm,softmax,dropout,attention,epoch} by PyG or DGL on the CPU.

usage: cpu.py --library pyg|dgl [--dataset FOLDER] [--scale N] [--edges N] [--work TEXT]
              [--rounds N] [--threads N] [--json FILE]
       cpu.py --make FOLDER [--scale N] [--edges N]

An R-MAT graph of the same parameters as theirs, but of other draws; with --dataset only the epochs,
on an npy folder (--make writes one of the R-MAT graph, which needs no library), sparse features
made dense. The candidates are the forms that a library documents: of PyG its default (edge_index,
gathered and scattered) and EdgeIndex, in models a CSR matrix, with transposes made beforehand; of DGL
a graph of int32 ids with its formats made. bf16 is autocast in layers and models, whose features are
cast beforehand as far as the library takes them, and operands of bf16 in kernels. tools/peers runs
this beside Mezzo's programs.
"""
import argparse
import json
import pathlib
import statistics
import time
import warnings

import numpy
import torch

FEATURES, CLASSES, HIDDEN, HEADS, DROPOUT = 602, 41, 256, 4, 0.5
WIDTHS = [64, 256]
AMP = {"fp32": None, "bf16": torch.bfloat16}


def one_loop_each(src, dst, num_nodes):
    """The edges with one self loop a node, as Mezzo's trainer has them for GCN and GAT."""
    no_loops, nodes = src != dst, torch.arange(num_nodes)
    return torch.cat([src[no_loops], nodes]), torch.cat([dst[no_loops], nodes])


def rmat(scale, num_edges):
    """Sources and destinations, int64, of mezzo::rmat_graph's distribution."""
    a, b, c = 0.57, 0.19, 0.19
    generator = numpy.random.default_rng(0)
    src = numpy.zeros(num_edges, dtype=numpy.int64)
    dst = numpy.zeros_like(src)
    for _ in range(scale):
        draw = generator.random(num_edges)
        src = 2 * src + (draw >= a + b)
        dst = 2 * dst + (((draw >= a) & (draw < a + b)) | (draw >= a + b + c))
    return src, dst


def make(folder, scale, num_edges):
    nodes = 1 << scale
    generator = numpy.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    numpy.save(folder / "edge_index.npy", numpy.stack(rmat(scale, num_edges)).astype(numpy.int32))
    features = generator.standard_normal((nodes, FEATURES), dtype=numpy.float32)
    numpy.save(folder / "features.npy", features)
    numpy.save(folder / "labels.npy", generator.integers(CLASSES, size=nodes))
    for name, first, end in (("train", 0, nodes - 2), ("val", nodes - 2, nodes - 1),
                             ("test", nodes - 1, nodes)):
        mask = numpy.zeros(nodes, dtype=bool)
        mask[first:end] = True
        numpy.save(folder / f"{name}_mask.npy", mask)


def read_features(folder):
    if (folder / "features.npy").exists():
        return torch.from_numpy(numpy.load(folder / "features.npy")).float()
    held = numpy.load(folder / "features.npz")  # CSR: indptr, indices, shape, data where not all 1
    shape = tuple(int(n) for n in held["shape"])
    values = held["data"] if "data" in held else numpy.ones(len(held["indices"]))
    matrix = torch.sparse_csr_tensor(torch.from_numpy(held["indptr"]).long(),
                                     torch.from_numpy(held["indices"]).long(),
                                     torch.from_numpy(values).float(), size=shape)
    return matrix.to_dense()


class Data:
    """What an epoch trains on."""

    def __init__(self, folder):
        self.name = folder.name
        self.src, self.dst = (torch.from_numpy(ends.astype(numpy.int64))
                              for ends in numpy.load(folder / "edge_index.npy"))
        self.x = read_features(folder)
        self.labels = torch.from_numpy(numpy.load(folder / "labels.npy")).long()
        mask = numpy.load(folder / "train_mask.npy")  # the first of several splits
        mask = mask if mask.ndim == 1 else mask[:, 0]
        self.rows = torch.from_numpy(mask.astype(bool)).nonzero().squeeze(1)
        self.num_nodes, self.num_features = self.x.shape
        self.num_classes = int(self.labels.max()) + 1

    def edges(self, kind):
        ends = self.src, self.dst
        return ends if kind == "sage" else one_loop_each(*ends, self.num_nodes)


class PyG:
    name = "PyG"

    def __init__(self):
        import torch_geometric
        from torch_geometric import nn, utils
        self.version, self.nn, self.utils = torch_geometric.__version__, nn, utils
        self.edge_index_class = torch_geometric.EdgeIndex

    def graphs(self, src, dst, num_nodes):
        """By form: edge_index; an EdgeIndex with its transpose."""
        edges = torch.stack([src, dst])
        indexed = self.edge_index_class(edges, sparse_size=(num_nodes, num_nodes))
        indexed = indexed.sort_by("col").values
        indexed.fill_cache_()
        return {"edge_index": edges, "EdgeIndex": indexed}

    @staticmethod
    def matrix(src, dst, num_nodes):
        """CSR, rows by destination."""
        order = torch.argsort(dst * num_nodes + src)
        counts = torch.bincount(dst, minlength=num_nodes)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return torch.sparse_csr_tensor(indptr, src[order], torch.ones(len(src)),
                                       size=(num_nodes, num_nodes))

    def sums(self, graphs, weighted):
        """{form: function of x, [E] weights}, the sum over in-neighbours."""
        class Gathered(self.nn.MessagePassing):
            def forward(self, x, edges, weight):
                return self.propagate(edges, x=x, weight=weight)

            def message(self, x_j, weight):
                return x_j if weight is None else weight.unsqueeze(-1) * x_j

        gathered = Gathered(aggr="sum")
        edges, indexed = graphs["edge_index"], graphs["EdgeIndex"]
        if weighted:
            return {"edge_index": lambda x, w: gathered(x, edges, w),
                    "EdgeIndex": lambda x, w: indexed.matmul(x, input_value=w, transpose=True)}
        return {"edge_index": lambda x, _: gathered(x, edges, None),
                "EdgeIndex": lambda x, _: indexed.matmul(x, transpose=True)}

    def dots(self, graphs):
        src, dst = graphs["edge_index"]
        return {"gather": lambda x, y: (x.index_select(0, src) * y.index_select(0, dst)).sum(-1)}

    def softmaxes(self, graphs, num_nodes):
        dst = graphs["edge_index"][1]
        return {"softmax": lambda x: self.utils.softmax(x, dst, num_nodes=num_nodes)}

    def attention(self, graphs, width):
        layer = self.nn.GATConv(width, width // HEADS, heads=HEADS, add_self_loops=False, bias=False)
        edges = graphs["edge_index"]
        return {"GATConv": (layer, lambda x: layer(x, edges).view(len(x), HEADS, -1))}

    def interaction(self, edges, width):
        """MeshGraphNet's block as a MetaLayer of [nodes, width] and [edges, width]."""
        sum_of, layers = self.utils.scatter, torch.nn

        def mlp(parts):
            return layers.Sequential(layers.Linear(parts * width, width), layers.ReLU(),
                                     layers.Linear(width, width), layers.LayerNorm(width))

        class Edges(layers.Module):
            def __init__(self):
                super().__init__()
                self.mlp = mlp(3)

            def forward(self, src, dst, e, *_):
                return e + self.mlp(torch.cat([src, dst, e], 1))

        class Nodes(layers.Module):
            def __init__(self):
                super().__init__()
                self.mlp = mlp(2)

            def forward(self, x, ends, e, *_):
                received = sum_of(e, ends[1], 0, len(x), "sum")
                return x + self.mlp(torch.cat([x, received], 1))

        layer = self.nn.MetaLayer(Edges(), Nodes())
        return layer, lambda x, e: layer(x, edges, e)[:2]

    def models(self, kind, data):
        src, dst = data.edges(kind)
        graphs = {"edge_index": torch.stack([src, dst]),
                  "CSR": self.matrix(src, dst, data.num_nodes)}
        nn = self.nn

        def layers():
            sizes = [(data.num_features, HIDDEN), (HIDDEN, data.num_classes)]
            if kind == "gcn":  # the norm of the edges is computed once
                return [nn.GCNConv(*size, cached=True, add_self_loops=False) for size in sizes]
            if kind == "sage":
                return [nn.SAGEConv(*size) for size in sizes]
            return [nn.GATConv(sizes[0][0], HIDDEN // HEADS, heads=HEADS, add_self_loops=False),
                    nn.GATConv(HIDDEN, data.num_classes, add_self_loops=False)]

        forms = ["edge_index"] if kind == "gat" else ["edge_index", "CSR"]
        return {form: Net(layers(), kind, lambda layer, x, g=graphs[form]: layer(x, g))
                for form in forms}


class DGL:
    name = "DGL"

    def __init__(self):
        import dgl
        import dgl.nn.pytorch
        self.dgl, self.nn, self.version = dgl, dgl.nn.pytorch, dgl.__version__

    def graphs(self, src, dst, num_nodes):
        graph = self.dgl.graph((src, dst), num_nodes=num_nodes).int()
        graph.create_formats_()
        return graph

    def sums(self, graph, weighted):
        ops = self.dgl.ops
        if weighted:
            return {"u_mul_e_sum": lambda x, w: ops.u_mul_e_sum(graph, x, w.unsqueeze(-1))}
        return {"copy_u_sum": lambda x, _: ops.copy_u_sum(graph, x)}

    def dots(self, graph):
        return {"u_dot_v": lambda x, y: self.dgl.ops.u_dot_v(graph, x, y).squeeze(-1)}

    def softmaxes(self, graph, _):
        return {"edge_softmax": lambda x: self.dgl.ops.edge_softmax(graph, x)}

    def attention(self, graph, width):
        layer = self.nn.GATConv(width, width // HEADS, HEADS, bias=False,
                                allow_zero_in_degree=True)
        return {"GATConv": (layer, lambda x: layer(graph, x))}

    def models(self, kind, data):
        graph = self.graphs(*data.edges(kind), data.num_nodes)
        nn, allow = self.nn, {"allow_zero_in_degree": True}
        sizes = [(data.num_features, HIDDEN), (HIDDEN, data.num_classes)]
        if kind == "gcn":
            layers = [nn.GraphConv(*size, **allow) for size in sizes]
        elif kind == "sage":
            layers = [nn.SAGEConv(*size, "mean") for size in sizes]
        else:
            layers = [nn.GATConv(sizes[0][0], HIDDEN // HEADS, HEADS, **allow),
                      nn.GATConv(HIDDEN, data.num_classes, 1, **allow)]
        return {"graph": Net(layers, kind, lambda layer, x: layer(graph, x))}


class Net(torch.nn.Module):
    """The model of bench/epoch: dropout before both layers, ELU between those of gat, else ReLU."""

    def __init__(self, layers, kind, apply):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.activation = torch.nn.functional.elu if kind == "gat" else torch.relu
        self.apply_layer = apply

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.nn.functional.dropout(x, DROPOUT, self.training)
            x = self.apply_layer(layer, x).flatten(1)
            if i + 1 < len(self.layers):
                x = self.activation(x)
        return x


def peak_of(run):
    """The most that the process held beyond what it held before, in bytes."""
    def read(key):
        for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
        return 0
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = read("VmRSS")
    run()
    return read("VmHWM") - before


class Report:
    def __init__(self, options, library):
        self.options, self.library, self.results = options, library, []

    def measure(self, work, width, candidates, with_memory=False):
        """candidates: (form, precision, function); all in turn."""
        if self.options.work not in work:
            return
        rows = []
        for form, precision, run in candidates:
            row = {"name": f"{self.library.name} {form}, {precision}", "ours": False,
                   "precision": precision, "rounds_ms": [], "peak_bytes": 0, "skipped": None}
            try:
                run()
                if with_memory:
                    row["peak_bytes"] = peak_of(run)
            except Exception as error:  # what a peer cannot do is noted, whatever it raises
                row["skipped"] = str(error).split("\n")[0] or type(error).__name__
            rows.append((row, run))
        for _ in range(self.options.rounds):
            for row, run in rows:
                if row["skipped"] is None:
                    start = time.perf_counter()
                    run()
                    row["rounds_ms"].append((time.perf_counter() - start) * 1e3)
        for row, _ in rows:
            times = row["rounds_ms"]
            row["min_ms"] = min(times, default=None)
            row["median_ms"] = statistics.median(times) if times else None
            print(f"{work}, F={width}: {row['name']}: " + (
                f"{row['min_ms']:.1f} ms (median {row['median_ms']:.1f})" if times
                else f"skipped: {row['skipped']}") + (
                f", peak {row['peak_bytes'] / 2**20:.0f} MiB" if row["peak_bytes"] else ""),
                flush=True)
        self.results.append({"work": work, "width": width, "skipped": None,
                             "candidates": [row for row, _ in rows]})
        if self.options.json:
            self.options.json.write_text(json.dumps(
                {"library": f"{self.library.name} {self.library.version}",
                 "torch": torch.__version__, "threads": self.options.threads,
                 "rounds": self.options.rounds, "results": self.results}, indent=2) + "\n",
                encoding="utf-8")


def precisions_of(form):
    """Gathering and scattering in bf16 takes longer than in fp32, and minutes."""
    return {"fp32": None} if form in ("edge_index", "gather") else AMP


def passes(work, width, forms, operands, gradient, report):
    """Forward alone, and with the gradients of all operands."""
    def forward(function, tensors, _):
        def run():
            with torch.no_grad():
                function(*tensors)
        return run

    def backward(function, tensors, gradient):
        leaves = [one.requires_grad_() for one in tensors]

        def run():
            for one in leaves:
                one.grad = None
            function(*leaves).backward(gradient)
        return run

    for suffix, of in (("forward", forward), ("forward+backward", backward)):
        candidates = []
        for form, function in forms.items():
            for precision, dtype in precisions_of(form).items():
                args = [one.to(dtype or one.dtype).clone() for one in operands]
                candidates.append((form, precision, of(function, args, gradient.to(args[0].dtype))))
        report.measure(f"{work}, {suffix}", width, candidates)


def kernels(options, report):
    library, nodes = report.library, 1 << options.scale
    src, dst = (torch.from_numpy(ends) for ends in rmat(options.scale, options.edges))
    graphs = library.graphs(src, dst, nodes)
    for width in WIDTHS:
        x, y, w = torch.randn(nodes, width), torch.randn(nodes, width), torch.rand(len(src))
        g = torch.randn(nodes, width)
        passes("copy_u sum", width,
               {form: lambda x, sum_of=sum_of: sum_of(x, None)
                for form, sum_of in library.sums(graphs, weighted=False).items()}, [x], g, report)
        passes("u_mul_e sum", width, library.sums(graphs, weighted=True), [x, w], g, report)
        passes("u_dot_v", width, library.dots(graphs), [x, y], torch.randn(len(src)), report)
    passes("edge softmax", HEADS, library.softmaxes(graphs, nodes),
           [torch.randn(len(src), HEADS)], torch.randn(len(src), HEADS), report)
    for width in (HIDDEN, FEATURES):  # libtorch's own, of the version that the library has
        passes(f"dropout, {nodes} rows", width,
               {"dropout": lambda x: torch.nn.functional.dropout(x, DROPOUT)},
               [torch.randn(nodes, width)], torch.randn(nodes, width), report)
    if hasattr(library, "interaction"):
        interaction(library, torch.stack([src, dst]), nodes, report)
    loops = torch.arange(nodes)
    graphs = library.graphs(torch.cat([src, loops]), torch.cat([dst, loops]), nodes)
    attention(library, graphs, nodes, report)


def attention(library, graphs, nodes, report):
    wide, gradient = torch.randn(nodes, HIDDEN), torch.randn(nodes, HEADS, HIDDEN // HEADS)
    for suffix in ("forward", "forward+backward"):
        candidates = []
        for form, (layer, function) in library.attention(graphs, HIDDEN).items():
            for precision, dtype in AMP.items():
                x = wide.to(dtype or wide.dtype).clone().requires_grad_()
                upstream = gradient.to(x.dtype)

                def run(function=function, layer=layer, dtype=dtype, x=x, upstream=upstream):
                    with torch.set_grad_enabled(suffix != "forward"), torch.autocast(
                            "cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                        out = function(x)
                    if suffix != "forward":
                        out.backward(upstream)
                    layer.zero_grad()
                    x.grad = None
                candidates.append((form, precision, run))
        report.measure(f"GAT layer, {HEADS} x {HIDDEN // HEADS}, {suffix}", HIDDEN, candidates,
                       with_memory=True)


def interaction(library, ends, nodes, report):
    for width in (64, 128):
        layer, function = library.interaction(ends, width)
        rows = [torch.randn(nodes, width), torch.randn(ends.shape[1], width)]
        gradients = [torch.randn_like(one) for one in rows]
        candidates = []
        for precision, dtype in AMP.items():
            def run(dtype=dtype, inputs=[]):
                if not inputs:
                    inputs += [one.to(dtype or one.dtype).requires_grad_() for one in rows]
                with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                    results = function(*inputs)
                torch.autograd.backward(results, [gradient.to(one.dtype) for gradient, one
                                                  in zip(gradients, results)])
                layer.zero_grad()
                for one in inputs:
                    one.grad = None
            candidates.append(("MetaLayer", precision, run))
        report.measure("interaction block, forward+backward", width, candidates, with_memory=True)


def step_of(net, x, data, dtype):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    labels = data.labels[data.rows]

    def run():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = net(x)[data.rows]
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
    return run


def epochs(options, report):
    data = Data(options.dataset)
    for kind in ("gcn", "sage", "gat"):
        candidates = []
        for precision, dtype in AMP.items():
            torch.manual_seed(0)
            x = data.x.to(dtype or data.x.dtype)
            candidates += [(form, precision, step_of(net, x, data, dtype))
                           for form, net in report.library.models(kind, data).items()]
        report.measure(f"{kind} epoch, {data.name}", HIDDEN, candidates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=["pyg", "dgl"])
    parser.add_argument("--make", type=pathlib.Path)
    parser.add_argument("--dataset", type=pathlib.Path)
    parser.add_argument("--scale", type=int, default=17)
    parser.add_argument("--edges", type=int, default=1 << 21)
    parser.add_argument("--work", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if (options.make is None) == (options.library is None):
        parser.error("expected either --make or --library")
    if options.make:
        make(options.make, options.scale, options.edges)
        return
    warnings.filterwarnings("ignore")  # of sparse tensors in beta, of DGL's optional parts
    torch.set_num_threads(options.threads)
    report = Report(options, PyG() if options.library == "pyg" else DGL())
    epochs(options, report) if options.dataset else kernels(options, report)


main()
