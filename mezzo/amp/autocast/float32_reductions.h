#pragma once

#include <ATen/Context.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// While this object lives, cuBLAS accumulates libtorch's 16-bit matrix products in float32. By
/// default cuBLAS may add split-K partial sums in 16 bits if a heuristic expects that to be faster:
/// results then change bits, and float16 may overflow in a partial sum although the result is in
/// range. Mezzo's kernels always accumulate in float32; the CPU ignores the switches.
///
/// The switches (libtorch's allowFP16ReductionCuBLAS, allowBF16ReductionCuBLAS and
/// allowFP16AccumulationCuBLAS) are per process. The library does not change them otherwise; the
/// command `mezzo` opens a scope around each of its commands. Unlike an Autocast region, the scope
/// must be open during the backward. Its end restores the switches, also after an exception. Scopes
/// nest; open them on one thread only. Uses no device and does not synchronise.
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
