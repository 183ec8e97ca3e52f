#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trainer.h"

#include "support/tensors.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/distributed/process_work.h"
#include "train/distributed/processes.h"

namespace mezzo::test::joined_batch_test {
namespace {

/// How far the weights of two runs of joined_options() may be apart. A gradient is at most about 1;
/// each step rounds its sums over nodes, edges and hidden units and, in 16 bits, also the tensors
/// between the layers, forward and backward.
SumBound joined_bound(const at::Tensor& weight, amp::Precision precision,
                      std::int64_t rows = kJoinedNodes) {
  constexpr double kEdges = 3, kHidden = 8, kStored = 4;
  const double way = kJoinedRate * static_cast<double>(kJoinedEpochs);
  SumBound bound = sum_bound(weight.abs().to(at::kDouble) + way,
                             static_cast<double>(rows) * kEdges * kHidden, at::kFloat);
  if (is_low(precision)) {
    const bool half = precision == amp::Precision::kFloat16;
    bound.operand_epsilon = kStored * info(half ? at::kHalf : at::kBFloat16).epsilon;
  }
  return bound;
}

void expect_joined(const Checkpoint& several, const Checkpoint& one, amp::Precision precision,
                   std::int64_t rows = kJoinedNodes) {
  ASSERT_EQ(one.names, several.names);
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(near(several.weights[i], one.weights[i].to(at::kDouble),
                     joined_bound(one.weights[i], precision, rows)))
        << one.names[i];
  }
}

TEST(Distributed, two_and_four_processes_equal_one_on_the_joined_batch) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    const std::string word(amp::to_string(precision));
    const TempFolder folder;
    TrainOptions options = joined_options(precision, kJoinedNodes);
    options.checkpoint = folder.path("alone");
    const TrainReport alone = train(two_rings(), options);
    const Checkpoint one = read_checkpoint(options.checkpoint);
    for (const int processes : {2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} processes", word, processes));
      const std::vector<std::string> outputs = run_processes(folder, processes, "joined-" + word);
      for (const std::string& each : outputs) EXPECT_EQ(each, outputs[0]);
      const std::string end = fmt::format("steps {} skipped {} epochs {} world {}", alone.steps,
                                          alone.skipped_steps, alone.epochs_run, processes);
      EXPECT_NE(outputs[0].find(end), std::string::npos) << outputs[0] << '\n' << summary_of(alone);
      expect_joined(read_checkpoint(folder.path("checkpoint")), one, precision);
    }
  }
}

TEST_F(DistributedTest, a_model_of_the_program_begins_with_the_weights_of_process_0) {
  const auto check = [&](const char* work, const char* own_work) {
    const std::vector<std::string> expected_report = run_processes(folder, 2, work);
    const Checkpoint expected = read_checkpoint(folder.path("checkpoint"));
    EXPECT_EQ(run_processes(folder, 2, own_work), expected_report);
    expect_same_weights(read_checkpoint(folder.path("checkpoint")), expected);
  };
  check("joined-fp32", "own");
  check("edges", "own-edges");
}

TEST_F(DistributedTest, several_labels_a_node_are_learnt_as_on_the_joined_batch) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, kJoinedNodes);
  options.checkpoint = folder.path("alone");
  train(labelled_rings(), options);
  const std::vector<std::string> outputs = run_processes(folder, 2, "several-labels");
  EXPECT_EQ(outputs[0], outputs[1]);
  expect_joined(read_checkpoint(folder.path("checkpoint")), read_checkpoint(options.checkpoint),
                amp::Precision::kFloat32);
}

TEST_F(DistributedTest, labels_of_edges_graphs_and_links_are_learnt_as_on_the_joined_batch) {
  const auto check = [&](const Dataset& data, std::int64_t rows) {
    SCOPED_TRACE(data.name);
    TrainOptions options = joined_options(data, rows);
    options.checkpoint = folder.path("alone");
    const TrainReport alone = train(data, options);
    const std::vector<std::string> outputs = run_processes(folder, 2, data.name);
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_NE(outputs[0].find(fmt::format("steps {} skipped 0", alone.steps)), std::string::npos)
        << outputs[0];
    expect_joined(read_checkpoint(folder.path("checkpoint")), read_checkpoint(options.checkpoint),
                  amp::Precision::kFloat32, rows);
  };
  check(edges_with_labels(LabelKind::kClass), kTrainingEdges);
  check(graphs_with_labels(LabelKind::kClass), kTrainingGraphs);
  check(links_with_negatives(), kTrainingPairs);
}

