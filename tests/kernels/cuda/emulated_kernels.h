#pragma once

#include <cuda_runtime.h>

#include "kernels/pieces.h"

namespace mezzo::test {

/// The CUDA kernels, run on the CPU by support/cuda_emulator in one order of blocks and threads,
/// with an uninitialized workspace of exactly the requested size.
template <cuda::EmulatedOrder order>
Kernels emulated_kernels();

}  // namespace mezzo::test
