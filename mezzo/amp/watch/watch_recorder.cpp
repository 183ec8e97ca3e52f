#include "mezzo/amp/watch/watch_recorder.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp::detail {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::string module_path(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

bool shares_memory(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  const c10::StorageImpl* storage = storage_of(tensor);
  return storage != nullptr &&
         std::any_of(others.begin(), others.end(),
                     [storage](const at::Tensor& other) { return storage_of(other) == storage; });
}

/// Whether all elements of `tensors` are finite, and the largest magnitude.
std::pair<bool, double> range_of(const std::vector<at::Tensor>& tensors) {
  NumberCounts counts;
  for (const at::Tensor& tensor : tensors) counts += count_numbers(tensor);
  return {counts.non_finite() == 0, counts.largest};
}

std::int64_t nanoseconds_between(std::chrono::steady_clock::time_point from,
                                 std::chrono::steady_clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

}  // namespace

WatchedParameters::WatchedParameters(
    std::vector<std::pair<std::string, at::Tensor>> named_parameters) {
  for (auto& [name, tensor] : named_parameters) {
    if (tensor.defined()) parameters_.emplace_back(module_path(name), std::move(tensor));
  }
  refresh();
}

void WatchedParameters::refresh() {
  storages_.clear();
  for (const auto& [path, tensor] : parameters_) {
    const c10::StorageImpl* storage = storage_of(tensor);
    // A shared parameter keeps its first name.
    if (storage != nullptr) storages_[storage].emplace(tensor.storage_offset(), path);
  }
  std::erase_if(casts_, [](const auto& item) { return item.second.alive.expired(); });
}

std::optional<std::string> WatchedParameters::path_of(const at::Tensor& tensor) const {
  const c10::StorageImpl* storage = storage_of(tensor);
  const auto parameters = storages_.find(storage);
  if (parameters != storages_.end()) {
    // If several share a storage, take the last one that begins at or before the view.
    const auto next = parameters->second.upper_bound(tensor.storage_offset());
    return next == parameters->second.begin() ? next->second : std::prev(next)->second;
  }
  const auto cast = casts_.find(storage);
  if (cast == casts_.end() || cast->second.alive.expired()) return std::nullopt;
  return cast->second.path;
}

void WatchedParameters::add_cast(const at::Tensor& cast, const std::string& path) {
  const c10::StorageImpl* storage = storage_of(cast);
  if (storage == nullptr) return;
  if (casts_.size() >= 2 * storages_.size() + 64) {
    std::erase_if(casts_, [](const auto& cast_of) { return cast_of.second.alive.expired(); });
  }
  casts_.insert_or_assign(storage, Cast{cast.storage().getWeakStorageImpl(), path});
}

// Maximum number of stored forward nodes, if next_step() is not called.
constexpr std::size_t kMaxNodes = std::size_t{1} << 18;

WatchRecorder::WatchRecorder(std::vector<std::pair<std::string, at::Tensor>> named_parameters,
                             const WatchOptions& options, std::uint64_t thread)
    : options_(options), thread_(thread), parameters_(std::move(named_parameters)) {}

bool WatchRecorder::wants(const WatchEvent& event) const {
  if (event.thread == thread_) return true;
  if (event.kind == WatchEvent::Kind::kNode && event.forward_thread == thread_) return true;
  const std::lock_guard lock(mutex_);
  const auto known = threads_.find(event.thread);
  return known != threads_.end() && !known->second.open.empty();
}

std::optional<std::string> WatchRecorder::module_of(c10::ArrayRef<c10::IValue> inputs) const {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& input : inputs) append_tensors(input, tensors);
  for (const at::Tensor& tensor : tensors) {
    if (auto path = parameters_.path_of(tensor)) return path;
  }
  return std::nullopt;
}

WatchPlace WatchRecorder::place_of_node(const WatchEvent& event, const Thread& thread) const {
  const ForwardKey key(event.forward_thread, event.sequence);
  WatchPlace place;
  if (const auto now = forward_.find(key); now != forward_.end()) {
    place = now->second;
  } else if (const auto old = previous_forward_.find(key); old != previous_forward_.end()) {
    place = old->second;
  } else {
    // A node that sums a parameter's gradient, or was created before the watch.
    place = thread.last_backward;
    place.after = true;
  }
  place.pass = Pass::kBackward;
  return place;
}

