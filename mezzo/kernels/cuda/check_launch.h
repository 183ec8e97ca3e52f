#pragma once

namespace mezzo::kernels::cuda {

/// Throws LogicError with the kernel's name unless `status` (a cudaError_t) is success.
void check_launch(const char* kernel_name, int status);

}  // namespace mezzo::kernels::cuda
