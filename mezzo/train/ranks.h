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
#include "mezzo/train/step.h"

namespace torch::nn {
class Module;
}

namespace mezzo {

/// The processes that train one model. Every member that communicates is called by all of them, in
/// the same order, and throws IoError where another one fails; for one process it does nothing.
/// Internal to train; not exported.
class Ranks {
 public:
  /// device: of the run.
  Ranks(dist::ProcessGroup group, at::Device device) : group_(std::move(group)), device_(device) {}

  bool alone() const { return group_.world_size() == 1; }
  /// Whether this process evaluates, and writes files.
  bool is_first() const { return group_.rank() == 0; }
  std::int64_t rank() const { return group_.rank(); }
  std::int64_t world_size() const { return group_.world_size(); }
  /// Of this machine.
  std::int64_t local_world_size() const { return group_.local_world_size(); }
  /// Spent in communication so far, which includes waiting for slower processes.
  double seconds() const { return seconds_; }
  /// From here on: what came before was no training.
  void reset_seconds() { seconds_ = 0; }

  /// Throws InvalidArgument on all processes unless `text`, which says `what`, is the same on all.
  void check_same(const std::string& what, const std::string& text);
  /// The same of what the processes have read: of a whole data set its sizes, labels, masks, edges
  /// and features, by hashes of all values; of features of more than 64 MiB only some thousand rows
  /// are read. Of parts the facts of the whole.
  void check_same_data(const Dataset& dataset);

  /// This process's share of the training nodes; as many on each. Does not communicate. Throws
  /// InvalidArgument where there are fewer nodes than processes.
  TrainingNodes share_of(const TrainingNodes& nodes, std::uint64_t seed) const;
  /// The training nodes of this process's own part of the data, and the first of them again until
  /// there are as many as in the part that has most.
  TrainingNodes filled_up(const TrainingNodes& nodes);
  /// For what a process draws by itself. That of the first one, or of one alone, is `seed`.
  std::uint64_t seed_of_draws(std::uint64_t seed) const;
  /// Seeds libtorch's generators for a step, counted from 0, so that processes draw different
  /// numbers and a resumed run the same.
  void seed_step(std::uint64_t seed, std::int64_t step) const;

  /// Runs `work`, which does not communicate and in which some processes may fail. Then all throw:
  /// those their own exception, the others the first one's with its rank in front. One exchange of
  /// a number.
  void together(const std::function<void()>& work);
  /// Runs `work`, in which this process alone may fail, and passes on its exceptions. Over Gloo the
  /// others find the reason in what they wait for (ProcessGroup::give_up).
  template <class Work>
  auto or_give_up(const Work& work) const {
    try {
      return work();
    } catch (...) {
      give_up();
      throw;
    }
  }

  /// The first process's text, on all; `text` counts there alone.
  std::string from_first(const std::string& text) { return from(0, text); }
  Scores from_first(const Scores& scores);
  /// The mean over all nodes of the processes' own scores, each over `counts` nodes; NaN where no
  /// process has any.
  Scores mean(const Scores& own, const Scores& counts);
  std::vector<double> sums(const std::vector<double>& own);
  double largest(double own);
  /// Batch normalization over the rows of all processes, for TrainState; empty for one. What it
  /// communicates, within forward and backward, is not in seconds().
  nn::NormalizationFactory batch_normalization() const;
  /// Gives the module the first process's weights.
  void share_weights(torch::nn::Module& module);
  /// Each gradient becomes the mean over the processes, the totals their sum (in float32). Returns
  /// whether some process asks for the end (`stop`). One exchange for all that fits in a bucket; in
  /// bfloat16 traffic one more. `meanwhile`, unless empty, is called while it goes on; its time is
  /// not in seconds().
  bool exchange(const torch::nn::Module& module, LossTotals& totals, bool stop,
                dist::GradientTraffic traffic, const std::function<void()>& meanwhile);

 private:
  std::string from(std::int64_t root, const std::string& text);
  /// To be called in a handler.
  void give_up() const;
  template <class Communicate>
  void timed(const Communicate& communicate);

  dist::ProcessGroup group_;
  at::Device device_;
  double seconds_ = 0;
};

}  // namespace mezzo
