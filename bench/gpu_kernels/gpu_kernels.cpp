// Checks and times the CUDA kernels alone, without libtorch: the table of a library that has
// nothing else, on an R-MAT graph of the size of Reddit. Several libraries run in turn.
//
// usage: gpu_kernels --library NAME=FILE [--library ...] [--kinds NAME,...] [--widths N,...]
//                    [--nodes N] [--edges N] [--by-degree] [--rounds N] [--json FILE]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu_kernels/cases.h"
#include "bench/gpu_kernels/parallel.h"

namespace {

using namespace mezzo::bench::gpu;
using mezzo::DType;

struct Arguments {
  std::vector<std::string> libraries, kinds;
  std::vector<std::int64_t> widths;  ///< empty: those of each kind
  std::int64_t nodes = 232'965, edges = 114'615'892, rounds = 7;
  std::int64_t copy_bytes = std::int64_t{1} << 32;
  NodeOrder order = NodeOrder::kRandom;
  std::string json;
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--by-degree") {
      arguments.order = NodeOrder::kByDegree;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(flag + ": expected a value");
    const std::string value = argv[++i];
    if (flag == "--library") {
      arguments.libraries.push_back(value);
    } else if (flag == "--kinds") {
      arguments.kinds = words_of(value);
    } else if (flag == "--widths") {
      arguments.widths.clear();
      for (const std::string& word : words_of(value)) arguments.widths.push_back(std::stoll(word));
    } else if (flag == "--nodes") {
      arguments.nodes = std::stoll(value);
    } else if (flag == "--edges") {
      arguments.edges = std::stoll(value);
    } else if (flag == "--rounds") {
      arguments.rounds = std::stoll(value);
    } else if (flag == "--json") {
      arguments.json = value;
    } else {
      throw std::invalid_argument("expected an option, got '" + flag + "'");
    }
  }
  if (arguments.libraries.empty()) throw std::invalid_argument("expected --library NAME=FILE");
  // A small graph is one for the emulator, which copies slowly.
  arguments.copy_bytes = std::min(arguments.copy_bytes, 64 * arguments.edges);
  return arguments;
}

/// A row of the table.
struct Timing {
  std::string work, precision, library, failure;
  std::int64_t width = 0, moved_bytes = 0;
  std::vector<double> milliseconds;
  double error = 0;

  double minimum() const { return *std::min_element(milliseconds.begin(), milliseconds.end()); }
  double median() const {
    std::vector<double> sorted = milliseconds;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return sorted[sorted.size() / 2];
  }
};

std::string precision_of(DType dtype) {
  return dtype == DType::kFloat32 ? "fp32" : dtype == DType::kBFloat16 ? "bf16" : "fp16";
}

double epsilon_of(DType dtype) {
  double epsilon = 0;
  mezzo::detail::visit(mezzo::DTypes{}, dtype, [&]<class T>() { epsilon = T::epsilon; });
  return epsilon;
}

/// 256 rows at equal distances, and the longest one.
std::vector<std::int64_t> rows_to_check(const Rows& rows) {
  constexpr std::int64_t kRows = 256;
  const auto num_rows = static_cast<std::int64_t>(rows.indptr.size()) - 1;
  std::vector<std::int64_t> chosen;
  const std::int64_t stride = std::max<std::int64_t>(num_rows / kRows, 1);
  for (std::int64_t row = 0; row < num_rows; row += stride) chosen.push_back(row);
  std::int64_t longest = 0;
  const auto length = [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    return rows.indptr[at + 1] - rows.indptr[at];
  };
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (length(row) > length(longest)) longest = row;
  }
  chosen.push_back(longest);
  return chosen;
}

/// Largest difference over the size of the row, without the rounding of float16 below its range;
/// inf for NaN.
double error_of(const Numbers& result, const ExpectedRow& expected, DType stored) {
  const double rounding = stored == DType::kFloat16 ? 0x1p-25 : 0;
  double largest = expected.scale, difference = 0;
  for (std::size_t i = 0; i < expected.numbers.size(); ++i) {
    largest = std::max(largest, std::abs(expected.numbers[i]));
    const double apart = std::abs(result[i] - expected.numbers[i]) - rounding;
    difference = std::isnan(apart) ? HUGE_VAL : std::max(difference, apart);
  }
  return largest > 0 ? difference / largest : difference;
}

/// Rounded operands are exact; what is left are the roundings of results, of products in float32
/// and of sums of up to 2^20 terms in float32, which count as independent.
double allowed_error(DType stored) {
  return 2 * epsilon_of(stored) + 0x1p10 * epsilon_of(DType::kFloat32);
}

/// What the rows of each check must be.
using Expected = std::vector<std::vector<ExpectedRow>>;

Expected expected_of(const Case& one, const std::vector<std::int64_t>& rows) {
  Expected expected;
  for (const Check& check : one.checks) {
    if (check.before) check.before();
    std::vector<ExpectedRow>& all = expected.emplace_back(rows.size(), Numbers{});
    parallel_for(static_cast<std::int64_t>(rows.size()), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      all[at] = check.expected(rows[at]);
    });
  }
  return expected;
}

void check(const Case& one, const std::vector<std::int64_t>& rows, const Expected& expected,
           Timing& timing) {
  for (std::size_t number = 0; number < one.checks.size(); ++number) {
    const Check& check = one.checks[number];
    double error = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      error = std::max(error, error_of(check.result(rows[i]), expected[number][i], check.stored));
    }
    timing.error = std::max(timing.error, error);
    if (!(error <= allowed_error(check.stored))) {
      std::ostringstream text;
      text << "FAILED: wrong by " << error << " of the size of a row; rounding explains "
           << allowed_error(check.stored);
      timing.failure = text.str();
    }
  }
}

