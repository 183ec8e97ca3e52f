#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <ATen/record_function.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mezzo/data/parts.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/link_data.h"
#include "train/mini_batches.h"
#include "train/targets.h"

/// Training by several processes. Each is this program, started for the last test of this file,
/// which does the work of a rank.
namespace mezzo {
namespace {

using test::sampled_options;
using test::two_rings;

constexpr std::int64_t kJoinedEpochs = 20;
constexpr double kJoinedRate = 0.1;
constexpr std::int64_t kJoinedNodes = 20;

/// Every step is on all 20 training nodes with all their neighbours, equally many for each process.
/// Plain SGD moves a weight by as much as its gradient says.
TrainOptions joined_options(amp::Precision precision, std::int64_t batch_size) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kSage;
  options.precision = precision;
  options.sampling->batch_size = batch_size;
  options.sampling->fanouts = {-1, -1};
  options.dropout = 0;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = kJoinedRate;
  // A dynamic one would find another scale: the mean over half of the nodes has larger terms.
  if (precision == amp::Precision::kFloat16) options.loss_scale = parse_loss_scale("1024");
  options.epochs = kJoinedEpochs;
  options.eval_every = 5;
  return options;
}

/// The same on all training edges or graphs, or links and their negative pairs, of which there are
/// `rows`.
TrainOptions joined_options(const Dataset& data, std::int64_t rows) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, rows);
  if (data.target == TaskTarget::kGraph) options.sampling->fanouts.clear();
  if (data.target == TaskTarget::kLink)
    options.model = nn::ModelKind::kMlp;  // batches leave edges out
  return options;
}

constexpr std::int64_t kTrainingEdges = 72, kTrainingGraphs = 24, kTrainingPairs = 288 + 72;

/// Three batches of 4, 4 and 2 nodes in each of two processes, with everything that is random.
TrainOptions random_options() {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kSage;
  options.sampling->batch_size = 4;
  options.dropout = 0.5;
  options.epochs = 3;
  return options;
}

/// The same on links, of which there are 144 for each process.
TrainOptions random_options_of_links() {
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  options.sampling = SamplingOptions{.batch_size = 60, .fanouts = {2, 2}};
  options.dropout = 0.5;
  options.epochs = 3;
  return options;
}

/// Suffix of work on links.
constexpr auto kOfLinks = "-links";

/// Suffix of work with bfloat16 gradient traffic.
constexpr auto kSmallTraffic = "-small";

/// Delay of the last rank in the work "late": longer than all its communication.
constexpr std::chrono::seconds kLate(6);

/// Suffix of work on node_pairs() with batch normalization.
constexpr auto kNormalized = "-normalized";

/// two_rings() with other edges: each node has one neighbour, so that no two processes compute the
/// same row.
Dataset node_pairs() {
  Dataset data = two_rings();
  data.edge_features.reset();
  data.name = "pairs";
  data.src = at::arange(data.num_nodes);
  data.dst = at::bitwise_xor(data.src, 4);
  data.validate();
  return data;
}

/// Multi-label data without missing entries, so that equally many nodes have equally many.
Dataset labelled_rings() {
  Dataset data = test::rings_of_several_labels();
  data.labels.masked_fill_(data.labels.eq(kNoEntry), 0);
  return data;
}

/// A port that was free a moment ago.
int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

std::string own_path() {
  std::array<char, 4096> path{};
  return ::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "";
}

/// Runs `work` in `ranks` processes and returns the output of each: losses, or an error.
std::vector<std::string> run_ranks(const test::TempFolder& folder, int ranks,
                                   const std::string& work) {
  const int port = free_port();
  // ctest sets these for this process.
  std::string script = "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; ";
  for (int rank = 0; rank < ranks; ++rank) {
    folder.remove(fmt::format("{}.{}", work, rank));
    script += fmt::format(
        "RANK={0} WORLD_SIZE={1} LOCAL_RANK={0} MASTER_ADDR=127.0.0.1 MASTER_PORT={2} "
        "OMP_NUM_THREADS=1 MEZZO_TEST_WORK='{3}' MEZZO_TEST_FOLDER='{4}' timeout -s KILL 120 '{5}' "
        "--gtest_also_run_disabled_tests --gtest_filter=DISABLED_Rank.works >'{4}/log{0}' 2>&1 & ",
        rank, ranks, port, work, folder.path(), own_path());
  }
  EXPECT_EQ(std::system((script + "wait").c_str()), 0);
  std::vector<std::string> outputs;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = folder.path(fmt::format("{}.{}", work, rank));
    outputs.push_back(test::read_file(path));
    EXPECT_FALSE(outputs.back().empty())
        << test::read_file(folder.path(fmt::format("log{}", rank)));
  }
  return outputs;
}

