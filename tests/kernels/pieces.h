#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mezzo/kernels/backend.h"

#include "kernels/guarded.h"
#include "kernels/kernel_case.h"
#include "support/draw.h"

/// Compares results of the kernels with the definition, and ranges of rows with all rows at once.
namespace mezzo::test {

/// The kernels of a CPU backend, or CUDA kernels with the same interface.
struct Kernels : CpuBackend {
  bool take_ranges = true;  ///< whether they can compute a range of rows
  std::vector<std::int64_t> hub_entries = {
      12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 300};  ///< entries of a long row, one of these
};

/// The kernels under test; each test program defines its own (cpu_kernels.cpp, cuda/).
std::vector<Kernels> kernels_under_test();

inline const std::vector<double> kWhole = {-3, -2, -1, 0, 1, 2, 3};
inline const std::vector<double> kPowers = {0.5, 1, 2, 4};

/// Runs `check(kernels, draw)` `rounds` times on each of the kernels under test.
template <class Check>
void on_every_backend(std::uint64_t rounds, Check check) {
  for (const Kernels& one : kernels_under_test()) {
    for (std::uint64_t seed = 0; seed < rounds; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", one.name, seed));
      Draw draw(seed);
      check(one, draw);
    }
  }
}

/// Whether a call for these rows uses non-temporal stores; some do, with the same result.
inline bool streams(std::int64_t begin, std::int64_t end) {
  return (begin + end / 2) % 2 == 0;
}

/// A result whose row i belongs to the kernel's row owner[i].
struct Result {
  GuardedBytes bytes;
  std::vector<std::int64_t> owner;
};

inline Result make_result(std::vector<std::int64_t> owner, std::size_t row_bytes) {
  GuardedBytes bytes(owner.size() * row_bytes);
  if (bytes.size() > 0) std::memset(bytes.data(), 0xA5, bytes.size());
  return {std::move(bytes), std::move(owner)};
}

/// Calls visit(row, entry) for every entry.
template <class Visit>
void for_each_entry(const RandomEntries& entries, Visit visit) {
  for (std::int64_t row = 0; row < entries.num_rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    for (std::int64_t entry = entries.indptr[r]; entry < entries.indptr[r + 1]; ++entry)
      visit(row, entry);
  }
}

inline std::vector<std::int64_t> own_rows(const RandomEntries& entries) {
  std::vector<std::int64_t> owner;
  for (std::int64_t row = 0; row < entries.num_rows; ++row) owner.push_back(row);
  return owner;
}

inline std::vector<std::int64_t> rows_of_edges(const RandomEntries& entries) {
  std::vector<std::int64_t> owner(static_cast<std::size_t>(entries.num_edges()));
  for_each_entry(entries, [&](std::int64_t row, std::int64_t entry) {
    owner[static_cast<std::size_t>(entries.id(Access::kSecond, row, entry))] = row;
  });
  return owner;
}

inline std::vector<std::int64_t> rows_of_entries(const RandomEntries& entries) {
  std::vector<std::int64_t> owner;
  for_each_entry(entries, [&](std::int64_t row, std::int64_t /*entry*/) { owner.push_back(row); });
  return owner;
}

/// Runs run(0, cut) and run(cut, end) on two threads.
template <class Run>
void on_two_threads(std::int64_t cut, std::int64_t end, Run run) {
  const std::jthread first([&] { run(std::int64_t{0}, cut); });
  const std::jthread second([&] { run(cut, end); });
}

/// Runs two ranges of rows: on two threads if the kernels take ranges, else one range is empty.
template <class Run>
void in_two_ranges(const Kernels& kernels, Draw& draw, std::int64_t num_rows, Run run) {
  if (kernels.take_ranges) return on_two_threads(draw.below(num_rows + 1), num_rows, run);
  run(std::int64_t{0}, num_rows);
  run(std::int64_t{0}, std::int64_t{0});
}

using RunRows = std::function<void(std::int64_t begin, std::int64_t end, Result& result)>;

/// Compares `whole`, the result of one call of `run`, with results of several calls.
inline void expect_ranges_agree(const Kernels& kernels, Draw& draw, std::int64_t num_rows,
                                const Result& whole, const RunRows& run) {
  if (!kernels.take_ranges) return;
  const std::size_t rows = whole.owner.size();
  const std::size_t row_bytes = rows == 0 ? 0 : whole.bytes.size() / rows;
  Result shared = make_result(whole.owner, row_bytes);
  const std::int64_t cut = draw.below(num_rows + 1);
  on_two_threads(cut, num_rows, [&](std::int64_t from, std::int64_t to) { run(from, to, shared); });
  EXPECT_TRUE(rows == 0 ||
              std::memcmp(shared.bytes.data(), whole.bytes.data(), whole.bytes.size()) == 0)
      << "two threads, cut at row " << cut;

  const std::int64_t begin = draw.below(num_rows + 1);
  const std::int64_t end = begin + draw.below(num_rows - begin + 1);
  const Result untouched = make_result(whole.owner, row_bytes);
  Result alone = make_result(whole.owner, row_bytes);
  run(begin, end, alone);
  for (std::size_t i = 0; i < rows; ++i) {
    const bool inside = whole.owner[i] >= begin && whole.owner[i] < end;
    const GuardedBytes& expected = inside ? whole.bytes : untouched.bytes;
    EXPECT_EQ(
        std::memcmp(alone.bytes.data() + i * row_bytes, expected.data() + i * row_bytes, row_bytes),
        0)
        << "result row " << i << " after rows " << begin << " to " << end << " alone";
  }
}

/// NaN equals NaN; -0 equals 0.
inline void expect_numbers(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = got[i] != got[i] && expected[i] != expected[i];
    ASSERT_TRUE(got[i] == expected[i] || both_nan)
        << "element " << i << ": got " << got[i] << ", expected " << expected[i];
  }
}

/// Compares the result of `run` over all rows with `expected`, and ranges of rows with that result.
/// Row i of the result belongs to the kernel's row owner[i]; is_accum: in the accumulator type.
inline void expect_result(const Kernels& kernels, Draw& draw, DType dtype, bool is_accum,
                          std::int64_t num_rows, std::vector<std::int64_t> owner,
                          const std::vector<double>& expected, const RunRows& run) {
  const std::size_t length = owner.empty() ? 0 : expected.size() / owner.size();
  Result whole = make_result(std::move(owner), length * element_size(dtype, is_accum));
  run(0, num_rows, whole);
  expect_numbers(numbers_in(dtype, is_accum, whole.bytes), rounded(dtype, is_accum, expected));
  expect_ranges_agree(kernels, draw, num_rows, whole, run);
}

/// `args` for the rows [begin, end).
template <class Args>
Args with_rows(Args args, std::int64_t begin, std::int64_t end) {
  args.row_begin = begin;
  args.row_end = end;
  return args;
}

}  // namespace mezzo::test
