#pragma once

#include <cstdint>

#include "mezzo/core/export.h"
#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cuda_gather.h"
#include "mezzo/kernels/cuda_sampling.h"
#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/edge_softmax.h"
#include "mezzo/kernels/gatv2_scores.h"
#include "mezzo/kernels/message_grad.h"
#include "mezzo/kernels/sddmm.h"
#include "mezzo/kernels/spmm.h"
#include "mezzo/kernels/weighted_grad.h"

namespace mezzo {

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

/// The first 8 bytes of a stamp.
inline constexpr std::uint64_t kCudaMark = 0x6D657A7A6F435544U;

/// What every table of libmezzo_cuda.so begins with: which headers it was built from
/// (cuda_stamp.h). Read of files of any version, so these members stay as they are for ever.
struct CudaStamp {
  std::uint64_t mark = 0;    ///< kCudaMark; anything else where a table has no stamp
  char version[24] = {};     ///< kVersion, up to the first 0
  std::uint64_t layout = 0;  ///< LayoutHash of the table and of what it is called with
};

/// The kernels of a GPU; those of libmezzo_cuda.so.
struct CudaKernels {
  CudaStamp stamp;  ///< cuda_kernels_stamp()
  CudaKernel<SpmmArgs> spmm;
  CudaKernel<SddmmArgs> sddmm;
  CudaKernel<MessageGradArgs> message_grad;
  CudaKernel<SoftmaxArgs> softmax;
  CudaKernel<SoftmaxGradArgs> softmax_grad;
  CudaKernel<AttentionArgs> attention;
  CudaKernel<AttentionStateArgs> attention_state;
  CudaKernel<AttentionGradArgs> attention_grad;
  CudaKernel<WeightedGradArgs> weighted_grad;
  CudaKernel<GATv2ScoresArgs> gatv2_scores;
  CudaKernel<GATv2ScoresGradArgs> gatv2_scores_grad;
  CudaKernel<DropoutArgs> dropout;
  CudaKernel<CudaGatherArgs> gather;
  CudaKernel<CudaDrawArgs> draw;
  CudaKernel<CudaRenumberArgs> renumber;
};

}  // namespace mezzo

/// The table of the library of CUDA kernels; found by name when the library is loaded.
extern "C" MEZZO_API const mezzo::CudaKernels* mezzo_cuda_kernels();
