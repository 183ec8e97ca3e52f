#include "mezzo/cli/image_progress.h"

#include <ostream>

#include <fmt/format.h>

#include "mezzo/train/table.h"

namespace mezzo::cli {
namespace {

constexpr std::int64_t kBarWidth = 24;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr auto kClearLine = "\r\x1b[K";

}  // namespace

ImageProgress::ImageProgress(std::ostream& out, Progress::Style style) : out_(out), style_(style) {}

std::string ImageProgress::facts(const ImageStepRecord& record) const {
  const double speed = training_seconds_ > 0 ? static_cast<double>(images_) / training_seconds_ : 0;
  return fmt::format("epoch {}/{}  batch {}/{}  loss {:.4f}{}  {:.0f} images/s", record.epoch,
                     record.epochs, record.batch, record.batches, record.loss, scores_, speed);
}

void ImageProgress::show(const ImageStepRecord& record) {
  const Clock::time_point now = Clock::now();
  if (record.scores) {
    scores_ = fmt::format("  train {}  test {}", format_score(record.scores->train),
                          format_score(record.scores->test));
  } else {
    training_seconds_ += std::chrono::duration<double>(now - shown_).count();
    images_ += record.images;
  }
  shown_ = now;

  const std::int64_t done = (record.epoch - 1) * record.batches + record.batch;
  const std::int64_t all = record.epochs * record.batches;
  if (style_ == Progress::Style::kLines) {
    const std::int64_t tenth = done * 10 / all;
    if (tenth == last_tenth_ && !record.scores) return;
    last_tenth_ = tenth;
    out_ << facts(record) << std::endl;
    return;
  }
  if (open_ && !record.scores && now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  open_ = true;
  const auto filled = static_cast<std::size_t>(done * kBarWidth / all);
  const std::string line =
      fmt::format("[{}{}]  {}", std::string(filled, '#'),
                  std::string(static_cast<std::size_t>(kBarWidth) - filled, '.'), facts(record));
  out_ << kClearLine << fit_row(line, terminal_columns()) << std::flush;
}

void ImageProgress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

}  // namespace mezzo::cli
