#include "mezzo/amp/watch/watch.h"

#ifndef NDEBUG
#error "libtorch is built with NDEBUG; without it RecordFunction::inputs() throws"
#endif

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "mezzo/amp/watch/watch_recorder.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

using Recorder = std::shared_ptr<detail::WatchRecorder>;

/// Disables everything that would change or record the watch's own operations.
struct InspectionGuard {
  at::DisableRecordFunctionGuard no_recording;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::AutoDispatchBelowADInplaceOrView no_autograd;
};

/// The live recorders, and one callback per thread. libtorch's callbacks are plain functions, so
/// they look up their recorders here.
class LiveWatches {
 public:
  static LiveWatches& instance() {
    static auto* watches = new LiveWatches;  // never destroyed: threads may record until exit
    return *watches;
  }

  void add(const Recorder& recorder);
  void remove(const Recorder& recorder);

  std::vector<Recorder> all() {
    const std::lock_guard lock(mutex_);
    return recorders_;
  }

 private:
  struct Callback {
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
    int users = 0;
  };

  std::mutex mutex_;
  std::vector<Recorder> recorders_;
  std::unordered_map<std::uint64_t, Callback> callbacks_;  // by thread
};

/// The recorders that saw the start of a function and must see its end.
struct Observed : at::ObserverContext {
  std::vector<Recorder> recorders;
};

detail::WatchEvent event_of(const at::RecordFunction& function) {
  using Kind = detail::WatchEvent::Kind;
  detail::WatchEvent event{.identity = &function,
                           .op = function.operator_name(),
                           .scope = {},
                           .inputs = function.inputs(),
                           .thread = at::RecordFunction::currentThreadId(),
                           .forward_thread = function.forwardThreadId(),
                           .sequence = function.seqNr(),
                           .excluded = c10::impl::tls_local_dispatch_key_set().excluded_};
  const std::string_view name = function.name();
  if (event.op) {
    event.kind = Kind::kOperator;
  } else if (function.scope() == at::RecordScope::USER_SCOPE) {
    event.kind = Kind::kScope;
    event.scope = name;
  } else if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    event.kind = Kind::kNode;
  } else if (name.starts_with("autograd::engine::evaluate_function")) {
    event.kind = Kind::kEngine;
  }
  return event;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const detail::WatchEvent event = event_of(function);
  const InspectionGuard guard;
  auto observed = std::make_unique<Observed>();
  for (const Recorder& recorder : LiveWatches::instance().all()) {
    if (!recorder->wants(event)) continue;
    recorder->begin(event);
    observed->recorders.push_back(recorder);
  }
  return observed;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const InspectionGuard guard;
  for (const Recorder& recorder : static_cast<Observed*>(context)->recorders) {
    recorder->end(&function, at::RecordFunction::currentThreadId(), function.outputs());
  }
}

void LiveWatches::add(const Recorder& recorder) {
  const std::lock_guard lock(mutex_);
  Callback& callback = callbacks_[recorder->thread()];
  if (callback.handle == at::INVALID_CALLBACK_HANDLE) {
    // libtorch copies a thread-local callback to the backward threads of other devices.
    callback.handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_start, on_end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                     at::RecordScope::USER_SCOPE}));
  }
  ++callback.users;
  recorders_.push_back(recorder);
}

void LiveWatches::remove(const Recorder& recorder) {
  const std::lock_guard lock(mutex_);
  recorders_.erase(std::remove(recorders_.begin(), recorders_.end(), recorder), recorders_.end());
  const auto callback = callbacks_.find(recorder->thread());
  --callback->second.users;
  // Only the thread itself can remove its callback; until then the callback finds no recorder.
  const bool own_thread = recorder->thread() == at::RecordFunction::currentThreadId();
  if (!own_thread || callback->second.users > 0) return;
  at::removeCallback(callback->second.handle);
  callbacks_.erase(callback);
}

}  // namespace

std::string WatchPlace::name() const {
  const std::string module = path.empty() ? "model" : path;
  return after ? "after " + module : module;
}

Watch::Watch(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
             const WatchOptions& options)
    : recorder_(std::make_shared<detail::WatchRecorder>(named_parameters, options,
                                                        at::RecordFunction::currentThreadId())) {
  LiveWatches::instance().add(recorder_);
}

Watch::Watch(Watch&& other) noexcept = default;

Watch::~Watch() {
  if (recorder_ == nullptr) return;
  try {
    LiveWatches::instance().remove(recorder_);
    if (recorder_->thread() != at::RecordFunction::currentThreadId()) {
      TORCH_WARN("mezzo: an amp::Watch ended on another thread than the one that created it");
    }
  } catch (...) {  // a warning handler that throws must not end the program
  }
}

void Watch::next_step() {
  MEZZO_CHECK(recorder_ != nullptr, "Watch::next_step: the watch has been moved from");
  recorder_->next_step();
}

WatchReport Watch::report() const {
  MEZZO_CHECK(recorder_ != nullptr, "Watch::report: the watch has been moved from");
  return recorder_->report();
}

}  // namespace mezzo::amp
