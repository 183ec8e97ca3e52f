#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/kernels/spmm.h"
#include "mezzo/message_passing/arguments.h"

namespace mezzo {

/// Runs a g-SpMM over all rows of `direction` on libtorch's threads. Sums and means of rows with
/// very many slots are cut into pieces of a fixed number of slots, which threads share and which
/// are added in order, so that one hub does not keep one thread busy alone and the bits do not
/// depend on the number of threads. args: all but the row range; args.out is `out`. Internal to
/// message_passing.
void run_spmm(const SpmmArgs& args, const Direction& direction, at::Tensor& out);

}  // namespace mezzo
