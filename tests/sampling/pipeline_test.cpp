#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#include <c10/core/GradMode.h>

#include "mezzo/sampling/batches.h"

#include "support/tensors.h"

namespace mezzo::test {
namespace {

using detail::Pipeline;
using detail::PipelineCounters;
using detail::WorkspacePool;

const CpuOnlySuite kPipelineOnCpu("Pipeline", "sampling on the CPU");

using Work = std::function<std::int64_t(std::int64_t epoch, std::int64_t index, Workspace&)>;

/// `count` items per epoch, each a result of `work`.
class WorkEpoch : public Epoch<std::int64_t> {
 public:
  WorkEpoch(Work work, std::int64_t epoch, std::int64_t count)
      : work_(std::move(work)), epoch_(epoch), count_(count) {}
  std::int64_t num_batches() const override { return count_; }
  std::int64_t make(std::int64_t index, Workspace& workspace,
                    PipelineStatistics& /*statistics*/) const override {
    return work_(epoch_, index, workspace);
  }

 private:
  Work work_;
  std::int64_t epoch_, count_;
};

Batches<std::int64_t> batches_of(Work work, std::int64_t count, PipelineOptions options) {
  return {[=](std::int64_t epoch) { return std::make_shared<const WorkEpoch>(work, epoch, count); },
          options};
}

std::int64_t number_of(std::int64_t epoch, std::int64_t index, Workspace& /*workspace*/) {
  return 100 * epoch + index;
}

std::vector<std::int64_t> loop(Batches<std::int64_t>& batches) {
  std::vector<std::int64_t> items;
  for (const std::int64_t item : batches) items.push_back(item);
  return items;
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = first; i < end; ++i) numbers.push_back(i);
  return numbers;
}

/// Waits for the condition; false after 60 seconds.
template <class Condition>
bool comes_true(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

const std::vector<PipelineOptions>& option_cases() {
  static const std::vector<PipelineOptions> all = {{0, 2}, {1, 1}, {1, 2}, {2, 1}, {2, 3}, {3, 2}};
  return all;
}

std::int64_t num_threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// Threads that one large operation of libtorch started.
std::int64_t threads_started_by_an_operation() {
  const std::int64_t before = num_threads_of_process();
  static_cast<void>(at::ones({std::int64_t{1} << 22}).add_(1));
  return num_threads_of_process() - before;
}

}  // namespace

TEST(Pipeline, items_come_in_order_for_every_number_of_workers) {
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(number_of, 37, options);
    EXPECT_EQ(loop(batches), range(0, 37));
    EXPECT_EQ(loop(batches), range(100, 137)) << "the second loop is the next epoch";
    EXPECT_EQ(batches.epoch(), 2);
  }
}

TEST(Pipeline, items_come_in_order_when_the_first_ones_take_longest) {
  const Work work = [](std::int64_t, std::int64_t index, Workspace&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(index % 4 == 0 ? 8 : 0));
    return index;
  };
  auto batches = batches_of(work, 24, {.num_workers = 3, .prefetch = 2});
  EXPECT_EQ(loop(batches), range(0, 24));
}

TEST(Pipeline, workers_run_ahead_as_far_as_prefetch_says_and_no_further) {
  for (const PipelineOptions& options : option_cases()) {
    std::atomic<std::int64_t> begun = 0;
    const Work work = [&](std::int64_t, std::int64_t index, Workspace&) {
      ++begun;
      return index;
    };
    auto batches = batches_of(work, 50, options);
    const std::int64_t ahead = options.num_workers * options.prefetch;
    for (const std::int64_t item : batches) {
      if (item >= 20) break;
      const std::int64_t allowed = item + 1 + ahead;
      EXPECT_TRUE(comes_true([&] { return begun == allowed; })) << begun << " of " << allowed;
      EXPECT_LE(begun, allowed);
    }
  }
}

