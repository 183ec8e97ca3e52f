#pragma once

#include <cstdint>

#include "mezzo/core/export.h"
#include "mezzo/kernels/kernels.h"

namespace mezzo::kernels {

/// Where a CUDA kernel's work is queued and what it may use.
struct CudaLaunch {
  void* stream = nullptr;      ///< a cudaStream_t of the current device
  void* workspace = nullptr;   ///< device memory, as many bytes as the kernel's `workspace` says
  std::int64_t num_slots = 0;  ///< slots of all rows: what the last row pointer holds
};

/// One operation on the GPU. It takes the arguments of the CPU's kernel, every pointer in them into
/// device memory (a layout's tables too), and the whole range of rows: row_begin is 0. It does not
/// use `scratch`. Its work is queued on the stream and done later; nothing waits for it.
template <class Args>
struct CudaKernel {
  /// Bytes of workspace that a run with these sizes needs; reads no device memory.
  std::int64_t (*workspace)(const Args& args, std::int64_t num_slots) = nullptr;
  /// Throws LogicError with the name of the kernel where CUDA refuses it.
  void (*run)(const Args& args, const CudaLaunch& launch) = nullptr;
};

/// The kernels of a GPU; those of libmezzo_cuda.so.
using CudaKernels = KernelTable<CudaKernel, CudaKernelList>;

}  // namespace mezzo::kernels

/// The table of the library of CUDA kernels; found by name when the library is loaded.
extern "C" MEZZO_API const mezzo::kernels::CudaKernels* mezzo_cuda_kernels();
