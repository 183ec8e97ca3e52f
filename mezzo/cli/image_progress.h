#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "mezzo/cli/progress.h"
#include "mezzo/train/image_trainer.h"

namespace mezzo::cli {

/// Shows how far a run on images is, as Progress does, batch by batch.
class ImageProgress {
 public:
  /// out outlives the object.
  ImageProgress(std::ostream& out, Progress::Style style);
  ~ImageProgress() { finish(); }
  ImageProgress(const ImageProgress&) = delete;
  ImageProgress& operator=(const ImageProgress&) = delete;

  /// kLines: prints at about every tenth of all batches, and after each evaluation.
  void show(const ImageStepRecord& record);
  /// Ends the bar's line. Further calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string facts(const ImageStepRecord& record) const;

  std::ostream& out_;
  Progress::Style style_;
  Clock::time_point shown_ = Clock::now();  // the latest call
  Clock::time_point drawn_;
  double training_seconds_ = 0;
  std::int64_t images_ = 0;  // in them
  std::int64_t last_tenth_ = -1;
  std::string scores_;  // of the latest evaluation
  bool open_ = false;   // a bar stands on the current line
};

}  // namespace mezzo::cli
