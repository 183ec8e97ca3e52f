#pragma once

#include <cuda_runtime.h>

#include "kernels/pieces.h"

namespace mezzo::test {

/// The CUDA kernels, run on the CPU by support/cuda_emulator in one order of blocks and threads, on
/// a workspace of exactly the size they ask for that holds no numbers at first.
template <cuda::EmulatedOrder order>
Kernels emulated_kernels();

}  // namespace mezzo::test
