#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trainer.h"

#include "train/checkpoints.h"
#include "train/distributed/process_work.h"
#include "train/distributed/processes.h"

namespace mezzo::test::stop_and_resume_test {
namespace {

TEST(Distributed, a_run_that_one_process_stopped_in_an_epoch_equals_an_unbroken_one) {
  for (const std::string kind : {"", kNormalized, kOfLinks}) {
    SCOPED_TRACE(kind);
    const TempFolder folder;
    const std::vector<std::string> whole = run_processes(folder, 2, "whole" + kind);
    EXPECT_EQ(whole[0], whole[1]);
    EXPECT_NE(whole[0].find("steps 9 "), std::string::npos) << whole[0];
    const Checkpoint unbroken = read_checkpoint(folder.path("checkpoint"));

    const std::vector<std::string> part = run_processes(folder, 2, "part" + kind);
    EXPECT_NE(part[0].find("steps 4 skipped 0 epochs 1 world 2"), std::string::npos) << part[0];
    EXPECT_EQ(part[0], part[1]);
    const std::vector<std::string> resumed = run_processes(folder, 2, "resumed" + kind);
    EXPECT_EQ(resumed, whole);
    expect_same_weights(read_checkpoint(folder.path("checkpoint")), unbroken);
  }
}

TEST_F(DistributedTest, another_number_of_processes_starts_the_epoch_again) {
  run_processes(folder, 2, "part");  // 4 steps: an epoch of 3, and one
  const std::vector<std::string> three = run_processes(folder, 3, "resumed");
  // 7 nodes of 20 for each: 2 batches in each of the two epochs that are left.
  EXPECT_NE(three[0].find("steps 8 skipped 0 epochs 3 world 3"), std::string::npos) << three[0];
  EXPECT_EQ(three[0], three[2]);

  run_processes(folder, 2, "part");
  TrainOptions options = random_options();
  options.resume = folder.path("checkpoint");
  const TrainReport alone = train(two_rings(), options);
  EXPECT_EQ(alone.steps, 4 + 2 * 5);
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_GT(alone.communication_seconds, 0);  // of the epochs before
}

}  // namespace
}  // namespace mezzo::test::stop_and_resume_test
