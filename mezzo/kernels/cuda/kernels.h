#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda_kernels.h"

namespace mezzo::kernels::cuda {

/// The two functions of CudaKernel<Args>, defined in the .cu file of each kernel.
template <class Args>
struct Kernel {
  static std::int64_t workspace(const Args& args, std::int64_t num_entries);
  static void run(const Args& args, const CudaLaunch& launch);
};

}  // namespace mezzo::kernels::cuda
