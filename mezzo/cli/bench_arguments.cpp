#include "mezzo/cli/bench_arguments.h"

#include <algorithm>
#include <ostream>

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include "mezzo/cli/arguments.h"
#include "mezzo/core/error.h"
#include "mezzo/train/files.h"

namespace mezzo::bench {
namespace {

constexpr std::int64_t kMostRounds = 10000;
constexpr std::int64_t kWidest = 1 << 16;

/// Replaces `values` by what `read` makes of the words, each of which may stand there once.
template <class T, class Read>
void read_list(std::vector<T>& values, const char* flag, const std::vector<std::string>& words,
               Read read) {
  values.clear();
  for (const std::string& word : words) {
    const T value = read(word);
    MEZZO_CHECK(std::find(values.begin(), values.end(), value) == values.end(),
                "{}: '{}' stands there twice", flag, word);
    values.push_back(value);
  }
}

amp::Precision parse_cpu_precision(const std::string& word) {
  const amp::Precision precision = amp::parse_precision(word);
  MEZZO_CHECK(precision != amp::Precision::kTensorFloat32,
              "--precision: expected fp32, bf16 or fp16, got tf32, which the CPU has not");
  return precision;
}

}  // namespace

void add_bench_options(CLI::App& app, BenchArguments& arguments, const std::string& width_help) {
  cli::OptionGroup group(app, "Measurement");
  if (!width_help.empty()) {
    group.list(
        "--width", "N,...",
        [&arguments](const std::vector<std::string>& words) {
          read_list(arguments.widths, "--width", words, [](const std::string& word) {
            return cli::parse_number<std::int64_t>("--width", word);
          });
        },
        width_help, fmt::format("{}", fmt::join(arguments.widths, ",")));
  }
  group
      .list(
          "--precision", "NAME,...",
          [&arguments](const std::vector<std::string>& words) {
            read_list(arguments.precisions, "--precision", words, parse_cpu_precision);
          },
          "Precisions of this library's contenders: fp32, bf16, fp16", "fp32,bf16,fp16")
      .number("--rounds", arguments.rounds, "How often every contender runs, in turn")
      .number("--threads", arguments.threads, "CPU threads (default: one a core)");
  cli::add_report_options(app, arguments.json);
}

Report begin_report(const BenchArguments& arguments) {
  MEZZO_CHECK(arguments.rounds >= 1 && arguments.rounds <= kMostRounds,
              "--rounds: expected 1 to {}, got {}", kMostRounds, arguments.rounds);
  for (const std::int64_t width : arguments.widths) {
    MEZZO_CHECK(width >= 1 && width <= kWidest, "--width: expected 1 to {}, got {}", kWidest,
                width);
  }
  cli::use_machine({.device = "cpu", .threads = arguments.threads});
  if (!arguments.json.empty()) check_writable("--json", arguments.json);
  Report report;
  report.threads = at::get_num_threads();
  report.rounds = arguments.rounds;
  return report;
}

void write_report(const BenchArguments& arguments, const Report& report) {
  if (arguments.json.empty()) return;
  replace_file(arguments.json, [&](std::ostream& file) { file << report_to_json(report); });
}

}  // namespace mezzo::bench
