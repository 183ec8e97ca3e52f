#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "mezzo/core/random.h"

namespace mezzo {

/// Brings the values into an order that depends on their number, seed and stream alone (Fisher and
/// Yates: every order is as likely). What comes to place i, for i from 1, is drawn at the index
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
