#include "mezzo/kernels/cuda/check_launch.h"

#include <string>

#include <cuda_runtime_api.h>

#include "mezzo/core/error.h"

namespace mezzo::kernels::cuda {

void check_launch(const char* kernel_name, int status) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  const char* const text =
      error == cudaErrorNoKernelImageForDevice
          ? "the kernels were compiled for other GPUs: " MEZZO_CUDA_ARCHITECTURES
          : cudaGetErrorString(error);
  throw LogicError(std::string(kernel_name) + ": " + text);
}

}  // namespace mezzo::kernels::cuda
