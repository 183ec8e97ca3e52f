#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "mezzo/train/trainer.h"

namespace mezzo::cli {

/// Shows how far a run is, on one stream: a bar that is drawn over itself, for terminals, or a
/// plain line at about every tenth of the epochs.
class Progress {
 public:
  enum class Style : std::uint8_t { kBar, kLines };

  /// label: begins each line; may be empty. out outlives the object.
  Progress(std::ostream& out, Style style, std::string label);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const EpochRecord& record);
  /// Ends the bar's line. Further calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string facts(const EpochRecord& record) const;

  std::ostream& out_;
  Style style_;
  std::string label_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
  std::int64_t shown_ = 0;  // epochs of this run, without those of a resumed one
  std::int64_t last_tenth_ = -1;
  std::string scores_;  // of the latest evaluation
  bool open_ = false;   // a bar stands on the current line
};

/// kBar where the standard error is a terminal.
Progress::Style progress_style();

}  // namespace mezzo::cli
