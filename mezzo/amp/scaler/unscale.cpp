#include "mezzo/amp/scaler/unscale.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

/// Gradients of one call of the fused operation.
struct Group {
  at::Device device;
  at::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

/// Throws for a gradient that cannot be unscaled.
void require_unscalable(at::ScalarType dtype) {
  MEZZO_CHECK(
      dtype != at::kHalf,
      "GradScaler: Attempting to unscale FP16 gradients. Keep the parameters in float32, or "
      "in bfloat16 without a scaler");
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16,
              "GradScaler: expected float32, float64 or bfloat16 gradients, got {}",
              c10::toString(dtype));
}

/// Throws for a gradient that cannot be checked for inf and nan.
void require_checkable(at::ScalarType dtype) {
  if (dtype != at::kHalf) require_unscalable(dtype);
}

std::vector<Group> group_gradients(const std::vector<at::Tensor>& parameters,
                                   void (*require)(at::ScalarType dtype)) {
  std::vector<Group> groups;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined()) continue;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !seen.insert(gradient.unsafeGetTensorImpl()).second) continue;
    require(gradient.scalar_type());
    if (gradient.is_sparse() && gradient.scalar_type() == at::kHalf && !gradient.is_coalesced()) {
      parameter.mutable_grad() = gradient.coalesce();
      seen.insert(parameter.grad().unsafeGetTensorImpl());
    }
    const at::Tensor values = stored_values(parameter.grad());
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.device == values.device() && g.dtype == values.scalar_type();
    });
    if (group == groups.end()) {
      group = groups.insert(group, {values.device(), values.scalar_type(), {}});
    }
    group->gradients.push_back(values);
  }
  return groups;
}

/// The maximum of flags on several devices, on `device`; undefined for no flags. A sum could exceed
/// 1.
at::Tensor any_found_inf(const std::vector<at::Tensor>& found_inf, at::Device device) {
  at::Tensor any;
  for (const at::Tensor& flag : found_inf) {
    // A non-blocking copy to the CPU could be read before it is complete.
    const at::Tensor here = flag.to(device, /*non_blocking=*/!device.is_cpu());
    any = any.defined() ? at::maximum(any, here) : here;
  }
  return any;
}

/// The fused operation has no bfloat16 kernel on CUDA; uses float32 copies.
void unscale_bfloat16(const std::vector<at::Tensor>& gradients, const at::Tensor& found_inf,
                      const at::Tensor& inverse_scale) {
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor float32 = gradient.to(at::kFloat);
    at::Tensor flag = found_inf;
    at::_amp_foreach_non_finite_check_and_unscale_(float32, flag, inverse_scale);
    gradient.copy_(float32);
  }
}

/// One flag per device.
std::vector<at::Tensor> unscale_groups(const std::vector<Group>& groups,
                                       const at::Tensor& inverse_scale) {
  std::vector<at::Tensor> found_inf;
  for (const Group& group : groups) {
    auto flag = std::find_if(found_inf.begin(), found_inf.end(),
                             [&](const at::Tensor& f) { return f.device() == group.device; });
    if (flag == found_inf.end()) {
      const auto options = at::TensorOptions(group.device).dtype(at::kFloat);
      flag = found_inf.insert(flag, at::zeros({}, options));
    }
    const at::Tensor inverse =
        inverse_scale.to(group.device, /*non_blocking=*/!group.device.is_cpu());
    if (group.dtype == at::kBFloat16) {
      unscale_bfloat16(group.gradients, *flag, inverse);
    } else {
      at::_amp_foreach_non_finite_check_and_unscale_(group.gradients, *flag, inverse);
    }
  }
  return found_inf;
}

}  // namespace

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

at::Tensor stored_values(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return tensor._values();
    case at::kSparseCsr:
    case at::kSparseCsc:
    case at::kSparseBsr:
    case at::kSparseBsc:
      return tensor.values();
    default:
      return tensor;
  }
}

at::Tensor unscale_gradients(const std::vector<at::Tensor>& parameters,
                             const at::Tensor& inverse_scale) {
  const at::NoGradGuard no_grad;
  const std::vector<Group> groups = group_gradients(parameters, require_unscalable);
  return any_found_inf(unscale_groups(groups, inverse_scale), inverse_scale.device());
}

at::Tensor check_gradients(const std::vector<at::Tensor>& parameters, at::Device device) {
  const at::NoGradGuard no_grad;
  const std::vector<Group> groups = group_gradients(parameters, require_checkable);
  const at::Tensor one = at::ones({}, at::TensorOptions(device).dtype(at::kFloat));
  return any_found_inf(unscale_groups(groups, one), device);  // a factor of 1 changes no value
}

}  // namespace mezzo::amp
