#include "mezzo/amp/autocast/float32_reductions.h"

namespace mezzo::amp {
namespace {

using Reduction = at::CuBLASReductionOption;

bool is_reduced(Reduction option) {
  return option == Reduction::AllowReducedPrecisionWithSplitK;
}

bool has_split_k(Reduction option) {
  return option != Reduction::DisallowReducedPrecisionDisallowSplitK;
}

}  // namespace

Float32Reductions::Float32Reductions()
    : float16_(at::globalContext().allowFP16ReductionCuBLAS()),
      bfloat16_(at::globalContext().allowBF16ReductionCuBLAS()),
      float16_accumulation_(at::globalContext().allowFP16AccumulationCuBLAS()) {
  at::Context& context = at::globalContext();
  // Keeps the caller's split-K setting.
  context.setAllowFP16ReductionCuBLAS(false, has_split_k(float16_));
  context.setAllowBF16ReductionCuBLAS(false, has_split_k(bfloat16_));
  context.setAllowFP16AccumulationCuBLAS(false);
}

Float32Reductions::~Float32Reductions() {
  at::Context& context = at::globalContext();
  context.setAllowFP16ReductionCuBLAS(is_reduced(float16_), has_split_k(float16_));
  context.setAllowBF16ReductionCuBLAS(is_reduced(bfloat16_), has_split_k(bfloat16_));
  context.setAllowFP16AccumulationCuBLAS(float16_accumulation_);
}

}  // namespace mezzo::amp
