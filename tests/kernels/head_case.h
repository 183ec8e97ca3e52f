#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/head_scratch.h"

#include "kernels/guarded.h"
#include "kernels/kernel_case.h"
#include "support/draw.h"

/// Random arguments of the kernels that work by head.
namespace mezzo::test {

/// Sizes of one call, sometimes with more heads and entries than a chunk has.
struct Heads {
  Heads(Draw& draw, DType type) : Heads(draw, type, draw.one_in(12) ? 300 : 12) {}
  Heads(Draw& draw, DType type, std::int64_t most_entries)
      : dtype(type),
        entries(draw, most_entries),
        heads(is_large()        ? 1 + draw.below(3)
              : draw.one_in(12) ? 260 + draw.below(20)
                                : 1 + draw.below(10)),
        features(some_features(draw)) {}
  /// Often whole cache lines, which kernels may store non-temporally.
  std::int64_t some_features(Draw& draw) const {
    if (heads > 100) return 1 + draw.below(3);
    if (draw.one_in(2)) return 32;
    return 1 + draw.below(is_large() ? 20 : 70);
  }
  /// Few numbers per entry keep such cases fast.
  bool is_large() const { return entries.num_edges() > 2000; }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(heads * features) * element_size(dtype, false);
  }
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(head_scratch(heads, features)) * element_size(dtype, true);
  }
  std::string text() const {
    return fmt::format("{} {} rows, {} edges, {} heads, {} features", name_of(DTypes{}, dtype),
                       entries.num_rows, entries.num_edges(), heads, features);
  }

  DType dtype;
  RandomEntries entries;
  std::int64_t heads, features;
};

/// A matrix [rows, length], as float64 and as a kernel reads it.
struct Matrix {
  Matrix(Draw& draw, DType dtype, bool is_accumulator, std::int64_t rows, std::int64_t row_length,
         const std::vector<double>& from)
      : length(row_length),
        is_accum(is_accumulator),
        values(draw.numbers(rows * row_length, from)),
        bytes(stored(dtype, is_accumulator, values)) {}
  double at(std::int64_t row, std::int64_t i) const {
    return values[static_cast<std::size_t>(row * length + i)];
  }
  HeadNumbers numbers() const {
    return {.data = bytes.data(), .is_accum = is_accum, .length = length};
  }

  std::int64_t length;
  bool is_accum;
  std::vector<double> values;
  GuardedBytes bytes;
};

inline bool some_accum(Draw& draw, DType dtype) {
  return is_narrow(dtype) && draw.one_in(3);
}

}  // namespace mezzo::test
