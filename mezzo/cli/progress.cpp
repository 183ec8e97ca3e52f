#include "mezzo/cli/progress.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "mezzo/train/table.h"

namespace mezzo::cli {
namespace {

constexpr std::int64_t kBarWidth = 24;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
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
  // Who begins with the first record has its epoch behind it already.
  const auto first_epoch = std::chrono::duration<double, std::milli>(record.epoch_ms);
  if (shown_++ == 0) {
    start_ = std::min(start_, Clock::now() - std::chrono::ceil<Clock::duration>(first_epoch));
  }
  if (record.scores) {
    scores_ = fmt::format("  train {}  val {}  test {}", format_score(record.scores->train),
                          format_score(record.scores->val), format_score(record.scores->test));
  }
  const bool last = record.epoch == record.epochs;
  const std::string label = label_.empty() ? "" : label_ + "  ";
  if (style_ == Style::kLines) {
    const std::int64_t tenth = record.epoch * 10 / record.epochs;
    if (tenth == last_tenth_ && !last) return;
    last_tenth_ = tenth;
    out_ << label << "epoch " << facts(record) << std::endl;
    return;
  }
  const Clock::time_point now = Clock::now();
  if (open_ && !last && now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  open_ = true;
  const auto filled = static_cast<std::size_t>(record.epoch * kBarWidth / record.epochs);
  out_ << kClearLine << label << '[' << std::string(filled, '#')
       << std::string(static_cast<std::size_t>(kBarWidth) - filled, '.') << "]  " << facts(record)
       << std::flush;
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

Progress::Style progress_style() {
  return ::isatty(STDERR_FILENO) != 0 ? Progress::Style::kBar : Progress::Style::kLines;
}

}  // namespace mezzo::cli
