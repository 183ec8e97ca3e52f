#include "mezzo/cli/progress.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mezzo/core/table.h"

namespace mezzo::cli {
namespace {

constexpr std::size_t kBarWidth = 24, kLeastBarWidth = 4;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(30);
constexpr auto kClearLine = "\r\x1b[K";
constexpr const char* kNoScores = "  train -  val -  test -";

std::string scores_text(const Scores& scores) {
  return fmt::format("  train {}  val {}  test {}", format_score(scores.train),
                     format_score(scores.val), format_score(scores.test));
}

/// "12 s", "12 min" or "12 h"
std::string duration(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kMost = 100;
  if (seconds < kMost) return fmt::format("{:.0f} s", seconds);
  if (seconds < kMost * kMinute) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.0f} h", seconds / kHour);
}

}  // namespace

Progress::Progress(std::ostream& out, Style style, std::string label)
    : out_(out), style_(style), label_(std::move(label)) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::string Progress::time_left(double done, double left) const {
  return left > 0 && done > 0 ? fmt::format("  {} left", duration(seconds() * left / done)) : "";
}

void Progress::show(const EpochRecord& record) {
  // The first record comes at the end of its epoch.
  const auto first_epoch = std::chrono::duration<double, std::milli>(record.epoch_ms);
  if (shown_++ == 0) {
    start_ = std::min(start_, Clock::now() - std::chrono::ceil<Clock::duration>(first_epoch));
  }
  if (record.scores) scores_ = scores_text(*record.scores);
  const auto facts = [&](const std::string& scores, const std::string& speed) {
    return fmt::format(
        "{}/{}  loss {:.4f}{}{}{}", record.epoch, record.epochs, record.loss, scores, speed,
        time_left(static_cast<double>(shown_), static_cast<double>(record.epochs - record.epoch)));
  };
  const bool last = record.epoch == record.epochs;
  if (style_ == Style::kLines) {
    const std::int64_t tenth = record.epoch * 10 / record.epochs;
    if (tenth == last_tenth_ && !last) return;
    last_tenth_ = tenth;
    const double passed = seconds();
    const double speed = passed > 0 ? static_cast<double>(shown_) / passed : 0;
    print("epoch " +
          facts(record.scores ? scores_ : kNoScores, fmt::format("  {:.1f} epochs/s", speed)));
    return;
  }
  if (open_ && !last && Clock::now() - drawn_ < kBetweenDraws) return;
  if (by_batches_) {
    draw(1, 1, "epoch " + facts(scores_, ""));
  } else {
    draw(record.epoch, record.epochs, facts(scores_, ""));
  }
}

void Progress::show(const BatchRecord& record) {
  by_batches_ = true;
  const auto since = Clock::now() - drawn_;
  const bool lines = style_ == Style::kLines;
  if (lines ? since < kBetweenLines : open_ && since < kBetweenDraws) return;
  const double part = static_cast<double>(record.batch) / static_cast<double>(record.batches);
  const std::string text =
      fmt::format("epoch {}/{}  batch {}/{}  loss {:.4f}{}{}", record.epoch, record.epochs,
                  record.batch, record.batches, record.loss, lines ? "" : scores_,
                  time_left(static_cast<double>(shown_) + part,
                            static_cast<double>(record.epochs - record.epoch) + 1 - part));
  if (lines) {
    print(text);
  } else {
    draw(record.batch, record.batches, text);
  }
}

void Progress::draw(std::int64_t done, std::int64_t all, const std::string& text) {
  drawn_ = Clock::now();
  open_ = true;
  out_ << kClearLine << bar_row(label(), done, all, text, terminal_columns()) << std::flush;
}

void Progress::print(const std::string& text) {
  drawn_ = Clock::now();
  out_ << label() << text << std::endl;
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

Progress::Style progress_style() {
  return ::isatty(STDERR_FILENO) != 0 ? Progress::Style::kBar : Progress::Style::kLines;
}

std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;
  struct ::winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

std::string bar_row(const std::string& label, std::int64_t done, std::int64_t all,
                    const std::string& text, std::size_t columns) {
  constexpr std::size_t kAround = 5;  // brackets, blanks and the last column
  const std::size_t taken = label.size() + text.size() + kAround;
  const std::size_t width = std::min(columns - std::min(columns, taken), kBarWidth);
  if (width < kLeastBarWidth) return fit_row(label + text, columns);
  const std::size_t filled = width * static_cast<std::size_t>(done) / static_cast<std::size_t>(all);
  return fmt::format("{}[{}{}]  {}", label, std::string(filled, '#'),
                     std::string(width - filled, '.'), text);
}

std::string fit_row(std::string_view line, std::size_t columns) {
  std::size_t end = 0, taken = 0;
  while (end < line.size()) {
    const bool begins = (static_cast<unsigned char>(line[end]) & 0xC0U) != 0x80U;
    if (begins && ++taken >= columns) break;
    ++end;
  }
  return std::string(line.substr(0, end));
}

}  // namespace mezzo::cli
