#include "mezzo/sampling/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <new>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <omp.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

constexpr std::int64_t kPipelineMaxWorkers = 256;
constexpr std::int64_t kPipelineMaxPrefetch = 1024;

/// Parallel regions that the calling thread opens have one thread from now on; those of other
/// threads are as before. libtorch sets a thread's number when the thread first asks for it, and so
/// does each library that has its own copy of libtorch's inline functions: both are asked first.
void count_as_one_thread() {
  static_cast<void>(at::get_num_threads());
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(1);
}

/// What came of preparing one item.
struct Slot {
  bool is_ready = false;
  std::shared_ptr<void> item = nullptr;
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
  if (kept_.empty()) return {};
  Workspace workspace = std::move(kept_.back());
  kept_.pop_back();
  return workspace;
}

void WorkspacePool::give_back(Workspace workspace) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    kept_.push_back(std::move(workspace));
  } catch (const std::bad_alloc&) {  // the workspace is freed, and a later pass makes a new one
  }
}

namespace detail {

class PipelineEngine::State {
 public:
  State(Make make, std::int64_t first, std::int64_t end, PipelineOptions options,
        std::shared_ptr<WorkspacePool> pool, std::shared_ptr<PipelineCounters> counters)
      : make_(std::move(make)),
        pool_(std::move(pool)),
        counters_(std::move(counters)),
        given_(first),
        claimed_(first),
        end_(std::max(first, end)) {
    const auto num_workers = static_cast<std::size_t>(std::min(options.num_workers, end_ - first));
    slots_.resize(num_workers * static_cast<std::size_t>(options.prefetch));
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
    Slot slot = workers_.empty() ? make_next() : wait_for_next();
    if (slot.error) std::rethrow_exception(slot.error);
    if (slot.item) counters_->add({.batches = 1, .wait_seconds = watch.lap()});
    return std::move(slot.item);
  }

 private:
  void start(std::size_t num_workers) {
    workers_.reserve(num_workers);
    try {
      for (std::size_t i = 0; i < num_workers; ++i) {
        workers_.emplace_back([this, i] { work(workspaces_[i]); });
      }
    } catch (...) {  // no more threads to be had: the destructor will not run
      stop();
      throw;
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      end_ = given_;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  Slot& slot_of(std::int64_t index) {
    return slots_[static_cast<std::size_t>(index) % slots_.size()];
  }

  Slot prepare(std::int64_t index, Workspace& workspace) const {
    const c10::InferenceMode no_inference(false);  // a batch is the same whoever makes it
    const c10::NoGradGuard no_grad;
    Slot slot{.is_ready = true};
    try {
      slot.item = make_(index, workspace);
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  void work(Workspace& workspace) {
    const auto may_claim = [this] {
      return claimed_ >= end_ || claimed_ - given_ < static_cast<std::int64_t>(slots_.size());
    };
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, may_claim);
      if (claimed_ >= end_) return;
      const std::int64_t index = claimed_++;
      lock.unlock();
      count_as_one_thread();
      Slot made = prepare(index, workspace);
      lock.lock();
      if (made.error) end_ = std::min(end_, index + 1);
      slot_of(index) = std::move(made);
      ready_.notify_one();
    }
  }

  Slot make_next() {
    if (given_ >= end_) return {};
    Slot slot = prepare(given_, workspaces_.front());
    ++given_;
    if (slot.error) end_ = given_;
    return slot;
  }

  Slot wait_for_next() {
    std::unique_lock lock(mutex_);
    if (given_ >= end_) return {};
    ready_.wait(lock, [this] { return slot_of(given_).is_ready; });
    Slot slot = std::exchange(slot_of(given_), Slot{});
    ++given_;
    lock.unlock();
    room_.notify_all();
    return slot;
  }

  Make make_;
  std::shared_ptr<WorkspacePool> pool_;
  std::shared_ptr<PipelineCounters> counters_;
  std::vector<Workspace> workspaces_;  ///< one a worker, or the caller's
  std::mutex mutex_;                   ///< of what follows, but for the threads themselves
  std::condition_variable room_, ready_;
  std::int64_t given_;       ///< the item that next() gives next
  std::int64_t claimed_;     ///< the item that a worker begins next
  std::int64_t end_;         ///< behind the last item; lowered by a fault and by stop()
  std::vector<Slot> slots_;  ///< of items in [given_, claimed_), at index modulo size
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

}  // namespace detail
}  // namespace mezzo
