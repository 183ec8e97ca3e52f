#include "mezzo/dist/data_parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/nn/module.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/collective_check.h"
#include "mezzo/dist/group/engine.h"
#include "mezzo/dist/group/group_state.h"
#include "mezzo/dist/rendezvous/rendezvous.h"

namespace mezzo::dist {
namespace detail {

c10::intrusive_ptr<c10d::ProcessGroup> engine_of(const ProcessGroup& group) {
  using Engine = c10::intrusive_ptr<c10d::ProcessGroup>;
  return Engine::reclaim_copy(static_cast<c10d::ProcessGroup*>(group.engine().get()));
}

/// c10d's Reducer, with access to the parameters that it still waits for. Has no Logger: the
/// Reducer uses it only after prepare_for_forward(), which is never called.
class StepReducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  void begin(const std::vector<at::Tensor>& outputs) {
    {
      const std::lock_guard lock(mutex_);
      std::fill(backward_stats_.begin(), backward_stats_.end(), kNotReady);
    }
    prepare_for_backward(outputs);
  }

  /// Whether gradients have arrived since begin() but their means are not written back.
  bool is_unfinished() const {
    const std::lock_guard lock(mutex_);
    return require_finalize_;
  }

  /// Parameters without a gradient since begin(); empty if all buckets have been started.
  std::vector<std::size_t> missing() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> indices;
    if (next_bucket_ == buckets_.size()) return indices;
    for (std::size_t i = 0; i < backward_stats_.size(); ++i) {
      if (backward_stats_[i] == kNotReady) indices.push_back(i);
    }
    return indices;
  }

 private:
  static constexpr std::int64_t kNotReady = -1;  // the Reducer writes elapsed times
};

/// State of a step; shared with the hooks, which may outlive the DataParallel.
struct StepGuard {
  std::atomic<bool> prepared = false;
  std::atomic<int> no_sync = 0;
};

/// Averages a bucket according to `traffic`; errors as for the group's own collectives.
class MeanHook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  MeanHook(const ProcessGroup& group, GradientTraffic traffic)
      : CppCommHookInterface(engine_of(group)), group_(group.state()), traffic_(traffic) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor buffer = bucket.getBuffer();
    const at::Tensor sent = buffer.to(traffic_dtype(traffic_, buffer.scalar_type()));
    const std::int64_t ranks = state_->getSize();
    const auto live = group_.lock();
    if (live != nullptr) {
      check_same_call(
          *live, kReduction,
          fmt::format("{} in bucket {} of {}", kReduction, bucket.getIndex(), text_of(sent)));
    }
    const auto begun = std::chrono::steady_clock::now();
    const auto arrive = [buffer, sent, ranks, begun,
                         group = group_](c10::ivalue::Future& done) -> c10::IValue {
      if (done.hasError()) fail(group, done.exception_ptr(), begun);
      const at::NoGradGuard no_grad;
      const at::Tensor mean = divided(sent, ranks);
      if (!mean.is_same(buffer)) buffer.copy_(mean);
      return buffer;
    };
    try {
      std::vector<at::Tensor> tensors = {sent};
      const WorkPointer work = state_->allreduce(tensors);
      if (live != nullptr) live->add(work);
      return work->getFuture()->then(arrive, c10::TensorType::get());
    } catch (...) {
      fail(group_, std::current_exception(), begun);
    }
  }

 private:
  using WeakGroup = std::weak_ptr<ProcessGroup::State>;

  static constexpr const char* kReduction = "all_reduce of gradients";

  [[noreturn]] static void fail(const WeakGroup& group, const std::exception_ptr& failure,
                                std::chrono::steady_clock::time_point begun) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      const auto live = group.lock();
      if (live == nullptr) throw;
      live->fail(kReduction, error, begun + live->timeout);
    }
  }

  WeakGroup group_;  // weak: Gloo's threads must not destroy the group
  GradientTraffic traffic_;
};

}  // namespace detail

namespace {

using detail::StepGuard;
using detail::StepReducer;

constexpr const char* kPrepare = "DataParallel::prepare";

/// The trained parameters, without duplicates.
struct NamedTensors {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

NamedTensors trained_parameters(const torch::nn::Module& module) {
  NamedTensors trained;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.requires_grad()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    trained.names.push_back(item.key());
    trained.tensors.push_back(parameter);
  }
  MEZZO_CHECK(!trained.tensors.empty(),
              "dist::DataParallel: expected a module with parameters that require a gradient, got "
              "none");
  return trained;
}

/// One bucket until the order of gradients is known, to separate its collectives from collectives
/// of the module's own backward; if the order may change, buckets by size from the start.
std::vector<std::vector<std::size_t>> first_buckets(const std::vector<at::Tensor>& parameters,
                                                    const DataParallelOptions& options,
                                                    std::size_t first_bytes) {
  const auto limits =
      options.find_unused_parameters
          ? std::vector<std::size_t>{first_bytes, static_cast<std::size_t>(options.bucket_bytes)}
          : std::vector<std::size_t>{std::numeric_limits<std::size_t>::max()};
  auto [buckets, unused_limits] = c10d::compute_bucket_assignment_by_size(parameters, limits);
  std::reverse(buckets.begin(), buckets.end());  // gradients come from the last layer first
  return buckets;
}

std::shared_ptr<StepReducer> make_reducer(const NamedTensors& trained, const ProcessGroup& group,
                                          const DataParallelOptions& options) {
  const auto engine = detail::engine_of(group);
  const auto first_bytes =
      std::min<std::int64_t>(options.bucket_bytes, c10d::kDefaultFirstBucketBytes);
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < trained.names.size(); ++i) names[i] = trained.names[i];
  auto reducer = std::make_shared<StepReducer>(
      trained.tensors,
      first_buckets(trained.tensors, options, static_cast<std::size_t>(first_bytes)), engine,
      std::vector<bool>(trained.tensors.size(), false), options.bucket_bytes,
      options.find_unused_parameters, /*gradient_as_bucket_view=*/false, std::move(names),
      first_bytes, /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
  reducer->register_comm_hook(std::make_unique<detail::MeanHook>(group, options.traffic));
  return reducer;
}

}  // namespace