void WatchRecorder::place_frame(Frame& frame, const WatchEvent& event, Thread& thread) {
  const Frame* outer = thread.open.empty() ? nullptr : &thread.open.back();
  frame.inside_counted = outer != nullptr && (outer->counted || outer->inside_counted);
  if (event.kind == WatchEvent::Kind::kNode) {
    frame.place = place_of_node(event, thread);
    frame.in_backward = true;
    thread.last_backward = frame.place;
    return;
  }
  frame.in_backward =
      event.kind == WatchEvent::Kind::kEngine || (outer != nullptr && outer->in_backward);
  if (outer != nullptr) {
    frame.place = outer->place;
  } else if (frame.in_backward) {
    frame.place = thread.last_backward;
    frame.place.after = true;
  } else {
    frame.place = {.path = thread.last_path, .after = !thread.last_path.empty()};
  }
  const bool inherits_pass = outer != nullptr && outer->kind != WatchEvent::Kind::kScope;
  if (frame.in_backward) {
    frame.place.pass = Pass::kBackward;
  } else if (!inherits_pass) {
    frame.place.pass = at::GradMode::is_enabled() ? Pass::kForward : Pass::kNoGrad;
  }
  if (event.kind == WatchEvent::Kind::kScope) {
    frame.place.path = std::string(event.scope);
    frame.place.after = false;
  } else if (!frame.inside_counted && event.kind == WatchEvent::Kind::kOperator) {
    if (const auto path = module_of(event.inputs)) {
      frame.place.path = *path;
      frame.place.after = false;
      if (!frame.in_backward) thread.last_path = *path;
    }
  }
}

void WatchRecorder::inspect_inputs(Frame& frame, const WatchEvent& event) const {
  for (std::size_t i = 0; i < event.inputs.size(); ++i) {
    const c10::IValue& input = event.inputs[i];
    if (input.isDouble()) frame.finite &= std::isfinite(input.toDouble());
    append_tensors(input, frame.op->written[i] ? frame.written : frame.read);
  }
  if (!frame.op->overwrites) {
    const auto [finite, largest] = range_of(frame.written);
    frame.finite &= finite;
    frame.largest_input = largest;
  }
  if (frame.op->is_repeatable && options_.check_underflow) frame.arguments = event.inputs.vec();
}

void WatchRecorder::begin(const WatchEvent& event) {
  const Clock::time_point entry = Clock::now();
  const std::lock_guard lock(mutex_);
  Thread& thread = threads_[event.thread];
  step_is_open_ = true;
  Frame frame;
  frame.kind = event.kind;
  frame.identity = event.identity;
  place_frame(frame, event, thread);
  if (event.sequence >= 0 && event.kind == WatchEvent::Kind::kOperator) {
    if (forward_.size() >= kMaxNodes) previous_forward_ = std::exchange(forward_, {});
    forward_[ForwardKey(event.thread, event.sequence)] = frame.place;
  }
  if (event.op && !frame.inside_counted) {
    frame.op = operators_.find(*event.op);
    frame.counted = frame.op != nullptr && frame.op->makes_numbers &&
                    !frame.op->is_autocast_wrapper(event.inputs, event.excluded);
    if (frame.counted) inspect_inputs(frame, event);
  }
  frame.start = Clock::now();
  const std::int64_t spent = nanoseconds_between(entry, frame.start);
  thread.overhead += spent;
  report_.overhead_nanoseconds += spent;
  frame.overhead_before = thread.overhead;
  thread.open.push_back(std::move(frame));
}

void WatchRecorder::end(const void* identity, std::uint64_t thread_id,
                        const std::vector<c10::IValue>& outputs) {
  const Clock::time_point entry = Clock::now();
  const std::lock_guard lock(mutex_);
  Thread& thread = threads_[thread_id];
  const auto matches = [identity](const Frame& frame) { return frame.identity == identity; };
  const auto started = std::find_if(thread.open.rbegin(), thread.open.rend(), matches);
  if (started == thread.open.rend()) return;
  Frame frame = std::move(*started);
  thread.open.erase(std::prev(started.base()), thread.open.end());

  const std::int64_t whole =
      nanoseconds_between(frame.start, entry) - (thread.overhead - frame.overhead_before);
  const std::int64_t own = whole - frame.counted_inside;
  const bool counted = frame.counted && count_outputs(frame, outputs, own);
  if (!thread.open.empty()) {
    Frame& outer = thread.open.back();
    outer.counted_inside += counted ? whole : frame.counted_inside;
    // Sums in the engine after a node belong to that node.
    if (frame.kind == WatchEvent::Kind::kNode) outer.place = frame.place;
  } else if (!counted) {
    report_.other_nanoseconds += own;
  }
  const std::int64_t spent = nanoseconds_between(entry, Clock::now());
  thread.overhead += spent;
  report_.overhead_nanoseconds += spent;
}

