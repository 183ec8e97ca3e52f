// Dropout and uniform sampling of every backend on two threads with shared inputs and outputs, also
// under the thread sanitizer. (The tests of the other kernels use two threads themselves.)

#include "kernels/pieces.h"
#include "kernels/sample.h"

namespace mezzo::test {
namespace {

void check_dropout(const CpuBackend& backend, DType dtype, std::int64_t count) {
  SCOPED_TRACE(fmt::format("{} {} {} elements", backend.name, name_of(DTypes{}, dtype), count));
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i % 61) + 1);
  const GuardedBytes x = stored(dtype, /*is_accum=*/false, values);
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

template <class Id>
void check_draws(const CpuBackend& backend, kernels::DrawCount count) {
  SCOPED_TRACE(fmt::format("{} ids of {} bytes{}", count.fanout, sizeof(Id),
                           count.replace ? ", replacing" : ""));
  const std::vector<std::int64_t> degrees = {0, 1, 5, 40, 64, 65, 300, 5000, 70000};
  const Rows<Id> rows(degrees);
  constexpr std::int64_t kNodes = 180;
  std::vector<Id> nodes;
  for (std::size_t i = 0; i < kNodes; ++i) nodes.push_back(static_cast<Id>(i % degrees.size()));
  const auto run = [&](std::int64_t first, std::int64_t last, Sample<Id>& sample) {
    std::vector<std::uint64_t> scratch(sample.scratch.size());
    auto args = sample.args(rows, first, last, {.seed = 11, .stream = 3});
    args.scratch = scratch.data();
    backend.run(args);
  };
  Sample<Id> whole(rows, nodes, count);
  run(0, kNodes, whole);
  for (const std::int64_t cut : {1, 60, 95, 179}) {
    Sample<Id> shared(rows, nodes, count);
    on_two_threads(cut, kNodes,
                   [&](std::int64_t first, std::int64_t last) { run(first, last, shared); });
    EXPECT_EQ(shared.entries, whole.entries) << "cut at row " << cut;
    EXPECT_EQ(shared.neighbors, whole.neighbors) << "cut at row " << cut;
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
