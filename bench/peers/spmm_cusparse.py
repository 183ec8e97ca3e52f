#!/usr/bin/env python3
"""cuSPARSE's SpMM with descriptors and buffers made once, and a plain row loop: the sums of
bench/cuda.cpp --part spmm.

usage: spmm_cusparse.py [--width N ...] [--rounds N] [--json FILE]
"""
import ctypes

import cupy
import torch

import common

# name: dtype, cudaDataType
TYPES = {"fp32": (torch.float32, 0), "bf16": (torch.bfloat16, 14), "fp16": (torch.float16, 2)}
FLOAT32, INDEX_32, ROW_MAJOR, NOT_TRANSPOSED = 0, 2, 2, 0  # as cusparse.h and library_types.h
ALGORITHMS = {"ALG2": 6, "ALG3": 12}  # CUSPARSE_SPMM_CSR_ALG2 and _ALG3 of cusparse.h

ROW_LOOP = r"""
// A thread for each feature of a row: no vector loads, no care of long rows.
extern "C" __global__ void row_loop(const int* indptr, const int* indices, const VALUE* x,
                                    VALUE* out, int width) {
  const int row = blockIdx.x;
  for (int f = threadIdx.x; f < width; f += blockDim.x) {
    float sum = 0;
    for (int slot = indptr[row]; slot < indptr[row + 1]; ++slot) {
      sum += widened(x[static_cast<long long>(indices[slot]) * width + f]);
    }
    out[static_cast<long long>(row) * width + f] = narrowed(sum);
  }
}
"""
CONVERSIONS = {
    "fp32": ("float", "return v;", "return v;"),
    "bf16": ("unsigned short", "return __uint_as_float(static_cast<unsigned>(v) << 16);",
             'unsigned short r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r;'),
    "fp16": ("unsigned short",
             'float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v)); return r;',
             'unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r;')}


class Sparse:
    """cuSPARSE, the one that torch has loaded; every call is checked."""

    def __init__(self):
        self.library = ctypes.CDLL("libcusparse.so.12")
        self.handle = ctypes.c_void_p()
        self("Create", ctypes.byref(self.handle))

    def __call__(self, name, *arguments):
        status = getattr(self.library, f"cusparse{name}")(*arguments)
        if status != 0:
            raise RuntimeError(f"cusparse{name}: status {status}")

    def dense(self, tensor, kind):
        matrix = ctypes.c_void_p()
        rows, columns = (ctypes.c_int64(size) for size in tensor.shape)
        self("CreateDnMat", ctypes.byref(matrix), rows, columns, columns,
             ctypes.c_void_p(tensor.data_ptr()), kind, ROW_MAJOR)
        return matrix

    def rows(self, indptr, indices, values, columns, kind):
        matrix = ctypes.c_void_p()
        self("CreateCsr", ctypes.byref(matrix), ctypes.c_int64(indptr.numel() - 1),
             ctypes.c_int64(columns), ctypes.c_int64(indices.numel()),
             ctypes.c_void_p(indptr.data_ptr()), ctypes.c_void_p(indices.data_ptr()),
             ctypes.c_void_p(values.data_ptr()), INDEX_32, INDEX_32, 0, kind)
        return matrix


class Product:
    """out = A x for a CSR matrix of ones; everything but the call is done before."""

    def __init__(self, sparse, indptr, indices, x, precision, algorithm):
        dtype, kind = TYPES[precision]
        self.sparse, self.x = sparse, x
        self.out = torch.zeros(indptr.numel() - 1, x.size(1), dtype=dtype, device=common.DEVICE)
        self.ones = torch.ones(indices.numel(), dtype=dtype, device=common.DEVICE)
        self.alpha, self.beta = ctypes.c_float(1), ctypes.c_float(0)
        self.arguments = (
            sparse.handle, NOT_TRANSPOSED, NOT_TRANSPOSED, ctypes.byref(self.alpha),
            sparse.rows(indptr, indices, self.ones, x.size(0), kind), sparse.dense(x, kind),
            ctypes.byref(self.beta), sparse.dense(self.out, kind), FLOAT32, algorithm)
        size = ctypes.c_size_t()
        sparse("SpMM_bufferSize", *self.arguments, ctypes.byref(size))
        self.buffer = torch.empty(max(size.value, 1), dtype=torch.uint8, device=common.DEVICE)
        self.place = ctypes.c_void_p(self.buffer.data_ptr())
        sparse("SpMM_preprocess", *self.arguments, self.place)

    def run(self):
        self.sparse("SpMM", *self.arguments, self.place)
        return [self.out]


def row_loop(indptr, indices, x, precision):
    value, widened, narrowed = CONVERSIONS[precision]
    source = (f"__device__ float widened({value} v) {{ {widened} }}\n"
              f"__device__ {value} narrowed(float v) {{ {narrowed} }}\n"
              + ROW_LOOP.replace("VALUE", value))
    kernel = cupy.RawKernel(source, "row_loop")
    out = torch.zeros(indptr.numel() - 1, x.size(1), dtype=x.dtype, device=common.DEVICE)
    threads = min(256, 32 * ((x.size(1) + 31) // 32))

    def run():
        kernel((indptr.numel() - 1,), (threads,),
               (indptr.data_ptr(), indices.data_ptr(), x.data_ptr(), out.data_ptr(),
                cupy.int32(x.size(1))))
        return [out]
    return run


def deferred(make):
    """A run whose operands are made with its first call, so that what fails there is noted."""
    cache = []

    def run():
        if not cache:
            cache.append(make())
        return cache[0]()
    return run


def main():
    report = common.Report(__doc__.splitlines()[0])
    report.parser.add_argument("--width", type=int, nargs="+", default=[16, 32, 64, 128, 256, 602])
    options = report.parse()
    torch.zeros(1, device=common.DEVICE)  # a context
    sparse = Sparse()
    for size in [common.REDDIT, common.PRODUCTS]:
        src, dst = common.rmat(size)
        indptr, indices = common.rows_by(dst, src, size[1])
        del src, dst
        for width in options.width:
            measure(report, sparse, size, indptr, indices, width)
    report.finish()


def measure(report, sparse, size, indptr, indices, width):
    numbers = torch.randint(-8, 9, (size[1], width), device=common.DEVICE).float().div_(8)
    expected = [common.sampled_sums(indptr, indices, numbers)]
    candidates = []
    for precision, (dtype, _) in TYPES.items():
        x = numbers.to(dtype)
        for name, algorithm in ALGORITHMS.items():
            candidates.append((
                f"cuSPARSE {name}, {precision}", precision,
                deferred(lambda x=x, p=precision, a=algorithm:
                         Product(sparse, indptr, indices, x, p, a).run)))
        candidates.append((f"row loop, {precision}", precision,
                           deferred(lambda x=x, p=precision: row_loop(indptr, indices, x, p))))
    report.measure(f"copy_u sum, {size[0]}, forward", width, candidates, expected)


main()
