#include "bench/harness/candidates.h"

#include <utility>

#include <ATen/ATen.h>

namespace mezzo::bench {

std::string suffix(Pass pass) {
  return pass == Pass::kForward ? ", forward" : ", forward+backward";
}

at::ScalarType storage_type(amp::Precision precision) {
  switch (precision) {
    case amp::Precision::kBFloat16:
      return at::kBFloat16;
    case amp::Precision::kFloat16:
      return at::kHalf;
    case amp::Precision::kFloat32:
    case amp::Precision::kTensorFloat32:
      break;
  }
  return at::kFloat;
}

std::int64_t element_bytes(amp::Precision precision) {
  return static_cast<std::int64_t>(c10::elementSize(storage_type(precision)));
}

std::function<Tensors()> job(Pass pass, Tensors operands, at::Tensor gradient, Forward forward) {
  if (pass == Pass::kForward) {
    return [operands = std::move(operands), forward = std::move(forward)]() -> Tensors {
      return {forward(operands)};
    };
  }
  for (at::Tensor& operand : operands) {
    if (!operand.requires_grad()) operand = operand.detach().requires_grad_();
  }
  return [operands = std::move(operands), gradient = std::move(gradient),
          forward = std::move(forward)] {
    const at::Tensor out = forward(operands);
    out.backward(gradient);
    Tensors results = {out.detach()};
    for (const at::Tensor& operand : operands) {
      results.push_back(operand.grad());
      operand.mutable_grad() = at::Tensor();
    }
    return results;
  };
}

std::function<Tensors()> Candidates::job_in(amp::Precision precision,
                                            const Forward& forward) const {
  const at::ScalarType type = storage_type(precision);
  Tensors cast;
  for (const at::Tensor& operand : operands_) cast.push_back(operand.to(type));
  return job(pass_, std::move(cast), gradient_.to(type), forward);
}

void Candidates::add_baseline(std::string name, Forward forward, Cost cost,
                              amp::Precision precision) {
  list_.push_back({.name = std::move(name),
                   .precision = precision,
                   .run = job_in(precision, forward),
                   .cost = cost});
}

void Candidates::add_handwritten(std::string name, std::function<Tensors()> run, Cost cost,
                                 std::function<Tensors(Tensors)> arrange) {
  list_.push_back({.name = std::move(name),
                   .run = std::move(run),
                   .arrange = std::move(arrange),
                   .cost = cost});
}

void Candidates::add_unsupported(std::string name, std::string reason) {
  list_.push_back({.name = std::move(name), .refusal = std::move(reason)});
}

void Candidates::add_mezzo(const std::vector<amp::Precision>& precisions, const Forward& forward,
                           const std::function<Cost(std::int64_t)>& cost) {
  for (const amp::Precision precision : precisions) {
    list_.push_back({.name = "mezzo " + std::string(amp::to_string(precision)),
                     .is_mezzo = true,
                     .precision = precision,
                     .run = job_in(precision, forward),
                     .cost = cost(element_bytes(precision))});
  }
}

}  // namespace mezzo::bench