std::string summary_of(const TrainReport& report) {
  return fmt::format("losses {} steps {} skipped {} epochs {} world {}", report.losses,
                     report.steps, report.skipped_steps, report.epochs_run, report.world_size);
}

/// How far the weights of two runs of joined_options() may be apart. A gradient is at most about 1;
/// each step rounds its sums over nodes, edges and hidden units and, in 16 bits, also the tensors
/// between the layers, forward and backward.
test::SumBound joined_bound(const at::Tensor& weight, amp::Precision precision,
                            std::int64_t rows = kJoinedNodes) {
  constexpr double kEdges = 3, kHidden = 8, kStored = 4;
  const double way = kJoinedRate * static_cast<double>(kJoinedEpochs);
  test::SumBound bound = test::sum_bound(weight.abs().to(at::kDouble) + way,
                                         static_cast<double>(rows) * kEdges * kHidden, at::kFloat);
  if (is_low(precision)) {
    const bool half = precision == amp::Precision::kFloat16;
    bound.operand_epsilon = kStored * test::info(half ? at::kHalf : at::kBFloat16).epsilon;
  }
  return bound;
}

void expect_joined(const Checkpoint& several, const Checkpoint& one, amp::Precision precision,
                   std::int64_t rows = kJoinedNodes) {
  ASSERT_EQ(one.names, several.names);
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(test::near(several.weights[i], one.weights[i].to(at::kDouble),
                           joined_bound(one.weights[i], precision, rows)))
        << one.names[i];
  }
}

TEST(Distributed, two_and_four_processes_equal_one_on_the_joined_batch) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    const std::string word(amp::to_string(precision));
    const test::TempFolder folder;
    TrainOptions options = joined_options(precision, kJoinedNodes);
    options.checkpoint = folder.path("alone");
    const TrainReport alone = train(two_rings(), options);
    const Checkpoint one = read_checkpoint(options.checkpoint);
    for (const int processes : {2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} processes", word, processes));
      const std::vector<std::string> outputs = run_ranks(folder, processes, "joined-" + word);
      for (const std::string& each : outputs) EXPECT_EQ(each, outputs[0]);
      const std::string end = fmt::format("steps {} skipped {} epochs {} world {}", alone.steps,
                                          alone.skipped_steps, alone.epochs_run, processes);
      EXPECT_NE(outputs[0].find(end), std::string::npos) << outputs[0] << '\n' << summary_of(alone);
      expect_joined(read_checkpoint(folder.path("checkpoint")), one, precision);
    }
  }
}

class DistributedTest : public testing::Test {
 protected:
  const test::TempFolder folder;
};

TEST_F(DistributedTest, a_model_of_the_program_begins_with_the_weights_of_rank_0) {
  const std::vector<std::string> expected_report = run_ranks(folder, 2, "joined-fp32");
  const Checkpoint expected = read_checkpoint(folder.path("checkpoint"));
  EXPECT_EQ(run_ranks(folder, 2, "own"), expected_report);
  test::expect_same_weights(read_checkpoint(folder.path("checkpoint")), expected);
}

