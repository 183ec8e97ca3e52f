#include "mezzo/cli/progress.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
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
constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr const char* kClearRest = "\x1b[K";
constexpr const char* kNoScores = "  train -  val -  test -";

/// Whether a progress row is on the standard error.
std::atomic<bool> is_row_open = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

/// Writes past the stream's lock and state, as signal handlers have to.
void write_to_terminal(std::string_view text) {
  static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()) == 0);
}

std::string scores_text(const Scores& scores) {
  return fmt::format("  train {}  val {}  test {}", format_score(scores.train),
                     format_score(scores.val), format_score(scores.test));
}

}  // namespace

void StatusRow::show(const std::string& row) {
  latest_ = row;
  const auto now = std::chrono::steady_clock::now();
  if (open_ && now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  set_open(true);
  draw("");
}

void StatusRow::draw(const char* end) {
  out_ << "\r" + latest_ + kClearRest + end << std::flush;  // in one piece, else it flickers
}

void StatusRow::finish() {
  if (open_) draw("\n");  // again, for what came late, and over the ^C of a terminal
  set_open(false);
}

void StatusRow::clear() {
  if (open_) out_ << kClearLine << std::flush;
  set_open(false);
}

void StatusRow::set_open(bool open) {
  open_ = open;
  if (&out_ == &std::cerr) is_row_open = open;
}

Progress::Progress(std::ostream& out, Style style, std::string label)
    : out_(out), style_(style), label_(std::move(label)), row_(out) {}

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
  if (record.scores) scores_ = record.scores;
  const auto done = static_cast<double>(shown_);
  const std::string left = time_left(done, static_cast<double>(record.epochs - record.epoch));
  const double rate = done / seconds();
  const std::string count = fmt::format("{}/{}", record.epoch, record.epochs);
  if (style_ == Style::kLines) {
    const std::int64_t tenth = record.epoch * 10 / record.epochs;
    if (tenth == last_tenth_ && record.epoch != record.epochs) return;
    last_tenth_ = tenth;
    print(fmt::format("epoch {}  loss {:.4f}{}  {} epochs/s{}", count, record.loss,
                      record.scores ? scores_text(*record.scores) : kNoScores, short_number(rate),
                      left));
  } else if (batches_ > 0) {
    draw(1, 1, fmt::format("epoch {}  batch {}/{}", count, batches_, batches_),
         rate * static_cast<double>(batches_), record.loss, left);
  } else {
    draw(record.epoch, record.epochs, count, rate, record.loss, left);
  }
}

void Progress::show(const BatchRecord& record) {
  batches_ = record.batches;
  const auto batches = static_cast<double>(record.batches);
  const double part = static_cast<double>(record.batch) / batches;
  const double done = static_cast<double>(shown_) + part;
  const double rate = done * batches / seconds();
  const std::string left =
      time_left(done, static_cast<double>(record.epochs - record.epoch) + 1 - part);
  const std::string count = fmt::format("epoch {}/{}  batch {}/{}", record.epoch, record.epochs,
                                        record.batch, record.batches);
  if (style_ == Style::kBar) {
    draw(record.batch, record.batches, count, rate, record.loss, left);
  } else if (Clock::now() - printed_ >= kBetweenLines) {
    print(fmt::format("{}  loss {:.4f}  {} batches/s{}", count, record.loss, short_number(rate),
                      left));
  }
}

void Progress::draw(std::int64_t done, std::int64_t all, const std::string& count, double rate,
                    double loss, const std::string& left) {
  const std::string begin = fmt::format("{}  {}/s", count, short_number(rate));
  const std::string facts = fmt::format("{}  loss {:.4f}", begin, loss);
  const std::string scores = scores_ ? scores_text(*scores_) : "";
  const std::string val = scores_ ? "  val " + format_score(scores_->val) : "";
  row_.show(
      bar_row(label(), done, all,
              {facts + scores + left, facts + val + left, facts + left, begin + left, count + left},
              terminal_columns()));
}

void Progress::print(const std::string& text) {
  printed_ = Clock::now();
  out_ << label() + text + '\n' << std::flush;
}

Stage::Stage(std::string text)
    : text_(std::move(text)), thread_([this](const std::stop_token& end) { show(end); }) {}

void Stage::show(const std::stop_token& end) {
  using std::chrono::seconds;
  constexpr auto kBeforeRow = std::chrono::milliseconds(300);
  constexpr auto kBeforeLine = seconds(5);
  std::unique_lock lock(mutex_);
  const auto ends_within = [&](auto time) {
    end_.wait_for(lock, end, time, [] { return false; });
    return end.stop_requested();
  };
  if (progress_style() == Progress::Style::kLines) {
    if (!ends_within(kBeforeLine)) std::cerr << text_ + '\n' << std::flush;
    return;
  }
  StatusRow row(std::cerr);
  std::int64_t passed = 0;
  for (bool is_over = ends_within(kBeforeRow); !is_over; is_over = ends_within(seconds(1))) {
    const std::string time = passed > 0 ? "  " + duration(static_cast<double>(passed)) : "";
    row.show(fit_row(text_ + time, terminal_columns()));
    ++passed;
  }
  row.clear();
}

Progress::Style progress_style() {
  const char* term = std::getenv("TERM");
  const bool can_move = term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
  return can_move && ::isatty(STDERR_FILENO) != 0 ? Progress::Style::kBar : Progress::Style::kLines;
}

std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;
  struct ::winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* variable = std::getenv("COLUMNS");
  const std::string_view text = variable != nullptr ? variable : "";
  std::size_t columns = 0;
  std::from_chars(text.data(), text.data() + text.size(), columns);
  return columns > 0 ? columns : kUsual;
}

void end_open_row() {
  if (is_row_open.exchange(false)) write_to_terminal("\n");
}

void blank_open_row() {
  if (is_row_open.load()) write_to_terminal(kClearLine);
}

std::string duration(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kMost = 100;
  if (seconds < kMost) return fmt::format("{:.0f} s", seconds);
  if (seconds < kMost * kMinute) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.0f} h", seconds / kHour);
}

std::string short_number(double value) {
  constexpr double kThousand = 1e3, kMillion = 1e6, kDigits = 10;
  if (value < 1) return fmt::format("{:.2g}", value);
  if (value < kDigits * kDigits) return fmt::format("{:.1f}", value);
  if (value < kDigits * kThousand) return fmt::format("{:.0f}", value);
  if (value < kMillion) return fmt::format("{:.0f}k", value / kThousand);
  return fmt::format("{:.1f}M", value / kMillion);
}

std::string bar_row(const std::string& label, std::int64_t done, std::int64_t all,
                    std::initializer_list<std::string> texts, std::size_t columns) {
  constexpr std::size_t kAround = 5;  // brackets, blanks and the last column
  const auto* const text = std::find_if(texts.begin(), texts.end() - 1, [&](const auto& candidate) {
    return label.size() + candidate.size() < columns;
  });
  const std::size_t taken = label.size() + text->size() + kAround;
  const std::size_t width = std::min(columns - std::min(columns, taken), kBarWidth);
  if (width < kLeastBarWidth) return fit_row(label + *text, columns);
  const std::size_t filled = width * static_cast<std::size_t>(done) / static_cast<std::size_t>(all);
  return fmt::format("{}[{}{}]  {}", label, std::string(filled, '#'),
                     std::string(width - filled, '.'), *text);
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
