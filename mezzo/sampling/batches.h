#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "mezzo/core/error.h"
#include "mezzo/sampling/batch_key.h"
#include "mezzo/sampling/pipeline.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// One pass over the seeds, cut into mini-batches. make() may be called from several threads, each
/// with a workspace of its own; a batch depends on its index alone.
template <class Item>
class Epoch {
 public:
  virtual ~Epoch() = default;
  virtual std::int64_t num_batches() const = 0;  ///< of this pass
  /// The batch `index`, in [0, num_batches()).
  virtual Item make(std::int64_t index, Workspace& workspace) const = 0;
};

/// What samplers and loaders have in common: iterating one passes once over its seeds and gives
/// mini-batches (of type Item), in order, prepared ahead by `num_workers` threads (without
/// gradients); the next loop is the next epoch and draws anew. Leaving a loop early ends its
/// workers at once. A fault in a worker is thrown by the loop, at the batch that has it. One loop
/// at a time.
template <class Item>
class Batches {
 public:
  /// The pass of a number, from 0.
  using MakeEpoch = std::function<std::shared_ptr<const Epoch<Item>>(std::int64_t epoch)>;
  struct Sentinel {};  ///< the end of every loop

  /// Where a loop stands; holds its workers, and one batch at a time.
  class Iterator {
   public:
    explicit Iterator(std::unique_ptr<Pipeline<Item>> pipeline) : pipeline_(std::move(pipeline)) {
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
      item_.reset();  // frees the batch before the next one is waited for
      item_ = pipeline_->next();
    }
    std::unique_ptr<Pipeline<Item>> pipeline_;
    std::optional<Item> item_;
  };

  /// make_epoch: the pass of each number, from 0. options: see PipelineOptions. counters: those to
  /// which the epochs' make() adds what it drew and how long its stages took.
  Batches(MakeEpoch make_epoch, PipelineOptions options,
          std::shared_ptr<PipelineCounters> counters = std::make_shared<PipelineCounters>())
      : make_epoch_(std::move(make_epoch)), options_(options), counters_(std::move(counters)) {
    check_pipeline(options_);
  }

  /// Begins the next epoch (the first is 0), or the one that start_at() named. Throws
  /// InvalidArgument where start_at() named a batch that the epoch does not have, and for more than
  /// 2^20 epochs.
  Iterator begin() {
    check_epoch("begin", epoch_);
    const std::shared_ptr<const Epoch<Item>> epoch = make_epoch_(epoch_);
    const std::int64_t first = std::exchange(first_batch_, 0);
    MEZZO_CHECK(first <= epoch->num_batches(),
                "start_at: expected a batch of at most {}, the number in epoch {}, got {}",
                epoch->num_batches(), epoch_, first);
    ++epoch_;
    return Iterator(std::make_unique<Pipeline<Item>>(maker(epoch), first, epoch->num_batches(),
                                                     options_, workspaces_, counters_));
  }
  Sentinel end() const { return {}; }

  /// The number of the epoch that the next loop passes through.
  std::int64_t epoch() const { return epoch_; }
  /// The next loop begins at this batch of this epoch (both from 0): what an interrupted run needs.
  /// At the number of batches it begins at the end. Throws InvalidArgument for negative ones,
  /// and for an epoch of 2^20 or more.
  void start_at(std::int64_t epoch, std::int64_t batch = 0) {
    check_epoch("start_at", epoch);
    MEZZO_CHECK(batch >= 0, "start_at: expected a batch of at least 0, got {}", batch);
    epoch_ = epoch;
    first_batch_ = batch;
  }
  /// Batches of the next epoch. May prepare the epoch: O(seeds).
  std::int64_t num_batches() const { return make_epoch_(epoch_)->num_batches(); }
  /// One batch by itself, equal to that of a loop; does not change what the next loop gives. Made
  /// by the caller. Throws InvalidArgument for a batch that the epoch does not have.
  Item batch(std::int64_t epoch, std::int64_t index) const {
    check_epoch("batch", epoch);
    const auto made = make_epoch_(epoch);
    MEZZO_CHECK(index >= 0 && index < made->num_batches(),
                "batch: expected an index in [0, {}), got {}", made->num_batches(), index);
    return *Pipeline<Item>(maker(made), index, index + 1, {}, workspaces_, counters_).next();
  }

  /// What the batches took so far; see PipelineStatistics.
  PipelineStatistics statistics() const { return counters_->read(); }

 private:
  /// Later epochs would draw the numbers of earlier ones again.
  static void check_epoch(const char* what, std::int64_t epoch) {
    MEZZO_CHECK(epoch >= 0 && epoch < kMostEpochs, "{}: expected an epoch in [0, {}), got {}", what,
                kMostEpochs, epoch);
  }
  static auto maker(std::shared_ptr<const Epoch<Item>> epoch) {
    return [epoch = std::move(epoch)](std::int64_t index, Workspace& workspace) {
      return epoch->make(index, workspace);
    };
  }

  MakeEpoch make_epoch_;
  PipelineOptions options_;
  std::int64_t epoch_ = 0, first_batch_ = 0;
  std::shared_ptr<WorkspacePool> workspaces_ = std::make_shared<WorkspacePool>();
  std::shared_ptr<PipelineCounters> counters_;
};

}  // namespace mezzo
