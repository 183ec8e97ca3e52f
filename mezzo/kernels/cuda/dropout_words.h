#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/philox.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo::kernels::cuda {

/// Random bits of one draw, which covers kElementsPerDraw elements.
__device__ inline void dropout_words(const DropoutLevel& dropout, std::int64_t draw,
                                     std::uint32_t (&words)[4]) {
  std::uint64_t seed = dropout.seed;
  if (dropout.seed_offset != nullptr) seed += static_cast<std::uint64_t>(*dropout.seed_offset);
  philox_words(seed, kDropoutStream, static_cast<std::uint64_t>(draw), words);
}

}  // namespace mezzo::kernels::cuda