struct DataParallel::State {
  std::shared_ptr<torch::nn::Module> module;
  ProcessGroup group;
  std::shared_ptr<const std::vector<std::string>> names;
  std::vector<at::Tensor> parameters;
  std::vector<unsigned> hooks;  // one per parameter
  std::shared_ptr<StepGuard> guard = std::make_shared<StepGuard>();
  std::shared_ptr<StepReducer> reducer;  // null for one process
  std::string step;                      // description of prepare(), compared between ranks

  void refuse_unprepared();
  void watch(const at::Tensor& output);
};

/// Without prepare() each rank would keep its own gradients.
void DataParallel::State::refuse_unprepared() {
  for (const at::Tensor& parameter : parameters) {
    hooks.push_back(parameter.register_hook([step = guard](const at::Tensor& /*gradient*/) {
      if (step->prepared || step->no_sync > 0) return;
      mezzo::detail::raise<LogicError>(
          "dist::DataParallel: backward() without prepare() for this step: the gradients would "
          "not be reduced");
    }));
  }
}

/// Checks at the end of the backward from `output` that all gradients have been started.
void DataParallel::State::watch(const at::Tensor& output) {
  if (!output.requires_grad() || output.is_leaf()) return;
  const auto at_end = [step = guard, all = names, weak = std::weak_ptr(reducer)] {
    const std::shared_ptr<StepReducer> live = weak.lock();
    if (!step->prepared || live == nullptr) return;
    step->prepared = false;
    std::vector<std::string> missing;
    for (const std::size_t index : live->missing()) missing.push_back((*all)[index]);
    MEZZO_CHECK(missing.empty(),
                "dist::DataParallel: expected gradients of all parameters, got none of {} (see "
                "find_unused_parameters)",
                fmt::join(missing, ", "));
  };
  output.register_hook([at_end](const at::Tensor& /*gradient*/) {
    torch::autograd::Engine::get_default_engine().queue_callback(at_end);
  });
}

DataParallel::DataParallel(std::shared_ptr<torch::nn::Module> module, ProcessGroup group,
                           DataParallelOptions options)
    : state_(std::make_unique<State>()) {
  MEZZO_CHECK(module != nullptr, "dist::DataParallel: expected a module, got none");
  MEZZO_CHECK(options.bucket_bytes >= 1,
              "dist::DataParallel: expected bucket_bytes of at least 1, got {}",
              options.bucket_bytes);
  NamedTensors trained = trained_parameters(*module);
  broadcast_parameters(*module, group);
  if (group.world_size() > 1) {
    state_->reducer = make_reducer(trained, group, options);
    state_->step = fmt::format("{} of {} parameters in buckets of {} bytes, unused ones {}",
                               kPrepare, trained.tensors.size(), options.bucket_bytes,
                               options.find_unused_parameters ? "found" : "refused");
    state_->names = std::make_shared<const std::vector<std::string>>(std::move(trained.names));
    state_->parameters = std::move(trained.tensors);
    state_->refuse_unprepared();
  }
  state_->module = std::move(module);
  state_->group = std::move(group);
}

DataParallel::~DataParallel() {
  for (std::size_t i = 0; i < state_->hooks.size(); ++i) {
    state_->parameters[i].remove_hook(state_->hooks[i]);
  }
}

void DataParallel::prepare(const std::vector<at::Tensor>& outputs) {
  const auto check_outputs = [&outputs] {
    const bool has_gradient =
        std::any_of(outputs.begin(), outputs.end(), [](const at::Tensor& output) {
          return output.defined() && output.requires_grad() && !output.is_leaf();
        });
    MEZZO_CHECK(has_gradient,
                "dist::{}: expected an output that backward can start from, got none that requires "
                "a gradient",
                kPrepare);
  };
  if (state_->reducer == nullptr || state_->guard->no_sync > 0) return check_outputs();
  detail::check_arguments(*state_->group.state(), kPrepare, check_outputs);
  if (state_->reducer->is_unfinished()) {
    mezzo::detail::raise<LogicError>(
        "dist::DataParallel::prepare: the backward before this one did not end");
  }
  detail::check_same_call(*state_->group.state(), kPrepare, state_->step);
  try {
    state_->reducer->rebuild_buckets();
  } catch (const std::exception& error) {
    state_->group.state()->fail(kPrepare, error,
                                std::chrono::steady_clock::now() + state_->group.timeout());
  }
  state_->reducer->begin(outputs);
  state_->guard->prepared = true;
  for (const at::Tensor& output : outputs) state_->watch(output);
}

DataParallel::NoSync DataParallel::no_sync() {
  return NoSync(*this);
}

DataParallel::NoSync::NoSync(DataParallel& parallel) : parallel_(parallel) {
  ++parallel_.state_->guard->no_sync;
}

DataParallel::NoSync::~NoSync() {
  --parallel_.state_->guard->no_sync;
}

}  // namespace mezzo::dist
