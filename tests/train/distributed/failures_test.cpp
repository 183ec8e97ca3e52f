#include "train/distributed/processes.h"

namespace mezzo::test::failures_test {
namespace {

TEST_F(DistributedTest, what_processes_cannot_train_is_an_error_on_all_of_them) {
  const auto refused = [&](const std::string& work, const std::string& fragment) {
    SCOPED_TRACE(work);
    for (const std::string& output : run_processes(folder, 2, work)) {
      EXPECT_NE(output.find("invalid: train: "), std::string::npos) << output;
      EXPECT_NE(output.find(fragment), std::string::npos) << output;
    }
  };
  refused("full-graph", "batch-size and fanout");
  refused("cluster", "samplers neighbor, labor and layer");
  refused("other-seed", "the options of rank 1 differ");
  refused("other-labels", "the labels of rank 1 differ");
  refused("other-masks", "the masks of rank 1 differ");
  refused("other-edges", "the edges of rank 1 differ");
  refused("other-weights", "the edge weights of rank 1 differ");
  refused("other-features", "the features of rank 1 differ");
  refused("other-cut", "the parts of the data are from different partitions");
}

TEST_F(DistributedTest, a_failure_of_process_0_is_the_same_error_on_all) {
  const auto expect_same = [&](const std::string& work, const std::string& kind,
                               const std::string& fragment) {
    SCOPED_TRACE(work);
    const std::vector<std::string> outputs = run_processes(folder, 3, work);
    EXPECT_TRUE(outputs[0].starts_with(kind)) << outputs[0];
    EXPECT_NE(outputs[0].find(fragment), std::string::npos) << outputs[0];
    for (const std::size_t process : {1U, 2U}) {
      EXPECT_EQ(outputs[process], kind + "rank 0: " + outputs[0].substr(kind.size()));
    }
  };
  expect_same("no-checkpoint", "io: ", folder.path("nothing"));
  expect_same("no-logits", "numeric: ", "not finite");
}

TEST_F(DistributedTest, a_failure_of_one_process_is_reported_by_the_others) {
  const std::vector<std::string> outputs = run_processes(folder, 3, "callback");
  EXPECT_EQ(outputs[1], "other: the user's own\nline");
  for (const std::size_t process : {0U, 2U}) {
    EXPECT_TRUE(outputs[process].starts_with("io: ")) << outputs[process];
    EXPECT_NE(outputs[process].find("rank 1: the user's own"), std::string::npos)
        << outputs[process];
    EXPECT_EQ(outputs[process].find("line"), std::string::npos) << outputs[process];
  }
}

TEST_F(DistributedTest, a_failed_batch_of_one_process_ends_all_with_its_reason) {
  const std::vector<std::string> outputs = run_processes(folder, 3, "no-batch");
  const std::string reason = "index out of range";
  EXPECT_TRUE(outputs[1].starts_with("other: " + reason)) << outputs[1];
  for (const std::size_t process : {0U, 2U}) {
    EXPECT_TRUE(outputs[process].starts_with("io: ")) << outputs[process];
    EXPECT_NE(outputs[process].find("rank 1: " + reason), std::string::npos) << outputs[process];
  }
}

}  // namespace
}  // namespace mezzo::test::failures_test
