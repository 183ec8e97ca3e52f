#pragma once

#include <cstddef>
#include <cstdint>

#include "mezzo/core/random.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo::definition {

/// What dropout multiplies element `number` by: 0 or 1 / (1 - probability).
inline double dropout_factor(const kernels::DropoutLevel& level, std::int64_t number) {
  constexpr std::int64_t kEach = kernels::kElementsPerDraw;
  if (level.threshold == 0) return 1;
  const std::uint64_t offset =
      level.seed_offset == nullptr ? 0 : static_cast<std::uint64_t>(*level.seed_offset);
  const auto words = philox(level.seed + offset, kernels::kDropoutStream,
                            static_cast<std::uint64_t>(number / kEach));
  const std::int64_t place = number % kEach;
  const auto bits = words[static_cast<std::size_t>(place / 2)] >> (16 * (place % 2)) & 0xFFFF;
  return bits < level.threshold
             ? 0
             : kernels::kDropoutLevels / (kernels::kDropoutLevels - level.threshold);
}

}  // namespace mezzo::definition
