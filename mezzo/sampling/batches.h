#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "mezzo/core/error.h"
#include "mezzo/core/export.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// Threads that prepare the batches of a pass.
struct PipelineOptions {
  std::int64_t num_workers = 0;  ///< threads that prepare batches ahead, in [0, 256]; 0: the caller
  std::int64_t prefetch = 2;     ///< batches prepared ahead per worker, in [1, 1024]
};

/// Counts and times of the stages that prepare batches. Seconds are summed over the workers.
struct PipelineStatistics {
  std::int64_t batches = 0;        ///< returned to the caller
  std::int64_t sampled_edges = 0;  ///< over all prepared batches
  std::int64_t sampled_nodes = 0;  ///< unique input nodes, over all prepared batches
  double sample_seconds = 0;       ///< drawing and renumbering
  double gather_seconds = 0;       ///< rows of features and labels
  double transfer_seconds = 0;     ///< copies to the device; rows that gradients need
  double wait_seconds = 0;         ///< the caller waited for a batch
  /// Sampled edges per second of one worker's sampling; 0 if nothing was sampled.
  double edges_per_second() const {
    return sample_seconds > 0 ? static_cast<double>(sampled_edges) / sample_seconds : 0;
  }
};

/// One pass over the seeds, cut into mini-batches. Several threads may call make(), each with its
/// own workspace; a batch depends only on its index.
template <class Item>
class Epoch {
 public:
  virtual ~Epoch() = default;
  virtual std::int64_t num_batches() const = 0;  ///< of this pass
  /// Batch `index`, in [0, num_batches()). Adds its counts and times to `statistics`.
  virtual Item make(std::int64_t index, Workspace& workspace,
                    PipelineStatistics& statistics) const = 0;
};

namespace detail {

/// Throws InvalidArgument unless num_workers is in [0, 256] and prefetch in [1, 1024].
MEZZO_API void check_pipeline(const PipelineOptions& options);

/// Sums of statistics. Thread-safe.
class MEZZO_API PipelineCounters {
 public:
  void add(const PipelineStatistics& part);  ///< adds each member
  PipelineStatistics read() const;           ///< the sums so far

 private:
  mutable std::mutex mutex_;
  PipelineStatistics sums_;
};

/// Idle workspaces: the workers of the next pass reuse them. Thread-safe.
class MEZZO_API WorkspacePool {
 public:
  Workspace take();  ///< an idle workspace, or a new one
  /// Keeps the workspace, or frees it if memory is short.
  void give_back(Workspace workspace) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Workspace> idle_;
};

/// A Pipeline of untyped items.
class MEZZO_API PipelineEngine {
 public:
  using Make = std::function<std::shared_ptr<void>(std::int64_t index, Workspace& workspace)>;

  PipelineEngine(Make make, std::int64_t first, std::int64_t end, PipelineOptions options,
                 std::shared_ptr<WorkspacePool> workspaces,
                 std::shared_ptr<PipelineCounters> counters);
  ~PipelineEngine();
  PipelineEngine(const PipelineEngine&) = delete;
  PipelineEngine& operator=(const PipelineEngine&) = delete;

  std::shared_ptr<void> next();  ///< nullptr after the last

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Items first, first + 1, ..., end - 1, in this order, prepared ahead by its own threads: at most
/// num_workers * prefetch are ready or in work. Code in a worker runs on one thread, with gradients
/// off. One thread takes the items.
template <class Item>
class Pipeline {
 public:
  /// Starts the workers. make: the item of an index, called by several threads at once, each with
  /// its own workspace. Throws InvalidArgument for bad options.
  Pipeline(std::function<Item(std::int64_t, Workspace&)> make, std::int64_t first, std::int64_t end,
           PipelineOptions options, std::shared_ptr<WorkspacePool> workspaces,
           std::shared_ptr<PipelineCounters> counters)
      : engine_(
            [make = std::move(make)](std::int64_t index, Workspace& workspace) {
              return std::static_pointer_cast<void>(std::make_shared<Item>(make(index, workspace)));
            },
            first, end, options, std::move(workspaces), std::move(counters)) {}

  /// Waits for the next item; nullopt after the last. Rethrows what `make` threw for it, which ends
  /// the pass. The destructor waits only for the items in work.
  std::optional<Item> next() {
    const std::shared_ptr<void> item = engine_.next();
    if (!item) return std::nullopt;
    return std::move(*static_cast<Item*>(item.get()));
  }

