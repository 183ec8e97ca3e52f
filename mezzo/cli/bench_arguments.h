#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/cli/bench_measure.h"
#include "mezzo/cli/bench_report.h"

namespace CLI {
class App;  // its header costs seconds
}

namespace mezzo::bench {

/// What the command `bench` and every program of bench/ takes.
struct BenchArguments {
  std::vector<std::int64_t> widths;
  std::vector<amp::Precision> precisions = {amp::Precision::kFloat32, amp::Precision::kBFloat16,
                                            amp::Precision::kFloat16};
  std::int64_t rounds = 7;
  std::optional<std::int64_t> threads;
  std::string json;
};

/// Adds --width (unless the program has no widths), --precision, --rounds, --threads and --json.
void add_bench_options(CLI::App& app, BenchArguments& arguments, const std::string& width_help);

/// Checks the values and sets the number of threads. Returns the report to fill. Throws
/// InvalidArgument or IoError.
Report begin_report(const BenchArguments& arguments);

/// Writes the report where --json asks for it. Throws IoError.
void write_report(const BenchArguments& arguments, const Report& report);

}  // namespace mezzo::bench
