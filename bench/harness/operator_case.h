#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// What is timed: forward only, or forward and backward.
enum class Pass : std::uint8_t { kForward, kForwardBackward };

/// ", forward" or ", forward+backward", for the end of a Plan's name.
std::string suffix(Pass pass);

/// The storage type of features in a precision.
at::ScalarType storage_type(amp::Precision precision);

/// Bytes of an element of it.
std::int64_t element_bytes(amp::Precision precision);

/// Bytes of a float32 element.
inline constexpr std::int64_t kFloatBytes = 4;

/// Computes a candidate's result from its operands.
using Forward = std::function<at::Tensor(const Tensors&)>;

/// Converts a candidate's results to the form that is compared.
using Arrange = std::function<Tensors(Tensors)>;

/// Runs `forward` on the operands, and backward from `gradient` if `pass` includes it. Returns the
/// result, then the gradients of the operands. Operands that require no gradient are detached
/// first, so that candidates do not share gradients; parameters are used as they are.
std::function<Tensors()> job(Pass pass, Tensors operands, at::Tensor gradient, Forward forward);

/// A measured operator: operands, definition in float64, cost, and the candidates that compute it.
/// A candidate's operands are cast to the type of its precision.
class OperatorCase {
 public:
  /// The cost if an element has this many bytes.
  using CostOf = std::function<Cost(std::int64_t element)>;

  /// operands, gradient (of the result): float32. cost: of Mezzo's candidates.
  OperatorCase(Pass pass, Tensors operands, at::Tensor gradient, CostOf cost = {});

  bool backward() const { return pass_ == Pass::kForwardBackward; }
  /// The cost plus `more_bytes` allocated per run.
  Cost cost(amp::Precision precision = amp::Precision::kFloat32, std::int64_t more_bytes = 0) const;

  /// Adds an expected result.
  void expect(Expected result);
  /// Expects the float64 results and gradients of `definition`: every stride-th row of the result
  /// and every gradient_stride-th of the gradients.
  void define(const Forward& definition, std::int64_t stride = 1, std::int64_t gradient_stride = 1);

  /// Mezzo's candidates, one per precision.
  void add_mezzo(const std::vector<amp::Precision>& precisions, const Forward& forward);
  /// Adds a libtorch baseline that uses libtorch's autograd.
  void add_baseline(std::string name, const Forward& forward, Cost cost,
                    amp::Precision precision = amp::Precision::kFloat32);
  /// Adds this baseline in float32 and in the 16-bit types of `precisions`, at the operator's
  /// cost() with `more_bytes`. forward_in: prepares it for a type.
  void add_baselines(const std::string& name, const std::vector<amp::Precision>& precisions,
                     const std::function<Forward(at::ScalarType)>& forward_in,
                     std::int64_t more_bytes = 0);
  /// Adds a libtorch baseline whose `run` does forward and backward.
  void add_handwritten(std::string name, std::function<Tensors()> run, Cost cost,
                       Arrange arrange = {}, amp::Precision precision = amp::Precision::kFloat32);
  /// Adds a libtorch baseline that does not support this work.
  void add_unsupported(std::string name, std::string reason);

  /// arrange: for candidates without their own.
  Comparison take(const Arrange& arrange = {});

 private:
  std::function<Tensors()> job_in(at::ScalarType type, const Forward& forward) const;

  Pass pass_;
  Tensors operands_;
  at::Tensor gradient_;
  CostOf cost_;
  Comparison comparison_;
};

}  // namespace mezzo::bench