TEST(Pipeline, leaving_a_loop_ends_its_workers_and_the_next_loop_works) {
  for (const PipelineOptions& options : option_cases()) {
    std::atomic<std::int64_t> begun = 0;
    const Work work = [&](std::int64_t epoch, std::int64_t index, Workspace&) {
      if (epoch == 0) ++begun;
      return 100 * epoch + index;
    };
    auto batches = batches_of(work, 100'000, options);
    for (const std::int64_t item : batches) {
      if (item == 3) break;
    }
    const std::int64_t at_the_end = begun;
    EXPECT_LE(at_the_end, 4 + options.num_workers * options.prefetch);
    auto next = batches.begin();
    EXPECT_EQ(*next, 100);
    EXPECT_EQ(begun, at_the_end) << "a worker of the left loop went on";
  }
}

TEST(Pipeline, a_fault_is_thrown_at_its_item_and_ends_the_pass) {
  const Work work = [](std::int64_t epoch, std::int64_t index, Workspace&) {
    if (epoch == 0 && index == 5) throw std::runtime_error("item 5");
    return index;
  };
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(work, 30, options);
    std::vector<std::int64_t> items;
    const auto pass = [&] {
      for (const std::int64_t item : batches) items.push_back(item);
    };
    EXPECT_EQ(error_of<std::runtime_error>(pass), "item5");
    EXPECT_EQ(items, range(0, 5));
    EXPECT_EQ(loop(batches), range(0, 30)) << "the next epoch has no fault";
  }
}

TEST(Pipeline, nothing_comes_after_a_fault) {
  const auto make = [](std::int64_t index, Workspace&) -> std::int64_t {
    if (index == 1) throw std::runtime_error("item 1");
    return index;
  };
  for (const PipelineOptions& options : option_cases()) {
    Pipeline<std::int64_t> pipeline(make, 0, 9, options, std::make_shared<WorkspacePool>(),
                                    std::make_shared<PipelineCounters>());
    EXPECT_EQ(pipeline.next(), 0);
    EXPECT_THROW(pipeline.next(), std::runtime_error);
    EXPECT_EQ(pipeline.next(), std::nullopt);
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(Pipeline, of_several_faults_the_first_in_order_is_thrown) {
  const Work work = [](std::int64_t, std::int64_t index, Workspace&) -> std::int64_t {
    if (index == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (index >= 2) throw std::runtime_error("item " + std::to_string(index));
    return index;
  };
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(work, 30, options);
    EXPECT_EQ(error_of<std::runtime_error>([&] { loop(batches); }), "item2");
  }
}

TEST(Pipeline, a_fault_that_nobody_waits_for_is_dropped_with_the_loop) {
  std::atomic<bool> has_failed = false;
  const Work work = [&](std::int64_t, std::int64_t index, Workspace&) -> std::int64_t {
    if (index == 0) return index;
    has_failed = true;
    throw std::runtime_error("unread");
  };
  auto batches = batches_of(work, 30, {.num_workers = 2, .prefetch = 2});
  {
    auto first = batches.begin();
    EXPECT_EQ(*first, 0);
    EXPECT_TRUE(comes_true([&] { return has_failed.load(); }));
  }
  EXPECT_EQ(batches.epoch(), 1);
}

TEST(Pipeline, workspaces_are_given_back_without_a_fault) {
  // The destructor of a pass calls give_back().
  static_assert(noexcept(std::declval<WorkspacePool&>().give_back(std::declval<Workspace>())));
  WorkspacePool pool;
  EXPECT_NO_THROW(pool.give_back(pool.take()));
}

TEST(Pipeline, a_pass_without_items_is_empty) {
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(number_of, 0, options);
    EXPECT_EQ(loop(batches), std::vector<std::int64_t>{});
    EXPECT_EQ(batches.statistics().batches, 0);
  }
}

TEST(Pipeline, start_at_goes_on_where_a_run_was_interrupted) {
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(number_of, 10, options);
    batches.start_at(3, 7);
    EXPECT_EQ(batches.epoch(), 3);
    EXPECT_EQ(loop(batches), range(307, 310));
    EXPECT_EQ(loop(batches), range(400, 410)) << "the batch counts for one loop";
    batches.start_at(2, 10);
    EXPECT_EQ(loop(batches), std::vector<std::int64_t>{});
    batches.start_at(2, 11);
    EXPECT_ERROR("atmost10", batches.begin());
    EXPECT_THROW(batches.start_at(-1), InvalidArgument);
    EXPECT_THROW(batches.start_at(0, -1), InvalidArgument);
    EXPECT_THROW(batches.start_at(kMostEpochs), InvalidArgument);
    EXPECT_THROW(batches.batch(kMostEpochs, 0), InvalidArgument);
    batches.start_at(kMostEpochs - 1, 10);
    EXPECT_EQ(loop(batches), std::vector<std::int64_t>{});
    EXPECT_ERROR("epoch", batches.begin());
  }
}

