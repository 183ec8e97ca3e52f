#include "mezzo/amp/diagnose/keep_float32.h"

#ifndef NDEBUG
#error "libtorch is built with NDEBUG; without it RecordFunction::inputs() throws"
#endif

#include <algorithm>
#include <optional>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "mezzo/amp/diagnose/module_path.h"
#include "mezzo/amp/watch/watch_operator.h"
#include "mezzo/amp/watch/watch_recorder.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

/// What the end of a recorded function restores.
struct Restore : at::ObserverContext {
  std::optional<at::ScalarType> dtype;  // empty: a scope ends
};

}  // namespace

/// libtorch calls the observers before the kernel that autocast registered, which then reads the
/// dtype of the region. With float32 as that dtype it casts its arguments to float32.
class KeepFloat32::State {
 public:
  State(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
        const std::vector<std::string>& paths)
      : parameters_(named_parameters),
        paths_(paths),
        device_(named_parameters.front().second.device().type()),
        thread_(at::RecordFunction::currentThreadId()),
        callback_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(on_start, on_end)
                .needsInputs(true)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}))) {}

  ~State() {
    // Only the thread itself can remove its callback; until then the callback finds no state.
    if (is_on_its_thread()) at::removeCallback(callback_);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool is_on_its_thread() const { return thread_ == at::RecordFunction::currentThreadId(); }

  /// The calling thread's state. libtorch's callbacks are plain functions, which look it up.
  static std::weak_ptr<State>& of_thread() {
    static thread_local std::weak_ptr<State> state;
    return state;
  }

 private:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    const std::shared_ptr<State> state = of_thread().lock();
    return state == nullptr ? nullptr : state->begin(function);
  }

  static void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    const std::shared_ptr<State> state = of_thread().lock();
    if (context != nullptr && state != nullptr) state->end(*static_cast<Restore*>(context));
  }

  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (kept_) return nullptr;  // within an operation in float32
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      scopes_.emplace_back(function.name());
      return std::make_unique<Restore>();
    }
    if (!at::autocast::is_autocast_enabled(device_)) {
      // A backward or an optimizer: the next forward starts before the first module.
      if (!at::GradMode::is_enabled()) last_.clear();
      return nullptr;
    }
    if (!is_kept(place_of(function))) return nullptr;
    auto restore = std::make_unique<Restore>();
    restore->dtype = at::autocast::get_autocast_dtype(device_);
    at::autocast::set_autocast_dtype(device_, at::kFloat);
    kept_ = true;
    return restore;
  }

  void end(const Restore& restore) {
    if (!restore.dtype) {
      if (!scopes_.empty()) scopes_.pop_back();  // it may have begun before this object
      return;
    }
    at::autocast::set_autocast_dtype(device_, *restore.dtype);
    kept_ = false;
  }

  const std::string& place_of(const at::RecordFunction& function) {
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& input : function.inputs()) detail::append_tensors(input, tensors);
    for (const at::Tensor& tensor : tensors) {
      if (auto path = parameters_.path_of(tensor)) return last_ = std::move(*path);
    }
    return scopes_.empty() ? last_ : scopes_.back();
  }

  bool is_kept(const std::string& path) const {
    return std::any_of(paths_.begin(), paths_.end(),
                       [&](const std::string& kept) { return detail::is_in_module(path, kept); });
  }

  detail::WatchedParameters parameters_;
  std::vector<std::string> paths_;
  at::DeviceType device_;
  std::uint64_t thread_;
  at::CallbackHandle callback_;
  std::vector<std::string> scopes_;
  std::string last_;   // last module of the forward
  bool kept_ = false;  // within an operation in float32
};

KeepFloat32::KeepFloat32(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                         const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const bool exists =
        std::any_of(named_parameters.begin(), named_parameters.end(),
                    [&](const auto& named) { return named.first.starts_with(path + '.'); });
    MEZZO_CHECK(exists, "keep_float32: expected paths of modules with parameters, got '{}'", path);
  }
  if (paths.empty()) return;
  if (!State::of_thread().expired()) {
    mezzo::detail::raise<LogicError>(
        "keep_float32: expected one KeepFloat32 per thread, which lists all paths, got a second");
  }
  state_ = std::make_shared<State>(named_parameters, paths);
  State::of_thread() = state_;
}

KeepFloat32::~KeepFloat32() {
  if (state_ == nullptr || state_->is_on_its_thread()) return;
  try {
    TORCH_WARN("mezzo: an amp::KeepFloat32 ended on another thread than the one that made it");
  } catch (...) {  // a warning handler that throws must not end the program
  }
}

}  // namespace mezzo::amp
