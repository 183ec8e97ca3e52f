#pragma once

#include <cstdint>

#include "mezzo/core/export.h"
#include "mezzo/kernels/kernels.h"

namespace mezzo::kernels {

/// The stream and memory of a CUDA kernel.
struct CudaLaunch {
  void* stream = nullptr;        ///< a cudaStream_t of the current device
  void* workspace = nullptr;     ///< device memory of the size that `workspace` returns
  std::int64_t num_entries = 0;  ///< entries of all rows: the last row pointer
};

/// One operation on the GPU. It takes the arguments of the CPU kernel, with all pointers (a
/// layout's too) to device memory and with row_begin = 0 (all rows). `scratch` is unused. run()
/// enqueues the work on the stream and returns without waiting.
template <class Args>
struct CudaKernel {
  /// Bytes of workspace that run() needs for these sizes; reads no device memory.
  std::int64_t (*workspace)(const Args& args, std::int64_t num_entries) = nullptr;
  /// Throws LogicError with the name of the kernel if the launch fails, std::length_error with it
  /// for more blocks than a GPU takes.
  void (*run)(const Args& args, const CudaLaunch& launch) = nullptr;
};

/// The CUDA kernels, in libmezzo_cuda.so.
using CudaKernels = KernelTable<CudaKernel, CudaKernelList>;

}  // namespace mezzo::kernels

/// The kernels of libmezzo_cuda.so; looked up by name when the library is loaded.
extern "C" MEZZO_API const mezzo::kernels::CudaKernels* mezzo_cuda_kernels();
