#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "mezzo/core/random.h"

namespace mezzo {

/// Shuffles the values (Fisher and Yates: every order is equally likely). The order depends on
/// their number and on seed, stream and first_index alone: place i >= 1 uses the random index
/// first_index + i.
template <class T>
void shuffle(std::span<T> values, std::uint64_t seed, std::uint64_t stream,
             std::uint64_t first_index = 0) {
  for (std::size_t left = values.size(); left > 1; --left) {
    const std::size_t last = left - 1;
    std::swap(values[last], values[random_below(left, seed, stream, first_index + last)]);
  }
}

}  // namespace mezzo
