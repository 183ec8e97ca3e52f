// Dropout and the samplers' draws of every backend, by two threads at once over shared inputs and
// outputs. (The other kernels' tests run their pieces so.) What the thread sanitizer runs, too.
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/sampling.h"

#include "kernels/guarded.h"
#include "kernels/kernel_case.h"
#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

void check_dropout(const CpuBackend& backend, DType dtype, std::int64_t count) {
  SCOPED_TRACE(fmt::format("{} {} {} elements", backend.name, name_of(DTypes{}, dtype), count));
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i % 61) + 1);
  const GuardedBytes x = stored(dtype, /*wide=*/false, values);
  const std::int64_t draws = (count + kElementsPerDraw - 1) / kElementsPerDraw;
  const auto run = [&](std::int64_t begin, std::int64_t end, GuardedBytes& out) {
    backend.run(DropoutArgs{.draw_begin = begin,
                            .draw_end = end,
                            .dtype = dtype,
                            .dropout = {.seed = 0x123456789ABCDEF0, .threshold = 20000},
                            .count = count,
                            .x = x.data(),
                            .out = out.data()});
  };
  GuardedBytes whole(x.size());
  run(0, draws, whole);
  for (const std::int64_t cut : {std::int64_t{1}, draws / 3, draws / 2, draws - 1}) {
    GuardedBytes shared(x.size());
    std::memset(shared.data(), 0xA5, shared.size());
    on_two_threads(cut, draws,
                   [&](std::int64_t begin, std::int64_t end) { run(begin, end, shared); });
    EXPECT_EQ(std::memcmp(shared.data(), whole.data(), whole.size()), 0) << "cut at draw " << cut;
  }
}

TEST(TwoThreads, drop_what_one_does) {
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend == nullptr) continue;
    mezzo::detail::for_each(DTypes{}, [&]<class T>() {
      for (const std::int64_t count : {9, 200, 1031}) {
        check_dropout(*one.backend, T::kind, count);
      }
    });
  }
}

/// Rows of these degrees, one after the other; the neighbour of slot i is node i * 7 + 1.
template <class Id>
struct DrawnRows {
  explicit DrawnRows(kernels::DrawCount of) : count(of) {
    constexpr std::array<std::int64_t, 9> kDegrees = {0, 1, 5, 40, 64, 65, 300, 5000, 70000};
    std::partial_sum(kDegrees.begin(), kDegrees.end(), indptr.begin() + 1);
    for (std::int64_t i = 0; i < indptr.back(); ++i) indices.push_back(static_cast<Id>(i * 7 + 1));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      nodes.push_back(static_cast<Id>(i % kDegrees.size()));
    }
    max_degree = kernels::find_rows<Id>(view(), nodes.data(), size(), count, found());
  }
  std::int64_t size() const { return static_cast<std::int64_t>(begins.size()); }
  kernels::NeighborRows<Id> view() const {
    return {indptr.data(), indices.data(), static_cast<std::int64_t>(indptr.size()) - 1};
  }
  kernels::FoundRows found() { return {begins.data(), degrees.data(), offsets.data()}; }

  kernels::DrawCount count;
  std::vector<std::int64_t> indptr = std::vector<std::int64_t>(10);
  std::vector<Id> indices, nodes;
  std::vector<std::int64_t> begins = std::vector<std::int64_t>(180);
  std::vector<std::int64_t> degrees = std::vector<std::int64_t>(180);
  std::vector<std::int64_t> offsets = std::vector<std::int64_t>(181);
  std::int64_t max_degree = 0;
};

template <class Id>
void check_draws(const CpuBackend& backend, kernels::DrawCount count) {
  SCOPED_TRACE(fmt::format("{} ids of {} bytes{}", count.fanout, sizeof(Id),
                           count.replace ? ", replacing" : ""));
  DrawnRows<Id> rows(count);
  const auto drawn = static_cast<std::size_t>(rows.offsets.back());
  const auto words =
      static_cast<std::size_t>(kernels::uniform_scratch_words(count, rows.max_degree));
  const auto run = [&](std::int64_t first, std::int64_t last, std::vector<Id>& slots,
                       std::vector<Id>& neighbors) {
    std::vector<std::uint64_t> scratch(words);
    backend.run(kernels::UniformDraws<Id>{.rows = rows.view(),
                                          .found = rows.found(),
                                          .first = first,
                                          .last = last,
                                          .count = count,
                                          .key = {.seed = 11, .stream = 3},
                                          .scratch = scratch.data(),
                                          .slots = slots.data(),
                                          .neighbors = neighbors.data()});
  };
  std::vector<Id> slots(drawn, -1), neighbors(drawn, -1);
  run(0, rows.size(), slots, neighbors);
  for (const std::int64_t cut : {1, 60, 95, 179}) {
    std::vector<Id> shared_slots(drawn, -1), shared_neighbors(drawn, -1);
    on_two_threads(cut, rows.size(), [&](std::int64_t first, std::int64_t last) {
      run(first, last, shared_slots, shared_neighbors);
    });
    EXPECT_EQ(shared_slots, slots) << "cut at row " << cut;
    EXPECT_EQ(shared_neighbors, neighbors) << "cut at row " << cut;
  }
}

TEST(TwoThreads, draw_what_one_does) {
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend == nullptr) continue;
    SCOPED_TRACE(one.name);
    for (const std::int64_t fanout : {1, 7, 15, 32, 60, 1000}) {
      for (const bool replace : {false, true}) {
        check_draws<std::int32_t>(*one.backend, {.fanout = fanout, .replace = replace});
        check_draws<std::int64_t>(*one.backend, {.fanout = fanout, .replace = replace});
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::test