TEST_F(DistributedTest, batch_normalization_is_that_of_the_joined_batch) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, kJoinedNodes);
  options.normalization = nn::Normalization::kBatch;
  options.checkpoint = folder.path("alone");
  train(node_pairs(), options);
  const Checkpoint one = read_checkpoint(options.checkpoint);
  for (const int processes : {2, 4}) {
    SCOPED_TRACE(fmt::format("{} processes", processes));
    const std::string work = std::string("joined-fp32") + kNormalized;
    const std::vector<std::string> outputs = run_processes(folder, processes, work);
    for (const std::string& each : outputs) EXPECT_EQ(each, outputs[0]);
    expect_joined(read_checkpoint(folder.path("checkpoint")), one, amp::Precision::kFloat32);
  }
  // One process goes on where four stopped.
  options.resume = folder.path("checkpoint");
  options.sampling->batch_size = kJoinedNodes / 4;
  options.epochs = kJoinedEpochs + 1;
  EXPECT_EQ(train(node_pairs(), options).steps, kJoinedEpochs + 4);
}

/// Each step rounds a gradient of at most about 1 by the number of processes * 2^-8 of the sum of
/// absolute values, and the weights that it leads to make the next ones other by as much again.
TEST_F(DistributedTest, bfloat16_traffic_stays_within_its_rounding) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, kJoinedNodes);
  options.checkpoint = folder.path("alone");
  train(two_rings(), options);
  const Checkpoint one = read_checkpoint(options.checkpoint);
  constexpr int kProcesses = 2;
  const std::vector<std::string> exact = run_processes(folder, kProcesses, "joined-fp32");
  const Checkpoint float32 = read_checkpoint(folder.path("checkpoint"));
  const std::vector<std::string> outputs =
      run_processes(folder, kProcesses, std::string("joined-fp32") + kSmallTraffic);
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], exact[0]) << "the gradients have not been rounded";
  const Checkpoint small = read_checkpoint(folder.path("checkpoint"));
  EXPECT_EQ(small.options.gradient_traffic, dist::GradientTraffic::kBFloat16);
  ASSERT_EQ(small.weights.size(), one.weights.size());
  const double way = kJoinedRate * static_cast<double>(kJoinedEpochs);
  bool differs = false;
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    SumBound bound = joined_bound(one.weights[i], amp::Precision::kFloat32);
    bound.abs_sum = at::full_like(bound.abs_sum, way);
    bound.operand_epsilon = 2.0 * kProcesses * info(at::kBFloat16).epsilon;
    EXPECT_TRUE(near(small.weights[i], one.weights[i].to(at::kDouble), bound)) << one.names[i];
    differs = differs || !at::equal(small.weights[i], float32.weights[i]);
  }
  EXPECT_TRUE(differs);

  // One process sends nothing: such a run may continue, but not start.
  options.gradient_traffic = dist::GradientTraffic::kBFloat16;
  EXPECT_THROWS(InvalidArgument, "gradient-traffic: expected the default",
                train(two_rings(), options));
  options.resume = folder.path("checkpoint");
  options.sampling->batch_size = kJoinedNodes / kProcesses;
  options.epochs = kJoinedEpochs + 1;
  EXPECT_EQ(train(two_rings(), options).steps, kJoinedEpochs + kProcesses);
}

TEST_F(DistributedTest, a_group_of_one_trains_bit_for_bit_as_no_group) {
  TrainOptions options = random_options();
  options.checkpoint = folder.path("without");
  const TrainReport without = train(two_rings(), options);
  options.checkpoint = folder.path("with");
  const TrainReport with = train(two_rings(), options, {}, dist::ProcessGroup());
  EXPECT_EQ(summary_of(with), summary_of(without));
  expect_same_weights(read_checkpoint(folder.path("with")),
                      read_checkpoint(folder.path("without")));
}

}  // namespace
}  // namespace mezzo::test::joined_batch_test
