#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/ArrayRef.h>

/// Descriptions of operators and their calls, for amp::watch.
namespace mezzo::amp::detail {

/// Static properties of an operator.
struct WatchedOperator {
  c10::OperatorHandle handle;
  std::string name;            ///< without overload
  bool makes_numbers;          ///< not a composite, an allocation or a constant fill
  bool is_copy;                ///< its output is its input, possibly in another dtype
  bool is_repeatable;          ///< may be repeated in float32 to find underflow
  bool overwrites;             ///< ignores the previous values of written arguments: copy_, out=
  std::vector<bool> written;   ///< per argument
  std::vector<bool> is_dtype;  ///< per argument: whether it is a dtype

  /// Whether a call runs autocast's wrapper, which casts and calls the operator again. excluded:
  /// the caller's excluded dispatch keys.
  bool is_autocast_wrapper(c10::ArrayRef<c10::IValue> arguments,
                           c10::DispatchKeySet excluded) const;
};

/// Cache of operator descriptions. Not thread-safe.
class WatchedOperators {
 public:
  /// The operator of that name, described at the first call; nullptr if unknown.
  const WatchedOperator* find(const c10::OperatorName& name);

 private:
  std::unordered_map<c10::OperatorName, WatchedOperator> operators_;
};

/// Appends the defined tensors in `value`: a tensor or a list.
void append_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors);

/// Number of elements that are 0 in `output` (float16 or bfloat16) but finite and nonzero in
/// `exact`. 0 if the shapes differ.
std::int64_t count_flushed(const at::Tensor& output, const at::Tensor& exact);

/// Repeats a call in float32: converts 16-bit tensors and dtype arguments. Uses the autograd and
/// autocast state of the calling thread. Returns the defined outputs, or nothing if there is no
/// float32 kernel.
std::vector<at::Tensor> repeat_in_float32(const WatchedOperator& op,
                                          const std::vector<c10::IValue>& arguments);

}  // namespace mezzo::amp::detail
