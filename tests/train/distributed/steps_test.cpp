#include "mezzo/train/files/checkpoint.h"

#include "train/checkpoints.h"
#include "train/distributed/processes.h"

namespace mezzo::test::steps_test {
namespace {

TEST_F(DistributedTest, all_processes_skip_the_same_steps) {
  const std::vector<std::string> outputs = run_processes(folder, 2, "overflow");
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0].find("steps 9 "), std::string::npos) << outputs[0];
  EXPECT_EQ(outputs[0].find("skipped 0 "), std::string::npos) << outputs[0];
  EXPECT_EQ(outputs[0].find("skipped 9 "), std::string::npos) << outputs[0];
}

TEST_F(DistributedTest, the_wait_for_a_late_process_is_no_communication) {
  for (const std::string& output : run_processes(folder, 2, "late")) {
    EXPECT_TRUE(output.starts_with("losses ")) << output;
  }
}

TEST_F(DistributedTest, process_0_evaluates_with_the_threads_of_all_and_trains_with_its_own) {
  for (const std::string& output : run_processes(folder, 3, "threads")) {
    EXPECT_TRUE(output.starts_with("losses ")) << output;
  }
}

/// Batches are prepared while gradients travel, by the process itself or by its workers.
TEST_F(DistributedTest, the_workers_change_nothing_in_several_processes) {
  const std::vector<std::string> none = run_processes(folder, 2, "workers-0");
  EXPECT_EQ(none[0], none[1]);
  EXPECT_NE(none[0].find("steps 9 "), std::string::npos) << none[0];
  const Checkpoint expected = read_checkpoint(folder.path("checkpoint"));
  for (const int workers : {1, 2}) {
    SCOPED_TRACE(workers);
    EXPECT_EQ(run_processes(folder, 2, fmt::format("workers-{}", workers)), none);
    expect_same_weights(read_checkpoint(folder.path("checkpoint")), expected);
  }
}

}  // namespace
}  // namespace mezzo::test::steps_test
