#include "bench/harness/stages.h"

#include <algorithm>
#include <string_view>

#include <ATen/record_function.h>

namespace mezzo::bench {

double LapClock::lap() {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double, std::milli>(now - last_).count();
  last_ = now;
  return elapsed;
}

void note(Stages& stages, const std::string& name, double milliseconds) {
  auto stage = std::find_if(stages.begin(), stages.end(),
                            [&](const Stage& known) { return known.name == name; });
  if (stage == stages.end())
    stage = stages.insert(stages.end(), {.name = name, .milliseconds = {}});
  stage->milliseconds.push_back(milliseconds);
}

struct OperationRecorder::State {
  OperationTimes times;
  bool sparse_input = false, any_product = false;
  int depth = 0;  // nesting depth of this library's operations
  double* sum = nullptr;
  LapClock clock;
  at::CallbackHandle handle = 0;

  double* product() {
    double* const where = any_product ? &times.products : &times.first_product;
    any_product = true;
    return where;
  }

  /// The sum for an operation's time; nullptr for other operations.
  double* place(std::string_view name) {
    const bool sparse_product = sparse_input && !any_product && name == "gspmm";
    if (name == "linear" || sparse_product) return product();
    if (name == "scaled_sum" || name == "gspmm") return &times.aggregation;
    const bool attention = name == "gat_attention" || name == "edge_softmax" || name == "gsddmm";
    return attention ? &times.attention : nullptr;
  }
};

namespace {

constexpr std::string_view kOurs = "mezzo::";

}  // namespace

OperationRecorder::OperationRecorder(bool sparse_input) : state_(std::make_unique<State>()) {
  static thread_local State* state;  // libtorch callbacks carry no user data
  state = state_.get();
  state->sparse_input = sparse_input;
  const auto start =
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    const std::string_view name = function.name();
    if (name.starts_with(kOurs) && state->depth++ == 0) {
      state->sum = state->place(name.substr(kOurs.size()));
      state->clock.lap();
    }
    return nullptr;
  };
  const auto end = [](const at::RecordFunction& function, at::ObserverContext*) {
    const std::string_view name = function.name();
    if (name.starts_with(kOurs) && --state->depth == 0 && state->sum != nullptr) {
      *state->sum += state->clock.lap();
    }
  };
  state_->handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(start, end).scopes({at::RecordScope::FUNCTION}));
}

OperationRecorder::~OperationRecorder() {
  at::removeCallback(state_->handle);
}

const OperationTimes& OperationRecorder::times() const {
  return state_->times;
}

}  // namespace mezzo::bench
