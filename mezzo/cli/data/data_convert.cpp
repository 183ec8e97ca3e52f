#include "mezzo/cli/data/data_convert.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/data/convert.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

struct StoredFloat32 {
  static constexpr at::ScalarType kind = at::kFloat;
  static constexpr std::string_view name = "fp32";
  static constexpr std::string_view long_name = "float32";
};
struct StoredBFloat16 {
  static constexpr at::ScalarType kind = at::kBFloat16;
  static constexpr std::string_view name = "bf16";
  static constexpr std::string_view long_name = "bfloat16";
};
struct StoredFloat16 {
  static constexpr at::ScalarType kind = at::kHalf;
  static constexpr std::string_view name = "fp16";
  static constexpr std::string_view long_name = "float16";
};
using FeatureDtypes = TypeList<StoredFloat32, StoredBFloat16, StoredFloat16>;

/// Bytes of the process's own memory now: without pages of files, which the system can drop. 0
/// where the system does not tell.
std::int64_t own_memory_bytes() {
  constexpr std::int64_t kKilobyte = 1024;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "RssAnon:" && status >> kilobytes) return kilobytes * kKilobyte;
  }
  return 0;
}

/// Watches own_memory_bytes() every 10 ms while it lives: the system keeps no peak of it.
class MemoryWatch {
 public:
  /// The most so far.
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  static constexpr auto kBetweenLooks = std::chrono::milliseconds(10);

