// Memory read bandwidth, the limit of kernels that miss the caches. Sequential rows give the stream
// bandwidth that the other programs compare with; random rows model a gather.
#include <array>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "mezzo/core/table.h"

#include "bench/harness/machine.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  bench.begin();
  std::vector<std::vector<std::string>> rows = {{"rows", "bytes a row", "threads", "GB/s"}};
  constexpr std::array<std::int64_t, 5> kRowBytes = {64, 128, 256, 512, 1024};
  const auto measure_rows = [&](ReadPattern pattern) {
    for (const int threads : {1, at::get_num_threads()}) {
      pattern.threads = threads;
      rows.push_back({pattern.shuffled ? "random" : "in order", std::to_string(pattern.row_bytes),
                      std::to_string(threads),
                      fmt::format("{:.1f}", read_bandwidth(pattern) * 1e-9)});
    }
  };
  measure_rows({});
  for (const std::int64_t row_bytes : kRowBytes) {
    measure_rows({.row_bytes = row_bytes, .shuffled = true});
  }
  std::cout << mezzo::format_table(rows) << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "bandwidth", .description = "How fast memory is read", .run = run},
                     argc, argv);
}
