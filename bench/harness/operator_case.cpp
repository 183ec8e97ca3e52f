#include "bench/harness/operator_case.h"

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

OperatorCase::OperatorCase(Pass pass, Tensors operands, at::Tensor gradient, CostOf cost)
    : pass_(pass),
      operands_(std::move(operands)),
      gradient_(std::move(gradient)),
      cost_(std::move(cost)) {}

Cost OperatorCase::cost(amp::Precision precision, std::int64_t more_bytes) const {
  Cost estimate = cost_ ? cost_(element_bytes(precision)) : Cost{};
  estimate.run_bytes += more_bytes;
  return estimate;
}

void OperatorCase::expect(Expected result) {
  comparison_.expected.push_back(std::move(result));
}

void OperatorCase::define(const Forward& definition, std::int64_t stride,
                          std::int64_t gradient_stride) {
  for (const at::Tensor& result : job_in(at::kDouble, definition)()) {
    const std::int64_t every = comparison_.expected.empty() ? stride : gradient_stride;
    expect({result.detach().slice(0, 0, result.size(0), every).to(at::kFloat), every});
  }
}

void OperatorCase::add_mezzo(const std::vector<amp::Precision>& precisions,
                             const Forward& forward) {
  for (const amp::Precision precision : precisions) {
    comparison_.candidates.push_back({.name = "mezzo " + std::string(amp::to_string(precision)),
                                      .is_mezzo = true,
                                      .precision = precision,
                                      .run = job_in(storage_type(precision), forward),
                                      .cost = cost(precision)});
  }
}

void OperatorCase::add_baseline(std::string name, const Forward& forward, Cost cost,
                                amp::Precision precision) {
  add_handwritten(std::move(name), job_in(storage_type(precision), forward), cost, {}, precision);
}

void OperatorCase::add_baselines(const std::string& name,
                                 const std::vector<amp::Precision>& precisions,
                                 const std::function<Forward(at::ScalarType)>& forward_in,
                                 std::int64_t more_bytes) {
  add_baseline(name, forward_in(at::kFloat), cost(amp::Precision::kFloat32, more_bytes));
  for (const amp::Precision precision : precisions) {
    const at::ScalarType type = storage_type(precision);
    if (type == at::kFloat) continue;
    add_baseline(name + " " + std::string(amp::to_string(precision)), forward_in(type),
                 cost(precision, more_bytes), precision);
  }
}

void OperatorCase::add_handwritten(std::string name, std::function<Tensors()> run, Cost cost,
                                   Arrange arrange, amp::Precision precision) {
  comparison_.candidates.push_back({.name = std::move(name),
                                    .precision = precision,
                                    .run = std::move(run),
                                    .arrange = std::move(arrange),
                                    .cost = cost});
}

void OperatorCase::add_unsupported(std::string name, std::string reason) {
  comparison_.candidates.push_back({.name = std::move(name), .refusal = std::move(reason)});
}

Comparison OperatorCase::take(const Arrange& arrange) {
  for (Candidate& candidate : comparison_.candidates) {
    if (!candidate.arrange) candidate.arrange = arrange;
  }
  return std::move(comparison_);
}

std::function<Tensors()> OperatorCase::job_in(at::ScalarType type, const Forward& forward) const {
  Tensors operands;
  for (const at::Tensor& operand : operands_) operands.push_back(operand.to(type));
  return job(pass_, std::move(operands), gradient_.to(type), forward);
}

}  // namespace mezzo::bench
