#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// What is timed: the result, or it and the gradients of its operands.
enum class Pass : std::uint8_t { kForward, kForwardBackward };

/// ", forward" or ", forward+backward", for the end of a Plan's name.
std::string suffix(Pass pass);

/// The type in which a precision stores features.
at::ScalarType storage_type(amp::Precision precision);

/// Bytes of an element of it.
std::int64_t element_bytes(amp::Precision precision);

/// Of one element of the fp32 candidates.
inline constexpr std::int64_t kFloatBytes = 4;

/// The operands of a candidate to its result.
using Forward = std::function<at::Tensor(const Tensors&)>;

/// Brings the results of a candidate to those that are compared.
using Arrange = std::function<Tensors(Tensors)>;

/// Runs `forward` on the operands, and the backward from `gradient` if `pass` asks for it. Returns
/// the result, then the gradients of the operands. Operands that require no gradient are detached
/// first, so that candidates do not share theirs; parameters stay what they are.
std::function<Tensors()> job(Pass pass, Tensors operands, at::Tensor gradient, Forward forward);

/// An operator as it is measured: operands, definition in float64, cost, and the candidates that
/// compute it. A candidate's operands are cast to the type of its precision.
class OperatorCase {
 public:
  /// By the bytes of an element.
  using CostOf = std::function<Cost(std::int64_t element)>;

  /// operands, gradient (of the result): float32. cost: of Mezzo's candidates.
  OperatorCase(Pass pass, Tensors operands, at::Tensor gradient, CostOf cost = {});

  bool backward() const { return pass_ == Pass::kForwardBackward; }
  /// With so many bytes more that a run allocates.
  Cost cost(amp::Precision precision = amp::Precision::kFloat32, std::int64_t more_bytes = 0) const;

  /// Adds an expected result.
  void expect(Expected result);
  /// Expects what `definition` and its gradients are in float64: every stride-th row of the result
  /// and every gradient_stride-th of the gradients.
  void define(const Forward& definition, std::int64_t stride = 1, std::int64_t gradient_stride = 1);

  /// Mezzo's candidates, one per precision.
  void add_mezzo(const std::vector<amp::Precision>& precisions, const Forward& forward);
  /// A way of libtorch with its own autograd.
  void add_baseline(std::string name, const Forward& forward, Cost cost,
                    amp::Precision precision = amp::Precision::kFloat32);
  /// Such a way in float32 and in the 16-bit types of `precisions`, at the operator's cost() with
  /// `more_bytes`. forward_in: prepares it for a type.
  void add_baselines(const std::string& name, const std::vector<amp::Precision>& precisions,
                     const std::function<Forward(at::ScalarType)>& forward_in,
                     std::int64_t more_bytes = 0);
  /// A way of libtorch whose `run` does all of it.
  void add_handwritten(std::string name, std::function<Tensors()> run, Cost cost,
                       Arrange arrange = {}, amp::Precision precision = amp::Precision::kFloat32);
  /// A way of libtorch that exists and cannot do this work.
  void add_unsupported(std::string name, std::string reason);

  /// arrange: of the candidates that have none.
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
