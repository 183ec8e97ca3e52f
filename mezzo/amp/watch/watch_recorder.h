#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/amp/watch/watch_operator.h"

namespace mezzo::amp::detail {

/// Maps storages of parameters and of their casts to modules. Views share the storage.
class WatchedParameters {
 public:
  explicit WatchedParameters(std::vector<std::pair<std::string, at::Tensor>> named_parameters);

  /// Updates the storages of the parameters and removes freed casts.
  void refresh();

  /// Path of the module that owns `tensor`: a parameter, or a view or cast of one.
  std::optional<std::string> path_of(const at::Tensor& tensor) const;

  /// Records that `cast` is a parameter of `path` in another dtype.
  void add_cast(const at::Tensor& cast, const std::string& path);

 private:
  struct Cast {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // also prevents reuse of the address
    std::string path;
  };

  std::vector<std::pair<std::string, at::Tensor>> parameters_;  // path, tensor
  std::unordered_map<const c10::StorageImpl*, std::map<std::int64_t, std::string>> storages_;
  std::unordered_map<const c10::StorageImpl*, Cast> casts_;
};

/// The start of a recorded function.
struct WatchEvent {
  enum class Kind : std::uint8_t {
    kOperator,
    kNode,    ///< a node of the backward
    kEngine,  ///< the engine around a node; it also sums gradients
    kScope,   ///< RECORD_USER_SCOPE
    kOther,
  };

  Kind kind = Kind::kOther;
  const void* identity = nullptr;  ///< unique among open functions
  std::optional<c10::OperatorName> op;
  std::string_view scope;  ///< kScope: its name
  c10::ArrayRef<c10::IValue> inputs;
  std::uint64_t thread = 0;
  std::uint64_t forward_thread = 0;  ///< kNode: thread of its forward
  std::int64_t sequence = -1;        ///< of the node, or of the node that the operator will create
  c10::DispatchKeySet excluded;  ///< dispatch keys excluded on the caller's thread, e.g. autocast
};

/// Turns recorded functions into a WatchReport. Thread-safe.
class WatchRecorder {
 public:
  WatchRecorder(std::vector<std::pair<std::string, at::Tensor>> named_parameters,
                const WatchOptions& options, std::uint64_t thread);

  std::uint64_t thread() const { return thread_; }

  /// Whether the event belongs to this recorder's thread or to a backward of it.
  bool wants(const WatchEvent& event) const;

  void begin(const WatchEvent& event);
  void end(const void* identity, std::uint64_t thread, const std::vector<c10::IValue>& outputs);
  void next_step();
  WatchReport report() const;

 private:
  using Clock = std::chrono::steady_clock;
  using ForwardKey = std::pair<std::uint64_t, std::int64_t>;  // thread, sequence number
  using RowKey = std::tuple<std::string, WatchPlace, c10::ScalarType, bool>;

  struct Frame {
    WatchEvent::Kind kind = WatchEvent::Kind::kOther;
    const void* identity = nullptr;
    WatchPlace place;
    bool in_backward = false;
    bool counted = false;  // an operation, unless it returns a view
    bool inside_counted = false;
    const WatchedOperator* op = nullptr;
    std::vector<at::Tensor> read, written;
    std::vector<c10::IValue> arguments;            // of a checked operation
    std::optional<std::vector<at::Tensor>> exact;  // its outputs in float32, computed on demand
    bool finite = true;                            // whether scalar and in-place inputs were finite
    double largest_input = 0.0;
    Clock::time_point start;
    std::int64_t overhead_before = 0;
    std::int64_t counted_inside = 0;  // nanoseconds
  };

  struct Thread {
    std::vector<Frame> open;
    std::string last_path;  // last module of the forward
    WatchPlace last_backward;
    std::int64_t overhead = 0;  // nanoseconds
  };

  void place_frame(Frame& frame, const WatchEvent& event, Thread& thread);
  WatchPlace place_of_node(const WatchEvent& event, const Thread& thread) const;
  std::optional<std::string> module_of(c10::ArrayRef<c10::IValue> inputs) const;
  void inspect_inputs(Frame& frame, const WatchEvent& event) const;
  bool count_outputs(Frame& frame, const std::vector<c10::IValue>& outputs, std::int64_t own_time);
  void count_output(Frame& frame, const std::vector<at::Tensor>& tensors, std::size_t place,
                    WatchRow& row);
  static at::Tensor exact_output(Frame& frame, std::size_t place, std::size_t count);
  void record_exit(Frame& frame, const NumberCounts& counts, WatchRow& row);
  WatchRow& row_of(const Frame& frame, c10::ScalarType dtype, bool is_cast);

  const WatchOptions options_;
  const std::uint64_t thread_;
  mutable std::mutex mutex_;
  WatchedParameters parameters_;
  WatchedOperators operators_;
  std::unordered_map<std::uint64_t, Thread> threads_;
  // Places of the forwards of this step's and the previous step's nodes.
  std::map<ForwardKey, WatchPlace> forward_, previous_forward_;
  std::map<RowKey, std::size_t> row_index_;
  bool step_is_open_ = false;
  std::int64_t step_ = 0;
  WatchReport report_;
};

}  // namespace mezzo::amp::detail
