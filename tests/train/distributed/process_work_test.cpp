#include "train/distributed/process_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "mezzo/data/parts.h"
#include "mezzo/dist/group/process_group.h"

#include "support/tensors.h"

namespace mezzo::test::process_work_test {
namespace {

/// Delay of the last process in the work "late": longer than all its communication.
constexpr std::chrono::seconds kLate(6);

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

/// Throws unless process 0 has evaluated with the threads of all processes (one each).
void require_threads(const dist::ProcessGroup& group) {
  cpu_set_t cpus;
  const int usable = ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  const int most = group.rank() == 0 ? std::min(static_cast<int>(group.world_size()), usable) : 1;
  if (most_threads == most && at::get_num_threads() == 1) return;
  throw std::runtime_error(
      fmt::format("{} threads at most, {} after it", most_threads.load(), at::get_num_threads()));
}

/// The run of joined_options() with a model of the program, of other weights on each process.
TrainReport train_own(const Dataset& data, TrainOptions options, const std::string& folder,
                      const dist::ProcessGroup& group) {
  at::manual_seed(options.seed + static_cast<std::uint64_t>(group.rank()));
  const nn::Model model(data.num_features(), data.num_classes,
                        {.kind = options.model,
                         .hidden_features = *options.hidden,
                         .target = data.target,
                         .edge_features = data.num_edge_features(),
                         .dropout = options.dropout});
  const TrainOptions defaults;
  options.model = defaults.model;
  options.hidden = defaults.hidden;
  options.dropout = defaults.dropout;
  options.checkpoint = folder + "/checkpoint";
  return train(data, model, options, {}, group);
}

/// Sets the data and options of work that equals one process on the joined batch.
void set_joined(const std::string& work, std::int64_t num_processes, Dataset& data,
                TrainOptions& options) {
  const auto set = [&](const Dataset& other, std::int64_t rows) {
    data = other;
    options = joined_options(data, rows / num_processes);
  };
  if (work == "several-labels") set(labelled_rings(), kJoinedNodes);
  if (work == "edges") set(edges_with_labels(LabelKind::kClass), kTrainingEdges);
  if (work == "graphs") set(graphs_with_labels(LabelKind::kClass), kTrainingGraphs);
  if (work == "groups") set(links_with_negatives(), kTrainingPairs);
  if (work.starts_with("joined-")) {
    options = joined_options(amp::parse_precision(work.substr(7)), kJoinedNodes / num_processes);
  }
}

/// The work `name` of one process.
TrainReport run_work(const std::string& name, const std::string& folder,
                     const dist::ProcessGroup& group) {
  const bool normalized = name.ends_with(kNormalized);
  const bool small = name.ends_with(kSmallTraffic), of_links = name.ends_with(kOfLinks);
  const char* const suffix = small ? kSmallTraffic : of_links ? kOfLinks : kNormalized;
  const std::string work = name.substr(0, name.rfind(suffix));
  if (work == "own") {
    return train_own(two_rings(), joined_options(amp::Precision::kFloat32, kJoinedNodes / 2),
                     folder, group);
  }
  if (work == "own-edges") {
    const Dataset edges = edges_with_labels(LabelKind::kClass);
    return train_own(edges, joined_options(edges, kTrainingEdges / 2), folder, group);
  }
  Dataset data = of_links ? links_within_groups(true) : normalized ? node_pairs() : two_rings();
  TrainOptions options = of_links ? random_options_of_links() : random_options();
  TrainCallbacks callbacks;
  std::int64_t steps = 0;
  set_joined(work, group.world_size(), data, options);
  if (work == "overflow") {
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
    // Both processes own the same number of nodes, by halves or by every second node.
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

TEST(DISABLED_Process, works) {
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
}  // namespace mezzo::test::process_work_test
