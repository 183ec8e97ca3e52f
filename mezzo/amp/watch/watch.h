#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

namespace detail {

class WatchRecorder;

/// A type with named_parameters(), or a pointer to one: a torch::nn::Module or its holder.
template <class Module>
concept HasNamedParameters = requires(const Module& model) {
  model.named_parameters();
}
|| requires(const Module& model) {
  model->named_parameters();
};

/// The parameters and their paths, each once, under its first path: modules can be registered
/// twice.
template <HasNamedParameters Module>
std::vector<std::pair<std::string, at::Tensor>> named_parameters_of(const Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> named;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto append = [&](const auto& items) {
    for (const auto& item : items) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      named.emplace_back(item.key(), item.value());
    }
  };
  if constexpr (requires { model.named_parameters(); }) {
    append(model.named_parameters());
  } else {
    append(model->named_parameters());
  }
  return named;
}

}  // namespace detail

/// Counts of elements of floating tensors by their position in the range of the dtype. Shares are
/// fractions of `elements` in [0, 1], and 0 for no elements.
struct NumberCounts {
  std::int64_t elements = 0;
  std::int64_t zeros = 0;      ///< 0 or -0
  std::int64_t subnormal = 0;  ///< not 0, below the smallest normal number: less precise
  std::int64_t near_top = 0;   ///< finite, at least a sixteenth of the largest number
  std::int64_t inf = 0;
  std::int64_t nan = 0;
  double largest = 0.0;           ///< largest finite absolute value; 0 if all are 0
  double smallest_nonzero = 0.0;  ///< smallest nonzero finite absolute value; 0 if none

  /// Adds the counts of `other`, which may have another dtype.
  MEZZO_API NumberCounts& operator+=(const NumberCounts& other);

  std::int64_t non_finite() const { return inf + nan; }
  double share(std::int64_t count) const {
    return elements == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(elements);
  }

  bool operator==(const NumberCounts&) const = default;
};

/// Whether count_numbers() supports `tensor`: defined, float16, bfloat16, float32 or float64;
/// strided, or sparse COO, CSR or CSC.
MEZZO_API bool has_countable_numbers(const at::Tensor& tensor);

/// Counts the elements of `tensor` in one pass; for a sparse tensor, the stored values. Counts are
/// 0 for an unsupported tensor. An expanded tensor counts each repetition. Copies tensors that are
/// not dense. Tensors on other devices are counted there by a dozen operations, which synchronises.
/// Deterministic.
MEZZO_API NumberCounts count_numbers(const at::Tensor& tensor);

/// Same, by libtorch operations that exist on every device, including the CPU.
MEZZO_API NumberCounts count_numbers_by_operations(const at::Tensor& tensor);

/// Options of Watch.
struct WatchOptions {
  /// Whether to distinguish underflow from exact zeros. Repeats operations that returned zeros in
  /// 16 bits in float32 (listed at WatchRow::underflowed), once per call: most of the cost of
  /// watching 16-bit training.
  bool check_underflow = true;
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
/// over each output and, with check_underflow, a second run of most 16-bit operations in float32: a
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

/// Options of gradient_report().
struct GradientReportOptions {
  double scale = 1.0;     ///< loss scale of the gradients; they are divided by it
  double keep = 0.999;    ///< target share of nonzero gradients representable in float16, in (0, 1]
  double headroom = 2.0;  ///< factor between the largest gradient and float16's largest, >= 1
};

/// Number of finite, nonzero values per binary exponent: floor(log2 |v|).
struct ExponentHistogram {
  int lowest = 0;                    ///< exponent of the first bucket
  std::vector<std::int64_t> counts;  ///< consecutive exponents; first and last are not 0

  MEZZO_API ExponentHistogram& operator+=(const ExponentHistogram& other);

  std::int64_t total() const { return at_least(lowest); }

  /// Number of values that are at least 2^exponent.
  MEZZO_API std::int64_t at_least(int exponent) const;

  bool operator==(const ExponentHistogram&) const = default;
};

/// The loss scale for float16 gradients, in [2^-126, 2^126]. After scaling, a gradient is
/// representable if it is at least 2^-24 (float16's smallest subnormal number) and exact if at
/// least 2^-14 (the smallest normal).
struct HalfLossScale {
  /// The smallest power of two >= 1 that makes the target share exact, but at most
  /// largest_loss_scale, which may be below 1.
  double loss_scale = 1.0;
  double largest_loss_scale = 1.0;      ///< largest S = 2^k: S * headroom * max|g| <= 65504
  double representable = 1.0;           ///< share of nonzero gradients representable at loss_scale
  double exact = 1.0;                   ///< share that is exact, to float16's 11 binary digits
  double representable_unscaled = 1.0;  ///< share representable without a loss scale
  bool enough = true;                   ///< whether `representable` reaches the target share
};

/// The gradient of one parameter, or of all. Magnitudes refer to the unscaled loss.
struct GradientRow {
  std::string name;
  std::int64_t parameters = 0;  ///< number of tensors
  NumberCounts numbers;  ///< subnormal and near_top: before unscaling, in the gradients' dtype
  ExponentHistogram exponents;
  std::optional<HalfLossScale> half;  ///< nullopt: no nonzero finite gradient
};

/// Statistics of gradients. Plain values.
struct GradientReport {
  std::vector<GradientRow> rows;  ///< one per parameter with a gradient, in input order
  std::vector<std::string> without_gradient;
  GradientRow all;  ///< all rows together, named "all"
};

/// Analyses the gradients of `named_parameters`: dense or sparse (stored values), float16,
/// bfloat16, float32 or float64, on any device (copied to the host, which synchronises). To choose
/// a loss scale, run in float32 or bfloat16 without one: float16 underflow is invisible here.
/// Gradients of activations may be larger or smaller; see `amp::watch`. Throws InvalidArgument for
/// an undefined parameter, a gradient of another dtype, a scale that is not positive and finite,
/// and options out of range. Deterministic; changes nothing.
MEZZO_API GradientReport
gradient_report(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                const GradientReportOptions& options = {});

/// As above for a torch::nn::Module, a module holder, or any type with named_parameters(). A
/// parameter that is listed twice counts once, under its first name.
template <detail::HasNamedParameters Module>
GradientReport gradient_report(const Module& model, const GradientReportOptions& options = {}) {
  return gradient_report(detail::named_parameters_of(model), options);
}

}  // namespace mezzo::amp