void print(const Timing& timing, const Bandwidth& bandwidth) {
  std::printf("%-42s %4d  %-4s %-28s ", timing.work.c_str(), static_cast<int>(timing.width),
              timing.precision.c_str(), timing.library.c_str());
  if (!timing.failure.empty()) {
    std::printf("%s\n", timing.failure.c_str());
  } else {
    const double rate = static_cast<double>(timing.moved_bytes) / (timing.minimum() * 1e-3);
    std::printf("%9.3f %9.3f ms  %5.0f GB/s %4.0f %% of a copy  error %.1e\n", timing.minimum(),
                timing.median(), rate * 1e-9, 100 * rate / bandwidth.copy, timing.error);
  }
  std::fflush(stdout);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// In the form of the reports of the other benches.
std::string json_of(const std::vector<Timing>& timings, const Bandwidth& bandwidth) {
  std::ostringstream out;
  out << "{\"device\": " << quoted(device_name()) << ", \"cache_bytes\": " << cache_bytes()
      << ", \"copy_bytes_per_second\": " << bandwidth.copy
      << ", \"cache_bytes_per_second\": " << bandwidth.cache << ",\n \"results\": [";
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const Timing& one = timings[i];
    out << (i > 0 ? "," : "") << "\n  {\"work\": " << quoted("kernel: " + one.work)
        << ", \"width\": " << one.width
        << ", \"candidates\": [{\"name\": " << quoted(one.precision + " " + one.library)
        << ", \"library\": " << quoted(one.library) << ", \"precision\": " << quoted(one.precision)
        << ", \"ours\": true, \"moved_bytes\": " << one.moved_bytes << ", \"peak_bytes\": 0";
    if (one.failure.empty()) {
      out << ", \"min_ms\": " << one.minimum() << ", \"median_ms\": " << one.median()
          << ", \"max_relative_error\": " << one.error << ", \"skipped\": null}]}";
    } else {
      out << ", \"min_ms\": null, \"median_ms\": null, \"skipped\": " << quoted(one.failure)
          << "}]}";
    }
  }
  out << "]}\n";
  return out.str();
}

/// Checks a case with each library, then times them in turn.
void measure(const Case& one, std::vector<Library>& libraries, const Arguments& arguments,
             const std::vector<std::int64_t>& rows, const Bandwidth& bandwidth,
             std::vector<Timing>& timings) {
  const std::size_t first = timings.size();
  Expected expected;  // after the first run, because some definitions begin from its results
  for (Library& library : libraries) {
    Timing& timing = timings.emplace_back();
    timing.work = one.work + (arguments.order == NodeOrder::kByDegree ? ", by degree" : "");
    timing.precision = precision_of(one.dtype);
    timing.library = library.name();
    timing.width = one.width;
    timing.moved_bytes = one.moved_bytes;
    for (DeviceArray* result : one.results) result->poison();
    try {
      one.run(library);
      if (expected.empty()) expected = expected_of(one, rows);
      check(one, rows, expected, timing);
    } catch (const std::exception& error) {
      timing.failure = std::string("FAILED: ") + error.what();
    }
  }
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      Timing& timing = timings[first + i];
      if (!timing.failure.empty()) continue;
      timing.milliseconds.push_back(elapsed_ms([&] { one.run(libraries[i]); }));
    }
  }
  for (std::size_t i = first; i < timings.size(); ++i) print(timings[i], bandwidth);
}

bool is_selected(const Arguments& arguments, const CaseKind& kind) {
  return arguments.kinds.empty() || std::find(arguments.kinds.begin(), arguments.kinds.end(),
                                              kind.name) != arguments.kinds.end();
}

int run(const Arguments& arguments) {
  std::vector<Library> libraries;
  for (const std::string& named : arguments.libraries) {
    const std::size_t split = named.find('=');
    if (split == std::string::npos) throw std::invalid_argument("--library: expected NAME=FILE");
    libraries.emplace_back(named.substr(0, split), named.substr(split + 1));
  }
  const Bandwidth bandwidth = measure_bandwidth(arguments.copy_bytes);
  std::printf("%s: copy %.0f GB/s, reading the L2 cache (%.0f MiB) %.0f GB/s\n",
              device_name().c_str(), bandwidth.copy * 1e-9,
              static_cast<double>(cache_bytes()) / 0x1p20, bandwidth.cache * 1e-9);
  const DeviceGraph graph(rmat_graph(arguments.nodes, arguments.edges, arguments.order));
  const std::vector<std::int64_t> rows = rows_to_check(graph.host.csc);
  std::vector<Timing> timings;
  for (const CaseKind& kind : case_kinds()) {
    if (!is_selected(arguments, kind)) continue;
    for (const std::int64_t width : arguments.widths.empty() ? kind.widths : arguments.widths) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        measure(kind.make(graph, dtype, width), libraries, arguments, rows, bandwidth, timings);
        if (arguments.json.empty()) continue;
        std::ofstream(arguments.json) << json_of(timings, bandwidth);  // also if time runs out
      }
    }
  }
  const auto failed = std::count_if(timings.begin(), timings.end(),
                                    [](const Timing& one) { return !one.failure.empty(); });
  std::printf("%d of %d cases failed\n", static_cast<int>(failed),
              static_cast<int>(timings.size()));
  return failed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "gpu_kernels: " << error.what() << std::endl;
    return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ? 2 : 1;
  }
}