TEST_F(DistributedTest, several_labels_a_node_are_learnt_as_on_the_joined_batch) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, kJoinedNodes);
  options.checkpoint = folder.path("alone");
  train(labelled_rings(), options);
  const std::vector<std::string> outputs = run_ranks(folder, 2, "several-labels");
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
    const std::vector<std::string> outputs = run_ranks(folder, 2, data.name);
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_NE(outputs[0].find(fmt::format("steps {} skipped 0", alone.steps)), std::string::npos)
        << outputs[0];
    expect_joined(read_checkpoint(folder.path("checkpoint")), read_checkpoint(options.checkpoint),
                  amp::Precision::kFloat32, rows);
  };
  check(test::edges_with_labels(LabelKind::kClass), kTrainingEdges);
  check(test::graphs_with_labels(LabelKind::kClass), kTrainingGraphs);
  check(test::links_with_negatives(), kTrainingPairs);
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
    const std::vector<std::string> outputs = run_ranks(folder, processes, work);
    for (const std::string& each : outputs) EXPECT_EQ(each, outputs[0]);
    expect_joined(read_checkpoint(folder.path("checkpoint")), one, amp::Precision::kFloat32);
  }
  // One process goes on where four stopped.
  options.resume = folder.path("checkpoint");
  options.sampling->batch_size = kJoinedNodes / 4;
  options.epochs = kJoinedEpochs + 1;
  EXPECT_EQ(train(node_pairs(), options).steps, kJoinedEpochs + 4);
}

TEST(Distributed, a_run_that_one_rank_stopped_in_an_epoch_equals_an_unbroken_one) {
  for (const std::string kind : {"", kNormalized, kOfLinks}) {
    SCOPED_TRACE(kind);
    const test::TempFolder folder;
    const std::vector<std::string> whole = run_ranks(folder, 2, "whole" + kind);
    EXPECT_EQ(whole[0], whole[1]);
    EXPECT_NE(whole[0].find("steps 9 "), std::string::npos) << whole[0];
    const Checkpoint unbroken = read_checkpoint(folder.path("checkpoint"));

    const std::vector<std::string> part = run_ranks(folder, 2, "part" + kind);
    EXPECT_NE(part[0].find("steps 4 skipped 0 epochs 1 world 2"), std::string::npos) << part[0];
    EXPECT_EQ(part[0], part[1]);
    const std::vector<std::string> resumed = run_ranks(folder, 2, "resumed" + kind);
    EXPECT_EQ(resumed, whole);
    test::expect_same_weights(read_checkpoint(folder.path("checkpoint")), unbroken);
  }
}

TEST_F(DistributedTest, another_number_of_processes_starts_the_epoch_again) {
  run_ranks(folder, 2, "part");  // 4 steps: an epoch of 3, and one
  const std::vector<std::string> three = run_ranks(folder, 3, "resumed");
  // 7 nodes of 20 for each: 2 batches in each of the two epochs that are left.
  EXPECT_NE(three[0].find("steps 8 skipped 0 epochs 3 world 3"), std::string::npos) << three[0];
  EXPECT_EQ(three[0], three[2]);

  run_ranks(folder, 2, "part");
  TrainOptions options = random_options();
  options.resume = folder.path("checkpoint");
  const TrainReport alone = train(two_rings(), options);
  EXPECT_EQ(alone.steps, 4 + 2 * 5);
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_GT(alone.communication_seconds, 0);  // of the epochs before
}

TEST_F(DistributedTest, all_ranks_skip_the_same_steps) {
  const std::vector<std::string> outputs = run_ranks(folder, 2, "overflow");
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0].find("steps 9 "), std::string::npos) << outputs[0];
  EXPECT_EQ(outputs[0].find("skipped 0 "), std::string::npos) << outputs[0];
  EXPECT_EQ(outputs[0].find("skipped 9 "), std::string::npos) << outputs[0];
}

