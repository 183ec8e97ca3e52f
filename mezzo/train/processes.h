#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/steps/step.h"

namespace torch::nn {
class Module;
}

namespace mezzo {

/// The processes that train one model. All of them must call every member that communicates, in the
/// same order; it throws IoError if another process fails, and does nothing for one process.
/// Internal to train; not exported.
class Processes {
 public:
  /// device: of the run.
  Processes(dist::ProcessGroup group, at::Device device)
      : group_(std::move(group)), device_(device) {}

  bool alone() const { return group_.world_size() == 1; }
  /// Whether this process evaluates, and writes files.
  bool is_first() const { return index() == 0; }
  /// Of this process, from 0: its rank in dist and in errors.
  std::int64_t index() const { return group_.rank(); }
  std::int64_t world_size() const { return group_.world_size(); }
  /// The processes of this machine.
  std::int64_t local_world_size() const { return group_.local_world_size(); }
  /// Time spent in communication, including the wait for slower processes.
  double seconds() const { return seconds_; }
  /// Sets seconds() to 0.
  void reset_seconds() { seconds_ = 0; }

  /// Throws InvalidArgument on all processes unless `text` is equal on all. what: for the error.
  void check_same(const std::string& what, const std::string& text);
  /// The same for the data. A whole data set: its sizes and content_hashes(). A part: the sizes of
  /// the whole.
  void check_same_data(const Dataset& dataset);

  /// This process's share of the training rows, equally many on each. Does not communicate. Throws
  /// InvalidArgument for fewer rows than processes.
  TrainingRows share_of(const TrainingRows& rows, std::uint64_t seed) const;
  /// The training nodes of this process's part of the data, repeated from the first up to the
  /// largest number of any part.
  TrainingRows padded(const TrainingRows& nodes);
  /// A seed for the sampler of this process; that of process 0 is `seed`.
  std::uint64_t sampler_seed(std::uint64_t seed) const;
  /// Seeds libtorch's generators for a step, counted from 0, so that processes draw different
  /// numbers and a resumed run the same.
  void seed_step(std::uint64_t seed, std::int64_t step) const;

  /// Runs `work`, which must not communicate. If it throws on some processes, all throw: the failed
  /// ones their own exception, the others the exception of the first failed one, with its rank in
  /// front. One all-reduce of a number.
  void together(const std::function<void()>& work);
  /// Runs `work`, which may fail on this process alone, and rethrows its exceptions. With Gloo the
  /// other processes get the reason from their collective (ProcessGroup::give_up).
  template <class Work>
  auto or_give_up(const Work& work) const {
    try {
      return work();
    } catch (...) {
      give_up();
      throw;
    }
  }

  /// Broadcasts the text of process 0.
  std::string from_first(const std::string& text) { return from(0, text); }
  Scores from_first(const Scores& scores);
  /// The mean over all nodes of the processes' own scores, each over `counts` nodes; NaN without
  /// nodes.
  Scores mean(const Scores& own, const Scores& counts);
  std::vector<double> sums(const std::vector<double>& own);
  double largest(double own);
  /// Batch normalization over the rows of all processes, for TrainState; empty for one process. Its
  /// communication is not in seconds().
  nn::NormalizationFactory batch_normalization() const;
  /// Broadcasts the weights of process 0.
  void share_weights(torch::nn::Module& module);
  /// Averages each gradient over the processes and sums the totals (in float32). Returns whether
  /// `stop` is true on some process. One all-reduce a bucket; with bfloat16 traffic one more.
  /// `meanwhile`, unless empty, runs during the communication; its time is not in seconds().
  bool exchange(const torch::nn::Module& module, LossTotals& totals, bool stop,
                dist::GradientTraffic traffic, const std::function<void()>& meanwhile);

 private:
  std::string from(std::int64_t root, const std::string& text);
  /// Call this in a catch block.
  void give_up() const;
  template <class Communicate>
  void timed(const Communicate& communicate);

  dist::ProcessGroup group_;
  at::Device device_;
  double seconds_ = 0;
};

}  // namespace mezzo
