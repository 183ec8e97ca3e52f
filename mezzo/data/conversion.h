#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "mezzo/data/convert.h"
#include "mezzo/data/mapped/mapped_dataset.h"
#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/text_lines.h"

/// The steps of convert_dataset; internal.
namespace mezzo::data {

/// Thrown to stop a conversion from within a source.
struct ConversionStopped {};

/// Reports progress and checks whether to stop.
class Announcer {
 public:
  explicit Announcer(const ConvertOptions& options) : options_(options) {}

  void report(std::string_view stage, std::int64_t done, std::int64_t total) {
    last_ = {stage, done, total};
    if (options_.on_progress) options_.on_progress(last_);
    if (options_.should_stop && options_.should_stop()) throw ConversionStopped{};
  }

  /// Reports again after more lines, in stages that do not count lines.
  void report_lines() {
    if (last_.stage == kReading) last_.done += TextLines::kLinesPerCall;
    report(last_.stage, last_.done, last_.total);
  }

 private:
  static constexpr std::string_view kReading = "reading lines";

  const ConvertOptions& options_;
  ConvertProgress last_ = {.stage = kReading};
};

/// Writes a source into a folder, array by array, and checks that the result can be loaded. input:
/// its name for errors.
FolderManifest write_mapped_dataset(GraphSource& source, const std::filesystem::path& folder,
                                    const std::string& input, const ConvertOptions& options,
                                    Announcer& announcer);

}  // namespace mezzo::data
