#include "mezzo/kernels/cuda/check_launch.h"

#include <string>

#include <cuda_runtime_api.h>

#include "mezzo/core/error.h"

namespace mezzo::kernels::cuda {

void check_launch(const char* kernel_name, int status) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  throw LogicError(std::string(kernel_name) + ": " + cudaGetErrorString(error));
}

}  // namespace mezzo::kernels::cuda