TEST_F(DistributedTest, what_processes_cannot_train_is_an_error_on_all_of_them) {
  const auto refused = [&](const std::string& work, const std::string& fragment) {
    SCOPED_TRACE(work);
    for (const std::string& output : run_ranks(folder, 2, work)) {
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

TEST_F(DistributedTest, a_failure_of_rank_0_is_the_same_error_on_all) {
  const auto expect_same = [&](const std::string& work, const std::string& kind,
                               const std::string& fragment) {
    SCOPED_TRACE(work);
    const std::vector<std::string> outputs = run_ranks(folder, 3, work);
    EXPECT_TRUE(outputs[0].starts_with(kind)) << outputs[0];
    EXPECT_NE(outputs[0].find(fragment), std::string::npos) << outputs[0];
    for (const std::size_t rank : {1U, 2U}) {
      EXPECT_EQ(outputs[rank], kind + "rank 0: " + outputs[0].substr(kind.size()));
    }
  };
  expect_same("no-checkpoint", "io: ", folder.path("nothing"));
  expect_same("no-logits", "numeric: ", "not finite");
}

TEST_F(DistributedTest, a_failure_of_one_rank_is_reported_by_the_others) {
  const std::vector<std::string> outputs = run_ranks(folder, 3, "callback");
  EXPECT_EQ(outputs[1], "other: the user's own\nline");
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_TRUE(outputs[rank].starts_with("io: ")) << outputs[rank];
    EXPECT_NE(outputs[rank].find("rank 1: the user's own"), std::string::npos) << outputs[rank];
    EXPECT_EQ(outputs[rank].find("line"), std::string::npos) << outputs[rank];
  }
}

TEST_F(DistributedTest, the_wait_for_a_late_rank_is_no_communication) {
  for (const std::string& output : run_ranks(folder, 2, "late")) {
    EXPECT_TRUE(output.starts_with("losses ")) << output;
  }
}

TEST_F(DistributedTest, rank_0_evaluates_with_the_threads_of_all_and_trains_with_its_own) {
  for (const std::string& output : run_ranks(folder, 3, "threads")) {
    EXPECT_TRUE(output.starts_with("losses ")) << output;
  }
}

/// Batches are prepared while gradients travel, by the process itself or by its workers.
TEST_F(DistributedTest, the_workers_change_nothing_in_several_processes) {
  const std::vector<std::string> none = run_ranks(folder, 2, "workers-0");
  EXPECT_EQ(none[0], none[1]);
  EXPECT_NE(none[0].find("steps 9 "), std::string::npos) << none[0];
  const Checkpoint expected = read_checkpoint(folder.path("checkpoint"));
  for (const int workers : {1, 2}) {
    SCOPED_TRACE(workers);
    EXPECT_EQ(run_ranks(folder, 2, fmt::format("workers-{}", workers)), none);
    test::expect_same_weights(read_checkpoint(folder.path("checkpoint")), expected);
  }
}

TEST_F(DistributedTest, a_failed_batch_of_one_rank_ends_all_with_its_reason) {
  const std::vector<std::string> outputs = run_ranks(folder, 3, "no-batch");
  const std::string reason = "index out of range";
  EXPECT_TRUE(outputs[1].starts_with("other: " + reason)) << outputs[1];
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_TRUE(outputs[rank].starts_with("io: ")) << outputs[rank];
    EXPECT_NE(outputs[rank].find("rank 1: " + reason), std::string::npos) << outputs[rank];
  }
}

/// Each step rounds a gradient of at most about 1 by ranks * 2^-8 of the sum of absolute values,
/// and the weights that it leads to make the next ones other by as much again.
TEST_F(DistributedTest, bfloat16_traffic_stays_within_its_rounding) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, kJoinedNodes);
  options.checkpoint = folder.path("alone");
  train(two_rings(), options);
  const Checkpoint one = read_checkpoint(options.checkpoint);
  constexpr int kProcesses = 2;
  const std::vector<std::string> exact = run_ranks(folder, kProcesses, "joined-fp32");
  const Checkpoint float32 = read_checkpoint(folder.path("checkpoint"));
  const std::vector<std::string> outputs =
      run_ranks(folder, kProcesses, std::string("joined-fp32") + kSmallTraffic);
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], exact[0]) << "the gradients have not been rounded";
  const Checkpoint small = read_checkpoint(folder.path("checkpoint"));
  EXPECT_EQ(small.options.gradient_traffic, dist::GradientTraffic::kBFloat16);
  ASSERT_EQ(small.weights.size(), one.weights.size());
  const double way = kJoinedRate * static_cast<double>(kJoinedEpochs);
  bool differs = false;
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    test::SumBound bound = joined_bound(one.weights[i], amp::Precision::kFloat32);
    bound.abs_sum = at::full_like(bound.abs_sum, way);
    bound.operand_epsilon = 2.0 * kProcesses * test::info(at::kBFloat16).epsilon;
    EXPECT_TRUE(test::near(small.weights[i], one.weights[i].to(at::kDouble), bound))
        << one.names[i];
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
  test::expect_same_weights(read_checkpoint(folder.path("with")),
                            read_checkpoint(folder.path("without")));
}

