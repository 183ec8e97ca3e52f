#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

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
  Matrix(Draw& draw, DType dtype, bool float32, std::int64_t rows, std::int64_t row_length,
         const std::vector<double>& from)
      : length(row_length),
        is_accum(float32),
        values(draw.numbers(rows * row_length, from)),
        bytes(stored(dtype, float32, values)) {}
  double at(std::int64_t row, std::int64_t i) const {
    return values[static_cast<std::size_t>(row * length + i)];
  }
  HeadNumbers numbers() const {
    return {.data = bytes.data(), .is_accum = is_accum, .length = length};
  }
  /// With rows of these sizes.
  definition::Array array(definition::Sizes trailing) const {
    trailing.insert(trailing.begin(), static_cast<std::int64_t>(values.size()) / length);
    return {std::move(trailing), values};
  }

  std::int64_t length;
  bool is_accum;
  std::vector<double> values;
  GuardedBytes bytes;
};

/// The outputs of attention, one row per destination.
struct AttentionOutputs {
  explicit AttentionOutputs(const Heads& h)
      : out(static_cast<std::size_t>(h.entries.num_rows) * h.row_bytes()),
        top(static_cast<std::size_t>(h.entries.num_rows * h.heads) * element_size(h.dtype, true)),
        sum(top.size()) {}
  GuardedBytes out, top, sum;
};

/// The outputs of its backward: two with a row per source, two with a row per entry.
struct AttentionGradients {
  AttentionGradients(const Heads& h, std::int64_t weight_length)
      : z(static_cast<std::size_t>(h.entries.num_rows) * h.row_bytes()),
        score(static_cast<std::size_t>(h.entries.num_rows * h.heads) * element_size(h.dtype, true)),
        sum(by_entry(h, h.heads)),
        weight(by_entry(h, weight_length)) {}
  static GuardedBytes by_entry(const Heads& h, std::int64_t length) {
    return GuardedBytes(static_cast<std::size_t>(h.entries.num_edges() * length) *
                        element_size(h.dtype, true));
  }
  GuardedBytes z, score, sum, weight;
};

inline void expect_same_bytes(const GuardedBytes& a, const GuardedBytes& b, const char* what) {
  EXPECT_TRUE(a.size() == 0 || std::memcmp(a.data(), b.data(), a.size()) == 0) << what;
}

inline void expect_same(const AttentionOutputs& a, const AttentionOutputs& b) {
  expect_same_bytes(a.out, b.out, "out");
  expect_same_bytes(a.top, b.top, "top");
  expect_same_bytes(a.sum, b.sum, "sum");
}

inline void expect_same(const AttentionGradients& a, const AttentionGradients& b, bool weighted) {
  expect_same_bytes(a.z, b.z, "z_grad");
  expect_same_bytes(a.score, b.score, "score_grad");
  expect_same_bytes(a.sum, b.sum, "sum_grad");
  if (weighted) expect_same_bytes(a.weight, b.weight, "weight_grad");
}

/// The part that all kernels by head share.
template <class Args>
Args args_of(const Heads& h, std::int64_t begin, std::int64_t end) {
  Args args;
  args.entries = h.entries.view();
  args.row_begin = begin;
  args.row_end = end;
  args.dtype = h.dtype;
  args.heads = h.heads;
  args.features = h.features;
  return args;
}

inline bool some_accum(Draw& draw, DType dtype) {
  return is_narrow(dtype) && draw.one_in(3);
}

}  // namespace mezzo::test
