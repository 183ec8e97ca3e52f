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
  /// Whether to distinguish underflow from exact zeros. Repeats operations that returned zeros in
  /// 16 bits in float32 (listed at WatchRow::underflowed), once per call: most of the cost of
  /// watching 16-bit training.
  bool judge_underflow = true;
};

/// When an operation ran.
enum class Pass : std::uint8_t {
  kForward,   ///< gradients enabled
  kBackward,  ///< in the backward
  kNoGrad,    ///< gradients disabled: evaluation, optimizer, scaler
};

/// Where an operation ran.
struct WatchPlace {
  /// Path of the module whose parameters the operation used, as in named_parameters(): "layers.0"
  /// for "layers.0.weight"; or the innermost RECORD_USER_SCOPE. Empty before the first of either,
  /// and for a parameter of the model itself.
  std::string path;
  /// Whether it used no parameter and ran after an operation that did: "after layers.0".
  bool after = false;
  Pass pass = Pass::kForward;

  /// "layers.0", "after layers.0" or "model" (the model itself, or before its first parameter).
  MEZZO_API std::string name() const;

  auto operator<=>(const WatchPlace&) const = default;
};

/// Statistics of one operation at one place, over all steps.
struct WatchRow {
  std::string op;  ///< libtorch's name without overload: "aten::addmm", "mezzo::gspmm"
  WatchPlace place;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  ///< of the outputs
  bool is_cast = false;                                ///< the output is the input in another dtype
  std::int64_t calls = 0;
  std::int64_t nanoseconds = 0;  ///< host time, without nested watched operations
  NumberCounts numbers;          ///< of the outputs
  /// Elements that are 0 although the same operation in float32 on the same inputs returns nonzero.
  /// Checked for float16 and bfloat16 outputs of casts and of these operations, out of place; 0 for
  /// others:
  /// - mul, div, pow, exp, mean; mm, addmm, bmm, baddbmm;
  /// - convolution, softmax, log_softmax, sigmoid, gelu, silu, elu, leaky_relu, avg_pool2d and
  ///   adaptive_avg_pool2d with their backwards, and the backwards of tanh and of batch, group and
  ///   layer norm;
  /// - Mezzo's operators that are registered as repeatable: linear, gspmm, ...
  std::int64_t underflowed = 0;
  std::int64_t exits = 0;  ///< calls with finite inputs and an inf or nan in the output
};

/// An operation with finite inputs and non-finite outputs.
struct WatchExit {
  std::string op;
  WatchPlace place;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::int64_t step = 0;  ///< counted from 0 by Watch::next_step()
  std::int64_t inf = 0;   ///< elements
  std::int64_t nan = 0;
  double largest_input = 0.0;  ///< largest absolute value of its tensor inputs
};

/// The report of a Watch. Plain values.
struct WatchReport {
  std::int64_t steps = 0;                 ///< next_step() calls, plus an unfinished step
  std::vector<WatchRow> rows;             ///< in order of first use
  std::vector<WatchExit> exits;           ///< the first exit of each step, oldest first
  std::int64_t other_nanoseconds = 0;     ///< host time of engine, composites, views
  std::int64_t overhead_nanoseconds = 0;  ///< host time of watching

  /// The first operation with a non-finite output; nullopt if there was none.
  std::optional<WatchExit> first_exit() const {
    return exits.empty() ? std::nullopt : std::optional(exits.front());
  }
};

namespace detail {
class WatchRecorder;
}

/// Watches every libtorch operation of the calling thread and of its backward, from construction to
/// destruction, through libtorch's RecordFunction. This includes autocast's casts and Mezzo's
/// operators. Does not change results, the autocast state, its cache or the random numbers. Several
/// watches may exist at once; each sees every operation.
///
/// Counts the operation that created the output tensor. Not counted: composites (linear) and
/// wrappers (convolution) that return the output of an inner operation, views, allocations,
/// constant fills, and integer, boolean, complex and float8 outputs.
///
/// An operation belongs to the module of a parameter among its inputs, through views and casts;
/// else to the module of the enclosing operation; else to the innermost RECORD_USER_SCOPE; else it
/// is "after" the last module of its thread. C++ modules have no hooks for a finer attribution. A
/// backward operation belongs to the module of its forward operation, a shared parameter to its
/// first module.
///
/// Cost: none without a Watch. With one, about two microseconds per recorded function, one pass
/// over each output and, with judge_underflow, a second run of most 16-bit operations in float32: a
/// step takes 2.5 to 5 times as long (docs/mixed-precision.md). Tensors on other devices are
/// counted there, and each operation synchronises.
///
/// Must be destroyed on the thread that created it; destruction on another thread warns and stops
/// the recording. Holds references to the parameters.
class MEZZO_API Watch {
 public:
  /// named_parameters: of the root module; undefined ones are ignored. They may change storage
  /// between steps.
  explicit Watch(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                 const WatchOptions& options = {});

  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&&) = delete;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// Ends a training step; later operations belong to the next one.
  void next_step();

  /// The report so far.
  WatchReport report() const;

 private:
  std::shared_ptr<detail::WatchRecorder> recorder_;
};

/// Watches a torch::nn::Module, a module holder (nn::Model), or any type with named_parameters().
template <detail::HasNamedParameters Module>
Watch watch(const Module& model, const WatchOptions& options = {}) {
  return Watch(detail::named_parameters_of(model), options);
}

}  // namespace mezzo::amp
