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

/// Runs `forward` on the operands, and the backward from `gradient` where `pass` asks for it.
/// Returns the result, then the gradients of the operands. Operands that require no gradient are
/// detached first, so that candidates do not share theirs; parameters stay what they are.
std::function<Tensors()> job(Pass pass, Tensors operands, at::Tensor gradient, Forward forward);

/// Collects the candidates of a comparison that take the same operands.
class Candidates {
 public:
  /// operands, gradient (of the result): float32.
  Candidates(Pass pass, Tensors operands, at::Tensor gradient)
      : pass_(pass), operands_(std::move(operands)), gradient_(std::move(gradient)) {}

  /// A way of libtorch's, with its own autograd for the backward.
  void add_baseline(std::string name, Forward forward, Cost cost,
                    amp::Precision precision = amp::Precision::kFloat32);
  /// A way of libtorch's of which `run` does all. arrange: of Candidate.
  void add_handwritten(std::string name, std::function<Tensors()> run, Cost cost,
                       std::function<Tensors(Tensors)> arrange = {});
  /// A way of libtorch's that exists and cannot do this work.
  void add_unsupported(std::string name, std::string reason);
  /// This library's, once a precision: operands cast to its type. cost: by bytes an element.
  void add_mezzo(const std::vector<amp::Precision>& precisions, const Forward& forward,
                 const std::function<Cost(std::int64_t)>& cost);

  std::vector<Candidate> take() { return std::move(list_); }

 private:
  std::function<Tensors()> job_in(amp::Precision precision, const Forward& forward) const;

  Pass pass_;
  Tensors operands_;
  at::Tensor gradient_;
  std::vector<Candidate> list_;
};

}  // namespace mezzo::bench
