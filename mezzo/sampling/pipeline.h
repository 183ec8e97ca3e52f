#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "mezzo/core/export.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// Who prepares the batches of a pass.
struct PipelineOptions {
  std::int64_t num_workers = 0;  ///< threads that prepare batches ahead, in [0, 256]; 0: the caller
  std::int64_t prefetch = 2;     ///< batches ready or in work for each worker, in [1, 1024]
};

/// Throws InvalidArgument unless num_workers is in [0, 256] and prefetch in [1, 1024].
MEZZO_API void check_pipeline(const PipelineOptions& options);

/// Times of a pipeline's stages; plain values. Seconds are summed over the workers.
struct PipelineStatistics {
  std::int64_t batches = 0;        ///< given out
  std::int64_t sampled_edges = 0;  ///< over all batches made
  std::int64_t sampled_nodes = 0;  ///< unique input nodes, likewise
  double sample_seconds = 0;       ///< drawing and renumbering
  double gather_seconds = 0;       ///< rows of features and labels
  double transfer_seconds = 0;     ///< copies to the device; what gradients need, built ahead
  double wait_seconds = 0;         ///< the caller waited for a batch
  /// Sampled edges for each second of one worker's sampling; 0 where nothing was sampled.
  double edges_per_second() const {
    return sample_seconds > 0 ? static_cast<double>(sampled_edges) / sample_seconds : 0;
  }
};

/// Running sums of what batches took, to which several threads add.
class MEZZO_API PipelineCounters {
 public:
  /// Adds each member; safe from several threads.
  void add(const PipelineStatistics& part);
  PipelineStatistics read() const;  ///< the sums so far; safe from several threads

 private:
  mutable std::mutex mutex_;
  PipelineStatistics sums_;
};

/// Workspaces that wait to be used again: those of the workers of one pass serve the next. Safe
/// from several threads.
class MEZZO_API WorkspacePool {
 public:
  /// A kept workspace, or a new one.
  Workspace take();
  /// Keeps it, or frees it where there is no memory to keep it in.
  void give_back(Workspace workspace) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Workspace> kept_;
};

namespace detail {

/// Times stages one after another.
class Stopwatch {
 public:
  /// Seconds since the last lap, or since the start.
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

/// What Pipeline does with items of any type.
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

}  // namespace detail

/// Items first, first + 1, ... of a pass, in this order, prepared ahead by threads of its own: at
/// most num_workers * prefetch are ready or in work. A worker counts as one thread: what it calls
/// opens no team of threads; gradients are off. One thread takes the items.
template <class Item>
class Pipeline {
 public:
  /// make: the item of an index, called by several threads at once, each with a workspace of its
  /// own. Starts the workers. options: see PipelineOptions, checked.
  Pipeline(std::function<Item(std::int64_t, Workspace&)> make, std::int64_t first, std::int64_t end,
           PipelineOptions options, std::shared_ptr<WorkspacePool> workspaces,
           std::shared_ptr<PipelineCounters> counters)
      : engine_(
            [make = std::move(make)](std::int64_t index, Workspace& workspace) {
              return std::static_pointer_cast<void>(std::make_shared<Item>(make(index, workspace)));
            },
            first, end, options, std::move(workspaces), std::move(counters)) {}

  /// The next item, waited for; none after the last. Throws what `make` threw for it, after which
  /// the pass is over. Leaving (the destructor) waits for no more than the items in work.
  std::optional<Item> next() {
    const std::shared_ptr<void> item = engine_.next();
    if (!item) return std::nullopt;
    return std::move(*static_cast<Item*>(item.get()));
  }

 private:
  detail::PipelineEngine engine_;
};

}  // namespace mezzo