TEST(Pipeline, a_single_batch_is_that_of_the_loop_and_changes_nothing) {
  auto batches = batches_of(number_of, 10, {.num_workers = 2, .prefetch = 2});
  EXPECT_EQ(batches.batch(4, 9), 409);
  EXPECT_EQ(batches.epoch(), 0);
  EXPECT_EQ(batches.num_batches(), 10);
  EXPECT_ERROR("[0,10)", batches.batch(0, 10));
  EXPECT_THROW(batches.batch(0, -1), InvalidArgument);
  EXPECT_THROW(batches.batch(-1, 0), InvalidArgument);
}

TEST(Pipeline, bad_options_are_named) {
  const auto attempt = [&](PipelineOptions options) { batches_of(number_of, 1, options); };
  EXPECT_ERROR("num_workers", attempt({.num_workers = -1, .prefetch = 2}));
  EXPECT_ERROR("257", attempt({.num_workers = 257, .prefetch = 2}));
  EXPECT_ERROR("prefetch", attempt({.num_workers = 1, .prefetch = 0}));
  EXPECT_ERROR("1025", attempt({.num_workers = 1, .prefetch = 1025}));
}

TEST(Pipeline, a_worker_counts_as_one_thread_and_leaves_the_callers_number) {
  const ThreadCount two(2);
  const Work work = [](std::int64_t, std::int64_t, Workspace&) {
    const std::int64_t started = threads_started_by_an_operation();
    return 10 * started + at::get_num_threads();
  };
  auto batches = batches_of(work, 3, {.num_workers = 1, .prefetch = 2});
  EXPECT_EQ(loop(batches), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(at::get_num_threads(), 2);
  std::int64_t started_elsewhere = 0;
  std::thread([&] { started_elsewhere = threads_started_by_an_operation(); }).join();
  EXPECT_EQ(started_elsewhere, 1) << "an ordinary thread opens a team of two";
}

TEST(Pipeline, gradients_are_off_while_items_are_made) {
  const Work work = [](std::int64_t, std::int64_t, Workspace&) {
    return std::int64_t{c10::GradMode::is_enabled() ? 1 : 0};
  };
  for (const PipelineOptions& options : option_cases()) {
    auto batches = batches_of(work, 3, options);
    EXPECT_EQ(loop(batches), (std::vector<std::int64_t>{0, 0, 0}));
    EXPECT_TRUE(c10::GradMode::is_enabled());
  }
}

TEST(Pipeline, workspaces_are_lent_to_one_thread_at_a_time_and_kept_for_the_next_pass) {
  std::mutex mutex;
  std::set<const void*> seen, in_use;
  bool is_shared = false;
  const Work work = [&](std::int64_t, std::int64_t index, Workspace& workspace) {
    const void* state = &workspace.state();
    {
      const std::lock_guard lock(mutex);
      seen.insert(state);
      is_shared = is_shared || !in_use.insert(state).second;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    in_use.erase(state);
    return index;
  };
  auto batches = batches_of(work, 10, {.num_workers = 2, .prefetch = 2});
  for (int epoch = 0; epoch < 3; ++epoch) loop(batches);
  EXPECT_FALSE(is_shared);
  EXPECT_LE(seen.size(), 2U);
}

TEST(Pipeline, statistics_are_sums_over_threads) {
  const auto counters = std::make_shared<PipelineCounters>();
  const auto make = [&](std::int64_t index, Workspace&) {
    counters->add({.sampled_edges = index, .sampled_nodes = 1, .sample_seconds = 0.5});
    return index;
  };
  Pipeline<std::int64_t> pipeline(make, 0, 20, {.num_workers = 3, .prefetch = 2},
                                  std::make_shared<WorkspacePool>(), counters);
  while (pipeline.next()) {
  }
  const PipelineStatistics sums = counters->read();
  EXPECT_EQ(sums.batches, 20);
  EXPECT_EQ(sums.sampled_edges, 190);
  EXPECT_EQ(sums.sampled_nodes, 20);
  EXPECT_EQ(sums.sample_seconds, 10.0);
  EXPECT_EQ(sums.edges_per_second(), 19.0);
  EXPECT_GT(sums.wait_seconds, 0.0);
  EXPECT_EQ(PipelineStatistics{}.edges_per_second(), 0.0);
}

}  // namespace mezzo::test
