#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/runtime/memory.h"

#include "amp/diagnose/one_thread.h"
#include "support/errors.h"

namespace mezzo::test {
namespace {

using amp::largest_batches;
using amp::LargestBatch;

class LargestBatches : public OneThread {};

/// A model that needs most of its memory for activations: 1024 numbers a sample.
struct WideJob {
  at::Tensor loss(std::int64_t batch_size) {
    return model(at::ones({batch_size, 4})).relu().to(at::kFloat).mean();
  }
  std::vector<LargestBatch> run(std::int64_t extra_bytes, std::int64_t max_batch_size = 4096) {
    return largest_batches([this](std::int64_t size) { return loss(size); }, model,
                           {.memory_limit_bytes = current_memory_bytes(at::kCPU) + extra_bytes,
                            .max_batch_size = max_batch_size});
  }

  torch::nn::Linear model{4, 1024};
};

TEST_F(LargestBatches, one_more_sample_does_not_fit) {
  constexpr std::int64_t kMiB = 1 << 20;
  WideJob job;
  const std::vector<LargestBatch> found = job.run(2 * kMiB);
  ASSERT_EQ(found.size(), 3U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t size = found[i].batch_size;
    EXPECT_GT(size, 32) << to_string(found[i].precision);
    EXPECT_LT(size, 4096) << to_string(found[i].precision);
    EXPECT_GT(found[i].samples_per_second, 0);
    // If the memory is enough, the largest allowed size is found; it takes more.
    const LargestBatch next = job.run(1024 * kMiB, size + 1)[i];
    EXPECT_EQ(next.batch_size, size + 1);
    EXPECT_GT(next.peak_memory_bytes, found[i].peak_memory_bytes);
    EXPECT_EQ(job.run(2 * kMiB, size + 1)[i].batch_size, size);
  }
}

TEST_F(LargestBatches, nothing_fits_into_one_byte) {
  for (const LargestBatch& each : WideJob().run(1)) {
    EXPECT_EQ(each.batch_size, 0);
    EXPECT_EQ(each.samples_per_second, 0);
  }
}

TEST_F(LargestBatches, limits_may_be_the_largest_numbers) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t largest : {1, 100, 128}) {
    WideJob job;
    const auto loss = [&](std::int64_t size) {
      TORCH_CHECK_WITH(OutOfMemoryError, size <= largest, "CUDA out of memory");
      return job.loss(size);
    };
    for (const LargestBatch& each :
         largest_batches(loss, job.model, {.memory_limit_bytes = kMost, .max_batch_size = kMost})) {
      EXPECT_EQ(each.batch_size, largest);
    }
  }
  // If every size fits, the search ends at the limit.
  std::int64_t most = 0;
  WideJob job;
  const auto loss = [&](std::int64_t size) {
    most = std::max(most, size);
    return job.loss(1);
  };
  EXPECT_EQ(
      largest_batches(loss, job.model, {.memory_limit_bytes = kMost, .max_batch_size = kMost})[0]
          .batch_size,
      kMost);
  EXPECT_EQ(most, kMost);
}

TEST_F(LargestBatches, arguments_are_checked) {
  WideJob job;
  EXPECT_THROWS(InvalidArgument, "max_batch_size", job.run(1, 0));
  EXPECT_THROWS(InvalidArgument, "loss of a batch",
                largest_batches({}, job.model, {.memory_limit_bytes = 1}));
  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { largest_batches([&](std::int64_t size) { return job.loss(size); }, job.model, {}); },
      {"memory_limit_bytes"}));
}

}  // namespace
}  // namespace mezzo::test