  void watch(const std::stop_token& end) {
    while (!end.stop_requested()) {
      peak_bytes_ = std::max(peak_bytes_.load(), own_memory_bytes());
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  std::atomic<std::int64_t> peak_bytes_ = own_memory_bytes();
  std::jthread thread_{[this](const std::stop_token& end) { watch(end); }};
};

/// Shows a conversion on a stream: a bar for each stage on terminals, else a line for each stage
/// that lasts some seconds.
class ConvertDisplay {
 public:
  /// out outlives the object.
  ConvertDisplay(std::ostream& out, Progress::Style style) : out_(out), style_(style), row_(out) {}

  void show(const ConvertProgress& progress) {
    const Clock::time_point now = Clock::now();
    if (progress.stage != stage_) {
      finish();
      stage_ = progress.stage;
      stage_begin_ = now;
      is_printed_ = false;
    }
    if (style_ == Progress::Style::kBar) {
      row_.show(row(progress, std::chrono::duration<double>(now - stage_begin_).count()));
    } else if (!is_printed_ && now - stage_begin_ >= kLongStage) {
      out_ << stage_ << std::endl;
      is_printed_ = true;
    }
  }

  /// Ends the bar's line. Further calls do nothing.
  void finish() { row_.finish(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLongStage = std::chrono::seconds(2);

  static std::string row(const ConvertProgress& progress, double seconds) {
    const auto done = static_cast<double>(progress.done),
               total = static_cast<double>(progress.total);
    const bool has_rate = done > 0 && seconds > 0;
    const std::string rate = has_rate ? fmt::format("  {}/s", short_number(done / seconds)) : "";
    if (progress.total <= 0) {
      const std::string text = fmt::format("{}  {}{}", progress.stage, progress.done, rate);
      return fit_row(text, terminal_columns());
    }
    const std::string left =
        has_rate && done < total
            ? fmt::format("  {} left", duration(seconds * (total - done) / done))
            : "";
    const std::string text =
        fmt::format("{}  {}/{}", progress.stage, progress.done, progress.total);
    return bar_row("", progress.done, progress.total, {text + rate + left, text + left, text},
                   terminal_columns());
  }

  std::ostream& out_;
  Progress::Style style_;
  StatusRow row_;
  Clock::time_point stage_begin_;
  std::string stage_;
  bool is_printed_ = false;  // the name of the stage, as a line
};

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string format_conversion(const ConvertReport& report, const std::string& output,
                              std::int64_t peak_bytes) {
  std::vector<std::vector<std::string>> rows = {{"file", "dtype", "shape", "size"}};
  std::int64_t bytes = 0;
  for (const ConvertReport::File& file : report.files) {
    rows.push_back({file.name, file.dtype, fmt::format("{}", fmt::join(file.shape, " x ")),
                    mebibytes(file.bytes)});
    bytes += file.bytes;
  }
  const std::string classes = report.num_classes > 0 ? fmt::format("{} classes", report.num_classes)
                                                     : std::string("no labels");
  const std::string memory =
      peak_bytes > 0 ? fmt::format(", peak memory {} beside the files", mebibytes(peak_bytes)) : "";
  return format_table(rows, 3) +
         fmt::format("{} in {}: {} nodes, {} edges, {} features, {}\n{} in {:.2f} s{}\n",
                     report.name, output, report.num_nodes, report.num_edges, report.num_features,
                     classes, mebibytes(bytes), report.seconds, memory);
}

std::string conversion_to_json(const ConvertReport& report, const std::string& output,
                               std::int64_t peak_bytes) {
  OrderedJson files = OrderedJson::array();
  for (const ConvertReport::File& file : report.files) {
    files.push_back(
        {{"file", file.name}, {"dtype", file.dtype}, {"shape", file.shape}, {"bytes", file.bytes}});
  }
  const OrderedJson object = {
      {"dataset", report.name},
      {"output", output},
      {"nodes", report.num_nodes},
      {"edges", report.num_edges},
      {"features", report.num_features},
      {"classes", report.num_classes},
      {"files", files},
      {"seconds", report.seconds},
      {"peak_memory_bytes", peak_bytes > 0 ? OrderedJson(peak_bytes) : OrderedJson(nullptr)}};
  return json_text(object);
}

}  // namespace

int convert_command(const Arguments& arguments) {
  std::string dataset, output, json;
  ConvertOptions options;
  OptionParser app(
      "Writes a data set as a folder of npy files, which is mapped to memory when it is used",
      "mezzo data convert");
  OptionGroup(app, "Data")
      .text("--dataset", dataset, "PATH|NAME",
            "A data set's file or folder, or a name of 'mezzo data list' (required)")
      .text("--split", options.split, "NAME",
            "Which of the splits that have names: *_mask_NAME.npy of an npy folder, a split "
            "type of OGB, a task of GraphBolt")
      .text("--output", output, "FOLDER", "The folder to make (required)")
      .flag("--symmetrize", options.symmetrize,
            "Add the reverse of every edge, for lists that give each undirected edge once; "
            "parallel edges become one")
      .flag("--overwrite", options.overwrite, "Replace a mapped dataset, and nothing else")
      .choice("--feature-dtype", FeatureDtypes{}, options.feature_dtype,
              "Dtype of the stored features")
      .flag("--normalize-features", options.normalize_features,
            "Divide each row of the features by the sum of its magnitudes");
  add_format_options(app, options.task, options.csv);
  add_report_options(app, json);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();

  MEZZO_CHECK(!dataset.empty(), "--dataset is required");
  MEZZO_CHECK(!output.empty(), "--output is required");
  if (!json.empty()) check_writable("--json", json);
  check_not_read("--json", json, data::origin_of(dataset));
  ConvertDisplay display(std::cerr, progress_style());
  options.on_progress = [&display](const ConvertProgress& progress) { display.show(progress); };
  options.should_stop = interrupted;
  handle_interrupts();
  const MemoryWatch memory;
  const ConvertReport report = convert_dataset(dataset, output, options);
  display.finish();
  if (report.stopped) return kInterrupted;

  std::cout << format_conversion(report, output, memory.peak_bytes()) << std::flush;
  if (!json.empty()) {
    replace_file(json, [&](std::ostream& file) {
      file << conversion_to_json(report, output, memory.peak_bytes());
    });
  }
  return kSuccess;
}

}  // namespace mezzo::cli