/// Changes the data, but not their sizes.
void change(Dataset& data, const std::string& what) {
  if (what == "labels") {
    data.labels = 1 - data.labels;
  } else if (what == "masks") {
    std::swap(data.val_masks, data.test_masks);
  } else if (what == "edges") {
    std::swap(data.src, data.dst);
  } else if (what == "weights") {
    data.edge_weights = at::ones({data.num_edges()});
  } else {
    data.features = data.features.flip(0);
  }
}

/// The largest number of threads of an operation of this process.
std::atomic<int> most_threads = 0;

void watch_threads() {
  const auto look = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
    most_threads = std::max(most_threads.load(), at::get_num_threads());
    return nullptr;
  };
  at::addGlobalCallback(at::RecordFunctionCallback(look).scopes({at::RecordScope::FUNCTION}));
}

/// Throws unless rank 0 has evaluated with the threads of all ranks (one each).
void require_threads(const dist::ProcessGroup& group) {
  cpu_set_t cpus;
  const int usable = ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  const int most = group.rank() == 0 ? std::min(static_cast<int>(group.world_size()), usable) : 1;
  if (most_threads == most && at::get_num_threads() == 1) return;
  throw std::runtime_error(
      fmt::format("{} threads at most, {} after it", most_threads.load(), at::get_num_threads()));
}

/// The run of joined_options() with a model of the program, of other weights on each rank.
TrainReport train_own(const std::string& folder, const dist::ProcessGroup& group) {
  TrainOptions options =
      joined_options(amp::Precision::kFloat32, kJoinedNodes / group.world_size());
  at::manual_seed(options.seed + static_cast<std::uint64_t>(group.rank()));
  const Dataset data = two_rings();
  const nn::Model model(
      data.num_features(), data.num_classes,
      {.kind = options.model, .hidden_features = *options.hidden, .dropout = options.dropout});
  const TrainOptions defaults;
  options.model = defaults.model;
  options.hidden = defaults.hidden;
  options.dropout = defaults.dropout;
  options.checkpoint = folder + "/checkpoint";
  return train(data, model, options, {}, group);
}

