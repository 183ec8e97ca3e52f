#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "mezzo/amp/optim/named_parameters.h"
#include "mezzo/amp/watch/watch_numbers.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Options of Watch.
struct WatchOptions {
  /// Whether zeros made by underflow are told from honest ones. It repeats an operation that
  /// gave zeros in 16 bits in float32 (WatchRow::underflowed says which), once a call: most of what
  /// watching 16-bit training costs.
  bool judge_underflow = true;
};

/// When an operation ran.
enum class Pass : std::uint8_t {
  kForward,   ///< with gradients on
  kBackward,  ///< inside the backward
  kNoGrad,    ///< outside it with gradients off: evaluation, the optimizer, the scaler
};

/// Where an operation ran.
struct WatchPlace {
  /// Path of the module whose parameters it used, as in named_parameters(): "layers.0" for
  /// "layers.0.weight". Or the innermost RECORD_USER_SCOPE. Empty: before the first of either, or a
  /// parameter of the model itself.
  std::string path;
  /// Whether it used no parameter itself and came after one that did: "after layers.0".
  bool after = false;
  Pass pass = Pass::kForward;

  /// "layers.0", "after layers.0" or "model" (the model itself, or before its first parameter).
  MEZZO_API std::string name() const;

  auto operator<=>(const WatchPlace&) const = default;
};

/// What one operation did at one place, over all steps.
struct WatchRow {
  std::string op;  ///< libtorch's name without overload: "aten::addmm", "mezzo::gspmm"
  WatchPlace place;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  ///< of the outputs
  bool is_cast = false;  ///< the outputs are its input in another dtype
  std::int64_t calls = 0;
  std::int64_t nanoseconds = 0;  ///< own time on the host, without watched operations inside it
  NumberCounts numbers;          ///< of the outputs
  /// Elements that are 0 although the same operation on the same inputs in float32 is not. Judged
  /// for outputs in float16 and bfloat16 of casts and of these, out of place, 0 for others:
  /// - mul, div, pow, exp, mean; mm, addmm, bmm, baddbmm;
  /// - convolution, softmax, log_softmax, sigmoid, gelu, silu, elu, leaky_relu, avg_pool2d and
  ///   adaptive_avg_pool2d with their backwards, and the backwards of tanh and of batch, group and
  ///   layer norm;
  /// - those of Mezzo's operators that are declared as repeatable: linear, gspmm, ...
  std::int64_t underflowed = 0;
  std::int64_t exits = 0;  ///< calls with an inf or nan among outputs of finite inputs
};

/// An operation whose inputs were finite and whose outputs were not: where the range was left.
struct WatchExit {
  std::string op;
  WatchPlace place;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::int64_t step = 0;  ///< counted from 0 by Watch::next_step()
  std::int64_t inf = 0;   ///< elements
  std::int64_t nan = 0;
  double largest_input = 0.0;  ///< largest absolute value among its tensor inputs
};

/// What a Watch saw. Plain values.
struct WatchReport {
  std::int64_t steps = 0;        ///< calls of next_step(), plus one if operations followed the last
  std::vector<WatchRow> rows;    ///< in the order of first use
  std::vector<WatchExit> exits;  ///< the first of each step that has one, oldest first
  std::int64_t other_nanoseconds = 0;     ///< host time in the engine, composites and views
  std::int64_t overhead_nanoseconds = 0;  ///< host time that watching took

  /// The first operation that left the range; nullopt for a clean run.
  std::optional<WatchExit> first_exit() const {
    return exits.empty() ? std::nullopt : std::optional(exits.front());
  }
};

namespace detail {
class WatchRecorder;
}

/// Watches every libtorch operation of the calling thread and of the backward it starts, from
/// construction to destruction, by libtorch's RecordFunction: casts that autocast inserts and
/// Mezzo's own operations are seen like all others. Changes no bit of what is computed, nor the
/// autocast state, its cache or the random numbers. Several may live at once; each sees everything.
///
/// What counts as an operation: the one that made its output tensor. A composite (linear) or a
/// wrapper (convolution) that returns what an operation inside it made is not counted again; views,
/// allocations, constant fills and integer, boolean, complex and float8 outputs are not counted.
///
/// Whose it is: the module of a parameter among its inputs, through views and casts; else of the
/// operation that it is part of; else the innermost RECORD_USER_SCOPE (libtorch's); else "after"
/// the last module met on its thread. C++ modules have no hooks, so there is nothing finer. A
/// backward operation belongs to the module of its forward operation. A parameter that several
/// modules share belongs to the first.
///
/// Cost: none without a live Watch. With one, about two microseconds for each function that
/// libtorch records, one pass over each output and, with judge_underflow, most 16-bit operations
/// again in float32: 2.5 to 5 times the time of a step (docs/mixed-precision.md). Tensors of other
/// devices are counted there, and each operation then waits for the device.
///
/// Belongs to the thread that made it and must end there; an end on another thread warns and
/// stops the recording. Holds references to the parameters.
class MEZZO_API Watch {
 public:
  /// named_parameters: of the model, from its root; undefined ones are left out. They may move to
  /// other storage between steps.
  explicit Watch(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                 const WatchOptions& options = {});

  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&&) = delete;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// Ends a step of training: what follows belongs to the next one.
  void next_step();

  /// What has been seen so far.
  WatchReport report() const;

 private:
  std::shared_ptr<detail::WatchRecorder> recorder_;
};

/// Watches the operations of a torch::nn::Module, a module holder (nn::Model), or anything with its
/// named_parameters().
template <detail::HasNamedParameters Module>
Watch watch(const Module& model, const WatchOptions& options = {}) {
  return Watch(detail::named_parameters_of(model), options);
}

}  // namespace mezzo::amp
