#include "mezzo/cli/progress.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mezzo/train/report/table.h"

namespace mezzo::cli {
namespace {

constexpr std::int64_t kBarWidth = 24;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(30);
constexpr auto kClearLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::ostream& out, Style style, std::string label)
    : out_(out), style_(style), label_(std::move(label)) {}

std::string Progress::facts(const EpochRecord& record) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double speed = seconds > 0 ? static_cast<double>(shown_) / seconds : 0;
  return fmt::format("{}/{}  loss {:.4f}{}  {:.1f} epochs/s", record.epoch, record.epochs,
                     record.loss, scores_, speed);
}

void Progress::show(const EpochRecord& record) {
  // The first record comes at the end of its epoch.
  const auto first_epoch = std::chrono::duration<double, std::milli>(record.epoch_ms);
  if (shown_++ == 0) {
    start_ = std::min(start_, Clock::now() - std::chrono::ceil<Clock::duration>(first_epoch));
  }
  if (record.scores) {
    scores_ = fmt::format("  train {}  val {}  test {}", format_score(record.scores->train),
                          format_score(record.scores->val), format_score(record.scores->test));
  }
  const bool last = record.epoch == record.epochs;
  if (style_ == Style::kLines) {
    const std::int64_t tenth = record.epoch * 10 / record.epochs;
    if (tenth == last_tenth_ && !last) return;
    last_tenth_ = tenth;
    print("epoch " + facts(record));
    return;
  }
  if (open_ && !last && Clock::now() - drawn_ < kBetweenDraws) return;
  if (by_batches_) {
    draw(1, 1, "epoch " + facts(record));
  } else {
    draw(record.epoch, record.epochs, facts(record));
  }
}

void Progress::show(const BatchRecord& record) {
  by_batches_ = true;
  const auto since = Clock::now() - drawn_;
  const bool lines = style_ == Style::kLines;
  if (lines ? since < kBetweenLines : open_ && since < kBetweenDraws) return;
  const std::string text =
      fmt::format("epoch {}/{}  batch {}/{}  loss {:.4f}{}", record.epoch, record.epochs,
                  record.batch, record.batches, record.loss, scores_);
  if (lines) {
    print(text);
  } else {
    draw(record.batch, record.batches, text);
  }
}

void Progress::draw(std::int64_t done, std::int64_t all, const std::string& text) {
  drawn_ = Clock::now();
  open_ = true;
  const auto filled = static_cast<std::size_t>(done * kBarWidth / all);
  const std::string line =
      fmt::format("{}[{}{}]  {}", label(), std::string(filled, '#'),
                  std::string(static_cast<std::size_t>(kBarWidth) - filled, '.'), text);
  out_ << kClearLine << fit_row(line, terminal_columns()) << std::flush;
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
