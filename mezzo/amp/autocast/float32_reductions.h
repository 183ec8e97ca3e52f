#pragma once

#include <ATen/Context.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// While it lives, cuBLAS sums the 16-bit products of libtorch's operators in float32. By
/// libtorch's default it may add partial sums of a long row in 16 bits (split-K), and does so where
/// a heuristic finds it faster: the same product then has other bits, and float16 overflows beyond
/// 65504, though the result would have a place. Mezzo's own kernels add in float32 with and without
/// the scope, and the CPU ignores it.
///
/// The switches (libtorch's allowFP16ReductionCuBLAS, allowBF16ReductionCuBLAS and
/// allowFP16AccumulationCuBLAS) are the process's; the library leaves them alone, and the command
/// `mezzo` opens a scope around each of its commands. A backward needs them too: unlike an Autocast
/// region, the scope has to be open around it. The end, also by an exception, restores what was.
/// Scopes nest; open them on one thread only. Changes three numbers of the host: no device is asked
/// for, nothing synchronises.
class MEZZO_API Float32Reductions {
 public:
  Float32Reductions();
  ~Float32Reductions();
  Float32Reductions(const Float32Reductions&) = delete;
  Float32Reductions& operator=(const Float32Reductions&) = delete;

 private:
  at::CuBLASReductionOption float16_, bfloat16_;
  bool float16_accumulation_;
};

}  // namespace mezzo::amp
