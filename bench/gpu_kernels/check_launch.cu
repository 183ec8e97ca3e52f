#include <stdexcept>
#include <string>

#include "mezzo/kernels/cuda/device.h"

namespace mezzo::kernels::cuda {

/// As kernels/cuda/check_launch.cpp, but without fmt, which the machine may not have.
void check_launch(const char* kernel_name, int status) {
#ifdef __CUDACC__
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(kernel_name) + ": " + cudaGetErrorString(error));
#else
  static_cast<void>(kernel_name);
  static_cast<void>(status);
#endif
}

}  // namespace mezzo::kernels::cuda
