#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"

#include "amp/diagnose/one_thread.h"
#include "amp/errors.h"

namespace mezzo::test {
namespace {

using amp::largest_batches;
using amp::LargestBatch;

class LargestBatches : public OneThread {};

/// A model whose activations, 1024 numbers a sample, take most of the memory.
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
    // With enough memory the next size is the largest that is allowed, and takes more.
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

TEST_F(LargestBatches, arguments_are_checked) {
  WideJob job;
  EXPECT_TRUE(throws_with<InvalidArgument>("max_batch_size", [&] { job.run(1, 0); }));
  EXPECT_TRUE(throws_with<InvalidArgument>(
      "loss of a batch", [&] { largest_batches({}, job.model, {.memory_limit_bytes = 1}); }));
  EXPECT_TRUE(throws_with<InvalidArgument>("memory_limit_bytes", [&] {
    largest_batches([&](std::int64_t size) { return job.loss(size); }, job.model, {});
  }));
}

}  // namespace
}  // namespace mezzo::test
