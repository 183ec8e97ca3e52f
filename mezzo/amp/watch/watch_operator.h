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

/// What amp::watch needs to know of an operator and of one call of it.
namespace mezzo::amp::detail {

/// What is known of an operator for good.
struct WatchedOperator {
  c10::OperatorHandle handle;
  std::string name;            ///< without overload
  bool makes_numbers;          ///< neither a composite nor an allocation or a constant fill
  bool is_copy;                ///< its output is its input, maybe in another dtype
  bool is_judged;              ///< may be repeated in float32 to find underflow
  bool overwrites;             ///< what a written argument held does not matter: copy_, out=
  std::vector<bool> written;   ///< one an argument
  std::vector<bool> is_dtype;  ///< one an argument: whether it names one

  /// Whether a call is autocast's, which casts and then calls again. excluded: the caller's
  /// switched-off dispatch keys.
  bool is_autocast_wrapper(c10::ArrayRef<c10::IValue> arguments,
                           c10::DispatchKeySet excluded) const;
};

/// The operators met so far. Not thread-safe.
class WatchedOperators {
 public:
  /// The operator of that name, described at the first call; nullptr where there is none.
  const WatchedOperator* find(const c10::OperatorName& name);

 private:
  std::unordered_map<c10::OperatorName, WatchedOperator> operators_;
};

/// Appends the defined tensors in `value`: one, or a list of them.
void append_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors);

/// How many elements of `output`, in float16 or bfloat16, are 0 where `exact` is a finite number
/// other than 0. 0 where the shapes differ.
std::int64_t count_flushed(const at::Tensor& output, const at::Tensor& exact);

/// Repeats a call with its 16-bit arguments in float32, also where they are a dtype; without
/// autograd and autocast if the caller's thread is. Gives its defined outputs, or nothing where it
/// has no float32 kernel.
std::vector<at::Tensor> repeat_in_float32(const WatchedOperator& op,
                                          const std::vector<c10::IValue>& arguments);

}  // namespace mezzo::amp::detail
