#include "mezzo/sampling/batches.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <new>
#include <thread>

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/runtime/one_thread.h"
#include "mezzo/sampling/loader_support.h"

namespace mezzo::detail {
namespace {

constexpr std::int64_t kPipelineMaxWorkers = 256;
constexpr std::int64_t kPipelineMaxPrefetch = 1024;

/// An item, or the error of preparing it.
struct PreparedItem {
  bool is_ready = false;
  std::shared_ptr<void> value = nullptr;
  std::exception_ptr error = nullptr;
};

}  // namespace

void check_pipeline(const PipelineOptions& options) {
  MEZZO_CHECK(options.num_workers >= 0 && options.num_workers <= kPipelineMaxWorkers,
              "num_workers: expected 0 to {}, got {}", kPipelineMaxWorkers, options.num_workers);
  MEZZO_CHECK(options.prefetch >= 1 && options.prefetch <= kPipelineMaxPrefetch,
              "prefetch: expected 1 to {}, got {}", kPipelineMaxPrefetch, options.prefetch);
}

void PipelineCounters::add(const PipelineStatistics& part) {
  const std::lock_guard lock(mutex_);
  sums_.batches += part.batches;
  sums_.sampled_edges += part.sampled_edges;
  sums_.sampled_nodes += part.sampled_nodes;
  sums_.sample_seconds += part.sample_seconds;
  sums_.gather_seconds += part.gather_seconds;
  sums_.transfer_seconds += part.transfer_seconds;
  sums_.wait_seconds += part.wait_seconds;
}

PipelineStatistics PipelineCounters::read() const {
  const std::lock_guard lock(mutex_);
  return sums_;
}

Workspace WorkspacePool::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return {};
  Workspace workspace = std::move(idle_.back());
  idle_.pop_back();
  return workspace;
}

void WorkspacePool::give_back(Workspace workspace) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    idle_.push_back(std::move(workspace));
  } catch (const std::bad_alloc&) {  // frees the workspace
  }
}

class PipelineEngine::State {
 public:
  State(Make make, std::int64_t first, std::int64_t end, PipelineOptions options,
        std::shared_ptr<WorkspacePool> pool, std::shared_ptr<PipelineCounters> counters)
      : make_(std::move(make)),
        pool_(std::move(pool)),
        counters_(std::move(counters)),
        next_(first),
        unclaimed_(first),
        end_(std::max(first, end)) {
    const auto num_workers = static_cast<std::size_t>(std::min(options.num_workers, end_ - first));
    items_.resize(num_workers * static_cast<std::size_t>(options.prefetch));
    workspaces_.resize(std::max<std::size_t>(num_workers, 1));
    for (Workspace& workspace : workspaces_) workspace = pool_->take();
    start(num_workers);
  }

  ~State() {
    stop();
    for (Workspace& workspace : workspaces_) pool_->give_back(std::move(workspace));
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<void> next() {
    Stopwatch watch;
    PreparedItem item = workers_.empty() ? make_next() : wait_for_next();
    if (item.error) std::rethrow_exception(item.error);
    if (item.value) counters_->add({.batches = 1, .wait_seconds = watch.lap()});
    return std::move(item.value);
  }

 private:
  void start(std::size_t num_workers) {
    workers_.reserve(num_workers);
    try {
      for (std::size_t i = 0; i < num_workers; ++i) {
        workers_.emplace_back([this, i] { work(workspaces_[i]); });
      }
    } catch (...) {  // the destructor will not run
      stop();
      throw;
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      end_ = next_;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  PreparedItem& item_at(std::int64_t index) {
    return items_[static_cast<std::size_t>(index) % items_.size()];
  }

  PreparedItem prepare(std::int64_t index, Workspace& workspace) const {
    const c10::InferenceMode no_inference(false);  // the caller's mode must not change a batch
    const c10::NoGradGuard no_grad;
    PreparedItem item{.is_ready = true};
    try {
      item.value = make_(index, workspace);
    } catch (...) {
      item.error = std::current_exception();
    }
    return item;
  }

  void work(Workspace& workspace) {
    const auto may_claim = [this] {
      return unclaimed_ >= end_ || unclaimed_ - next_ < static_cast<std::int64_t>(items_.size());
    };
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, may_claim);
      if (unclaimed_ >= end_) return;
      const std::int64_t index = unclaimed_++;
      lock.unlock();
      const OneThread one_thread;
      PreparedItem item = prepare(index, workspace);
      lock.lock();
      if (item.error) end_ = std::min(end_, index + 1);
      item_at(index) = std::move(item);
      ready_.notify_one();
    }
  }

  PreparedItem make_next() {
    if (next_ >= end_) return {};
    PreparedItem item = prepare(next_, workspaces_.front());
    ++next_;
    if (item.error) end_ = next_;
    return item;
  }

  PreparedItem wait_for_next() {
    std::unique_lock lock(mutex_);
    if (next_ >= end_) return {};
    ready_.wait(lock, [this] { return item_at(next_).is_ready; });
    PreparedItem item = std::exchange(item_at(next_), PreparedItem{});
    ++next_;
    lock.unlock();
    room_.notify_all();
    return item;
  }

  Make make_;
  std::shared_ptr<WorkspacePool> pool_;
  std::shared_ptr<PipelineCounters> counters_;
  std::vector<Workspace> workspaces_;  ///< one per worker, or the caller's
  std::mutex mutex_;                   ///< guards the members below except workers_
  std::condition_variable room_, ready_;
  std::int64_t next_;                ///< the item that next() returns
  std::int64_t unclaimed_;           ///< the item that a worker starts next
  std::int64_t end_;                 ///< past the last item; lowered by an error and by stop()
  std::vector<PreparedItem> items_;  ///< items [next_, unclaimed_), at index modulo size
  std::vector<std::thread> workers_;
};

PipelineEngine::PipelineEngine(Make make, std::int64_t first, std::int64_t end,
                               PipelineOptions options, std::shared_ptr<WorkspacePool> workspaces,
                               std::shared_ptr<PipelineCounters> counters) {
  check_pipeline(options);
  state_ = std::make_unique<State>(std::move(make), first, end, options, std::move(workspaces),
                                   std::move(counters));
}

PipelineEngine::~PipelineEngine() = default;

std::shared_ptr<void> PipelineEngine::next() {
  return state_->next();
}

}  // namespace mezzo::detail
