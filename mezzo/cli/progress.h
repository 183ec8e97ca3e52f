#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "mezzo/train/trainer.h"

namespace mezzo::cli {

/// Shows the progress of a run: a bar (for terminals) with the latest scores and the time left, or
/// a plain line at about every tenth of the epochs, with the scores of that epoch if it has any.
/// With mini-batches, a bar for each epoch, and a plain line also after half a minute without one.
class Progress {
 public:
  enum class Style : std::uint8_t { kBar, kLines };

  /// label: begins each line; may be empty. `out` must outlive the object.
  Progress(std::ostream& out, Style style, std::string label);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const EpochRecord& record);
  void show(const BatchRecord& record);
  /// Ends the bar's line. Further calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const;
  /// "  12 s left" after `done` epochs with `left` more; empty if none is left.
  std::string time_left(double done, double left) const;
  std::string label() const { return label_.empty() ? "" : label_ + "  "; }
  void draw(std::int64_t done, std::int64_t all, const std::string& text);
  void print(const std::string& text);

  std::ostream& out_;
  Style style_;
  std::string label_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  std::int64_t shown_ = 0;  // epochs of this run, without the epochs before a resume
  std::int64_t last_tenth_ = -1;
  std::string scores_;  // of the latest evaluation
  bool open_ = false;   // the current line has a bar
  bool by_batches_ = false;
};

/// kBar if the standard error is a terminal.
Progress::Style progress_style();

/// Columns of the standard error's terminal; 80 if unknown.
std::size_t terminal_columns();

/// A bar of `done` of `all` between the label and the text, as wide as the columns allow, or none
/// if it would be too short.
std::string bar_row(const std::string& label, std::int64_t done, std::int64_t all,
                    const std::string& text, std::size_t columns);

/// `line`, cut to columns - 1 code points so that no terminal wraps it.
std::string fit_row(std::string_view line, std::size_t columns);

}  // namespace mezzo::cli