/// The work `name` of one rank.
TrainReport run_work(const std::string& name, const std::string& folder,
                     const dist::ProcessGroup& group) {
  const bool normalized = name.ends_with(kNormalized);
  const bool small = name.ends_with(kSmallTraffic), of_links = name.ends_with(kOfLinks);
  const char* const suffix = small ? kSmallTraffic : of_links ? kOfLinks : kNormalized;
  const std::string work = name.substr(0, name.rfind(suffix));
  if (work == "own") return train_own(folder, group);
  Dataset data = of_links     ? test::links_within_groups(true)
                 : normalized ? node_pairs()
                              : two_rings();
  TrainOptions options = of_links ? random_options_of_links() : random_options();
  TrainCallbacks callbacks;
  std::int64_t steps = 0;
  if (work.starts_with("joined-")) {
    options =
        joined_options(amp::parse_precision(work.substr(7)), kJoinedNodes / group.world_size());
  } else if (work == "several-labels") {
    data = labelled_rings();
    options = joined_options(amp::Precision::kFloat32, kJoinedNodes / group.world_size());
  } else if (work == "edges") {
    data = test::edges_with_labels(LabelKind::kClass);
    options = joined_options(data, kTrainingEdges / group.world_size());
  } else if (work == "graphs") {
    data = test::graphs_with_labels(LabelKind::kClass);
    options = joined_options(data, kTrainingGraphs / group.world_size());
  } else if (work == "groups") {
    data = test::links_with_negatives();
    options = joined_options(data, kTrainingPairs / group.world_size());
  } else if (work == "overflow") {
    options.precision = amp::Precision::kFloat16;
    options.loss_factor = 16;  // the largest gradients of the logits leave float16 at first
  } else if (work.starts_with("workers-")) {
    options.sampling->num_workers = std::stoll(work.substr(8));
  } else if (work == "no-batch") {
    // By then the third of four batches is ready. The fourth finds features of two nodes, fewer
    // than it has, while the gradients of the third one's step travel.
    options.sampling->batch_size = 2;
    options.sampling->num_workers = 0;
    callbacks.on_batch = [&](const BatchRecord& record) {
      if (group.rank() == 1 && record.batch == 2) data.features.resize_({2, 2}).t_();
    };
  } else if (work == "part") {
    callbacks.should_stop = [&] { return ++steps == 4 && group.rank() == 1; };
  } else if (work == "resumed") {
    options.resume = folder + "/checkpoint";
  } else if (work == "full-graph") {
    options.sampling.reset();
  } else if (work == "cluster") {
    options = sampled_options(SamplerKind::kCluster);
  } else if (work == "other-seed") {
    options.seed += static_cast<std::uint64_t>(group.rank());
  } else if (work == "other-cut") {
    // Both ranks own the same number of nodes, by halves or by every second node.
    const at::Tensor nodes = at::arange(data.num_nodes);
    const bool first = group.rank() == 0;
    const at::Tensor parts =
        first ? nodes.ge(data.num_nodes / 2).to(at::kLong) : nodes.remainder(2);
    const std::string cut = fmt::format("{}/cut{}", folder, group.rank());
    write_parts(data, parts, cut, {.hops = 2});
    data = load_dataset(part_for_rank(cut, group.rank(), group.world_size()));
  } else if (work.starts_with("other-") && group.rank() == 1) {
    change(data, work.substr(6));
  } else if (work == "no-checkpoint") {
    options.resume = folder + "/nothing";
  } else if (work == "no-logits") {
    callbacks.on_batch = [&](const BatchRecord& record) {
      if (group.rank() == 0 && record.batch == record.batches) data.features.fill_(NAN);
    };
  } else if (work == "callback") {
    callbacks.on_epoch = [&](const EpochRecord& record) {
      if (group.rank() == 1 && record.epoch == 1) throw std::runtime_error("the user's own\nline");
    };
  }
  if (work == "threads") {
    options.sampling->num_workers = 0;
    watch_threads();
  }
  if (work == "late" && group.rank() == 1) std::this_thread::sleep_for(kLate);
  if (normalized) options.normalization = nn::Normalization::kBatch;
  if (small) options.gradient_traffic = dist::GradientTraffic::kBFloat16;
  options.checkpoint = folder + "/checkpoint";
  const TrainReport report = train(data, options, callbacks, group);
  if (work == "late" && report.communication_seconds > kLate.count() / 2.0) {
    throw std::runtime_error(fmt::format("{} s of communication", report.communication_seconds));
  }
  if (work == "threads") require_threads(group);
  return report;
}

TEST(DISABLED_Rank, works) {
  const char* work = std::getenv("MEZZO_TEST_WORK");
  const char* folder = std::getenv("MEZZO_TEST_FOLDER");
  ASSERT_TRUE(work != nullptr && folder != nullptr);
  dist::InitOptions options;
  options.backend = dist::Backend::kGloo;
  options.timeout = std::chrono::seconds(60);
  const dist::ProcessGroup group = dist::init(options);
  std::string output;
  try {
    output = summary_of(run_work(work, folder, group));
  } catch (const InvalidArgument& error) {
    output = std::string("invalid: ") + error.what();
  } catch (const IoError& error) {
    output = std::string("io: ") + error.what();
  } catch (const NumericError& error) {
    output = std::string("numeric: ") + error.what();
  } catch (const std::exception& error) {
    output = std::string("other: ") + error.what();
  }
  std::ofstream(fmt::format("{}/{}.{}", folder, work, group.rank())) << output;
}

}  // namespace
}  // namespace mezzo
