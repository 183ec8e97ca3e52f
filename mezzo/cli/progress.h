#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "mezzo/train/trainer.h"

namespace mezzo::cli {

/// The last line of a terminal, which is written again in place.
class StatusRow {
 public:
  /// out: the terminal; outlives the object.
  explicit StatusRow(std::ostream& out) : out_(out) {}
  ~StatusRow() { finish(); }
  StatusRow(const StatusRow&) = delete;
  StatusRow& operator=(const StatusRow&) = delete;

  /// Replaces the row. A row that comes within 0.1 s of the last one waits for the next call, or
  /// for finish().
  void show(const std::string& row);
  /// Ends the line of the row, if there is one.
  void finish();
  /// Removes the row.
  void clear();

 private:
  void draw(const char* end);
  void set_open(bool open);

  std::ostream& out_;
  std::chrono::steady_clock::time_point drawn_;
  std::string latest_;
  bool open_ = false;
};

/// Shows the progress of a run: a bar (for terminals) with the latest scores, the rate and the time
/// left, or a plain line at about every tenth of the epochs, with the scores of that epoch if it
/// has any. With mini-batches, a bar for each epoch, and a plain line also after half a minute
/// without one.
class Progress {
 public:
  enum class Style : std::uint8_t { kBar, kLines };

  /// label: begins each line; may be empty. `out` must outlive the object.
  Progress(std::ostream& out, Style style, std::string label);

  void show(const EpochRecord& record);
  void show(const BatchRecord& record);
  /// Ends the bar's line. Further calls do nothing.
  void finish() { row_.finish(); }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const;
  /// "  12 s left" after `done` epochs with `left` more; empty if none is left.
  std::string time_left(double done, double left) const;
  std::string label() const { return label_.empty() ? "" : label_ + "  "; }
  /// Draws a bar of `done` of `all`. count: what is done, as text; rate: a second.
  void draw(std::int64_t done, std::int64_t all, const std::string& count, double rate, double loss,
            const std::string& left);
  void print(const std::string& text);

  std::ostream& out_;
  Style style_;
  std::string label_;
  StatusRow row_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point printed_ = start_;
  std::int64_t shown_ = 0;  // epochs of this run, without the epochs before a resume
  std::int64_t last_tenth_ = -1;
  std::optional<Scores> scores_;  // of the latest evaluation
  std::int64_t batches_ = 0;      // of an epoch; 0: on the full graph
};

/// Shows, while it lives, what is being done and for how long: on a terminal from 0.3 s on, in a
/// row that is removed at the end; elsewhere as one line after 5 s.
class Stage {
 public:
  explicit Stage(std::string text);

 private:
  void show(const std::stop_token& end);

  std::string text_;
  std::mutex mutex_;
  std::condition_variable_any end_;
  std::jthread thread_;
};

/// kBar if the standard error is a terminal that can move its cursor (TERM is set, and not `dumb`).
Progress::Style progress_style();

/// Columns of the standard error's terminal; if unknown, those of the variable COLUMNS, else 80.
std::size_t terminal_columns();

/// Ends the row that stands on the standard error, if any. Safe in a signal handler.
void end_open_row();

/// Blanks the row that stands on the standard error, if any, for other text in its place; the row
/// comes again with its next show().
void blank_open_row();

/// "12 s", "12 min" or "12 h"
std::string duration(double seconds);

/// "0.25", "3.1", "512", "48k" or "1.5M": a number of a few characters, for a rate.
std::string short_number(double value);

/// A bar of `done` of `all` between the label and the first of the texts that fits (the last one is
/// cut if none does), as wide as the columns allow, or none if it would be too short.
std::string bar_row(const std::string& label, std::int64_t done, std::int64_t all,
                    std::initializer_list<std::string> texts, std::size_t columns);

/// `line`, cut to columns - 1 code points so that no terminal wraps it.
std::string fit_row(std::string_view line, std::size_t columns);

}  // namespace mezzo::cli
