#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"

namespace mezzo::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Expects the same weights bit for bit, after the last step and of the best epoch.
inline void expect_same_weights(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.best_epoch, b.best_epoch);
  ASSERT_EQ(a.names, b.names);
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(same_bits(a.weights[i], b.weights[i])) << a.names[i];
    EXPECT_TRUE(same_bits(a.best_weights[i], b.best_weights[i])) << a.names[i];
  }
}

/// Trains a run, its first part alone with `train_part`, and the rest from the part's checkpoint;
/// expects both to be equal bit for bit. The checkpoint of the unbroken run is `whole` in the
/// folder. Returns its report.
inline TrainReport expect_unbroken(const TempFolder& folder, const Dataset& data,
                                   TrainOptions options,
                                   const std::function<void(const TrainOptions&)>& train_part) {
  options.checkpoint = folder.path("whole");
  const TrainReport whole = train(data, options);
  options.checkpoint = folder.path("part");
  train_part(options);
  options.resume = folder.path("part");
  options.checkpoint = folder.path("resumed");
  const TrainReport resumed = train(data, options);
  EXPECT_EQ(resumed.losses, whole.losses);
  EXPECT_EQ(resumed.loss_scales, whole.loss_scales);
  EXPECT_EQ(resumed.epoch_ms.size(), whole.epoch_ms.size());
  EXPECT_EQ(resumed.evaluations.size(), whole.evaluations.size());
  EXPECT_EQ(resumed.best_epoch, whole.best_epoch);
  EXPECT_EQ(resumed.best.val, whole.best.val);
  EXPECT_EQ(resumed.steps, whole.steps);
  EXPECT_EQ(resumed.skipped_steps, whole.skipped_steps);
  EXPECT_EQ(resumed.final_loss_scale, whole.final_loss_scale);
  expect_same_weights(read_checkpoint(folder.path("whole")),
                      read_checkpoint(folder.path("resumed")));
  return whole;
}

/// The same with a first part of that many epochs.
inline TrainReport expect_unbroken(const TempFolder& folder, const Dataset& data,
                                   const TrainOptions& options, std::int64_t first_epochs) {
  return expect_unbroken(folder, data, options, [&](TrainOptions part) {
    part.epochs = first_epochs;
    train(data, part);
  });
}

}  // namespace mezzo::test