 private:
  PipelineEngine engine_;
};

}  // namespace detail

/// The base of samplers and loaders: a loop passes once over the seeds and yields mini-batches (of
/// type Item) in order, prepared ahead by `num_workers` threads (without gradients); the next loop
/// is the next epoch, with new draws. Leaving a loop early ends its workers. An error in a worker
/// is rethrown in the loop, at its batch. One loop at a time.
template <class Item>
class Batches {
 public:
  /// The pass of a number, from 0.
  using MakeEpoch = std::function<std::shared_ptr<const Epoch<Item>>(std::int64_t epoch)>;
  struct Sentinel {};  ///< the end of every loop

  /// The position of a loop; owns its workers and one batch.
  class Iterator {
   public:
    explicit Iterator(std::unique_ptr<detail::Pipeline<Item>> pipeline)
        : pipeline_(std::move(pipeline)) {
      advance();
    }
    Item& operator*() { return *item_; }
    Item* operator->() { return &*item_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    friend bool operator==(const Iterator& left, Sentinel) { return !left.item_; }

   private:
    void advance() {
      item_.reset();  // frees the batch before it waits for the next one
      item_ = pipeline_->next();
    }
    std::unique_ptr<detail::Pipeline<Item>> pipeline_;
    std::optional<Item> item_;
  };

  /// make_epoch: the pass of each number, from 0. Throws InvalidArgument for bad options.
  Batches(MakeEpoch make_epoch, PipelineOptions options)
      : make_epoch_(std::move(make_epoch)), options_(options) {
    detail::check_pipeline(options_);
  }

  /// Begins the next epoch (the first is 0), or the position of start_at(). Throws InvalidArgument
  /// if the epoch lacks the batch of start_at(), and after 2^20 epochs.
  Iterator begin() {
    check_epoch("begin", epoch_);
    const std::shared_ptr<const Epoch<Item>> epoch = make_epoch_(epoch_);
    const std::int64_t first = std::exchange(first_batch_, 0);
    MEZZO_CHECK(first <= epoch->num_batches(),
                "start_at: expected a batch of at most {}, the number in epoch {}, got {}",
                epoch->num_batches(), epoch_, first);
    ++epoch_;
    return Iterator(std::make_unique<detail::Pipeline<Item>>(
        maker(epoch), first, epoch->num_batches(), options_, workspaces_, counters_));
  }
  Sentinel end() const { return {}; }

  /// The number of the next loop's epoch.
  std::int64_t epoch() const { return epoch_; }
  /// The next loop begins at this batch of this epoch (both from 0), to resume an interrupted run.
  /// If `batch` is the number of batches, the loop is empty. Throws InvalidArgument for negative
  /// numbers and for an epoch of 2^20 or more.
  void start_at(std::int64_t epoch, std::int64_t batch = 0) {
    check_epoch("start_at", epoch);
    MEZZO_CHECK(batch >= 0, "start_at: expected a batch of at least 0, got {}", batch);
    epoch_ = epoch;
    first_batch_ = batch;
  }
  /// Batches of the next epoch. May prepare the epoch: O(seeds).
  std::int64_t num_batches() const { return make_epoch_(epoch_)->num_batches(); }
  /// One batch, the same as in a loop, prepared by the caller; does not affect the next loop.
  /// Throws InvalidArgument if the epoch has no such batch.
  Item batch(std::int64_t epoch, std::int64_t index) const {
    check_epoch("batch", epoch);
    const auto pass = make_epoch_(epoch);
    MEZZO_CHECK(index >= 0 && index < pass->num_batches(),
                "batch: expected an index in [0, {}), got {}", pass->num_batches(), index);
    return *detail::Pipeline<Item>(maker(pass), index, index + 1, {}, workspaces_, counters_)
                .next();
  }

  /// Sums over all batches so far; see PipelineStatistics.
  PipelineStatistics statistics() const { return counters_->read(); }

 private:
  /// Later epochs would repeat the random numbers of earlier ones.
  static void check_epoch(const char* what, std::int64_t epoch) {
    MEZZO_CHECK(epoch >= 0 && epoch < kMostEpochs, "{}: expected an epoch in [0, {}), got {}", what,
                kMostEpochs, epoch);
  }
  auto maker(std::shared_ptr<const Epoch<Item>> epoch) const {
    return
        [epoch = std::move(epoch), counters = counters_](std::int64_t index, Workspace& workspace) {
          PipelineStatistics statistics;
          Item item = epoch->make(index, workspace, statistics);
          counters->add(statistics);
          return item;
        };
  }

  MakeEpoch make_epoch_;
  PipelineOptions options_;
  std::int64_t epoch_ = 0, first_batch_ = 0;
  std::shared_ptr<detail::WorkspacePool> workspaces_ = std::make_shared<detail::WorkspacePool>();
  std::shared_ptr<detail::PipelineCounters> counters_ =
      std::make_shared<detail::PipelineCounters>();
};

}  // namespace mezzo