WatchRow& WatchRecorder::row_of(const Frame& frame, c10::ScalarType dtype, bool is_cast) {
  const auto [place, added] = row_index_.try_emplace(
      RowKey(frame.op->name, frame.place, dtype, is_cast), report_.rows.size());
  if (added) {
    WatchRow& row = report_.rows.emplace_back();
    row.op = frame.op->name;
    row.place = frame.place;
    row.dtype = dtype;
    row.is_cast = is_cast;
  }
  return report_.rows[place->second];
}

bool WatchRecorder::count_outputs(Frame& frame, const std::vector<c10::IValue>& outputs,
                                  std::int64_t own_time) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& output : outputs) append_tensors(output, tensors);
  if (tensors.empty()) tensors = frame.written;
  std::vector<c10::ScalarType> dtypes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& output = tensors[i];
    const bool is_view = shares_memory(output, frame.read) && !shares_memory(output, frame.written);
    if (is_view || !has_countable_numbers(output)) continue;
    const c10::ScalarType dtype = output.scalar_type();
    const bool is_cast =
        frame.op->is_copy && !frame.read.empty() && frame.read.front().scalar_type() != dtype;
    WatchRow& row = row_of(frame, dtype, is_cast);
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) {
      ++row.calls;
      row.nanoseconds += dtypes.empty() ? own_time : 0;
      dtypes.push_back(dtype);
    }
    count_output(frame, tensors, i, row);
  }
  return !dtypes.empty();
}

/// Output `place` of `count` in float32; undefined if the operation cannot be repeated.
at::Tensor WatchRecorder::exact_output(Frame& frame, std::size_t place, std::size_t count) {
  if (!frame.exact) frame.exact = repeat_in_float32(*frame.op, frame.arguments);
  return frame.exact->size() == count ? (*frame.exact)[place] : at::Tensor();
}

void WatchRecorder::count_output(Frame& frame, const std::vector<at::Tensor>& tensors,
                                 std::size_t place, WatchRow& row) {
  const at::Tensor& output = tensors[place];
  const NumberCounts counts = count_numbers(output);
  row.numbers += counts;
  if (counts.non_finite() > 0) record_exit(frame, counts, row);
  if (frame.op->is_copy && !frame.read.empty()) {
    if (const auto path = parameters_.path_of(frame.read.front())) {
      parameters_.add_cast(output, *path);
    }
  }
  if (!options_.check_underflow || !is_16_bit(row.dtype) || counts.zeros == 0) return;
  if (row.is_cast) {
    row.underflowed += count_flushed(output, frame.read.front());
  } else if (!frame.arguments.empty()) {
    row.underflowed += count_flushed(output, exact_output(frame, place, tensors.size()));
  }
}

void WatchRecorder::record_exit(Frame& frame, const NumberCounts& counts, WatchRow& row) {
  const auto [finite, largest] = range_of(frame.read);
  if (!finite || !frame.finite) return;
  ++row.exits;
  if (!report_.exits.empty() && report_.exits.back().step == step_) return;
  report_.exits.push_back({.op = row.op,
                           .place = row.place,
                           .dtype = row.dtype,
                           .step = step_,
                           .inf = counts.inf,
                           .nan = counts.nan,
                           .largest_input = std::max(largest, frame.largest_input)});
}

void WatchRecorder::next_step() {
  const std::lock_guard lock(mutex_);
  ++step_;
  step_is_open_ = false;
  previous_forward_ = std::exchange(forward_, {});
  parameters_.refresh();
  for (auto& [id, thread] : threads_) thread.last_path.clear();
}

WatchReport WatchRecorder::report() const {
  const std::lock_guard lock(mutex_);
  WatchReport report = report_;
  report.steps = step_ + (step_is_open_ ? 1 : 0);
  return report;
}

}  // namespace mezzo::amp::detail
