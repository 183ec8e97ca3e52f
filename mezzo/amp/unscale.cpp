#include "mezzo/amp/unscale.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

/// Gradients that one call of the fused operation takes.
struct Group {
  at::Device device;
  at::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

void check_dtype(at::ScalarType dtype) {
  MEZZO_CHECK(
      dtype != at::kHalf,
      "GradScaler: Attempting to unscale FP16 gradients. Keep the parameters in float32, or "
      "in bfloat16 without a scaler");
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16,
              "GradScaler: expected float32, float64 or bfloat16 gradients, got {}",
              c10::toString(dtype));
}

std::vector<Group> group_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<Group> groups;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined()) continue;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !seen.insert(gradient.unsafeGetTensorImpl()).second) continue;
    check_dtype(gradient.scalar_type());
    const at::Tensor values = stored_values(gradient);
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

/// The fused operation has no bfloat16 kernel on CUDA. In float32, because a product of a bfloat16
/// tensor and a 0-dim float32 one would round the factor to bfloat16 first.
void unscale_bfloat16(const std::vector<at::Tensor>& gradients, at::Tensor& found_inf,
                      const at::Tensor& inverse_scale) {
  for (const at::Tensor& gradient : gradients) {
    at::Tensor wide = gradient.to(at::kFloat);
    found_inf.copy_(at::maximum(found_inf, at::isfinite(wide).all().logical_not().to(at::kFloat)));
    gradient.copy_(wide.mul_(inverse_scale));
  }
}

}  // namespace

at::Tensor stored_values(const at::Tensor& gradient) {
  switch (gradient.layout()) {
    case at::kSparse:
      return gradient._values();
    case at::kSparseCsr:
    case at::kSparseCsc:
    case at::kSparseBsr:
    case at::kSparseBsc:
      return gradient.values();
    default:
      return gradient;
  }
}

std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& parameters,
                                          const at::Tensor& inverse_scale) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> found_inf;
  for (const Group& group : group_gradients(parameters)) {
    auto found = std::find_if(found_inf.begin(), found_inf.end(),
                              [&](const at::Tensor& f) { return f.device() == group.device; });
    if (found == found_inf.end()) {
      const auto options = at::TensorOptions(group.device).dtype(at::kFloat);
      found = found_inf.insert(found, at::zeros({}, options));
    }
    const at::Tensor inverse = inverse_scale.to(group.device, /*non_blocking=*/true);
    if (group.dtype == at::kBFloat16) {
      unscale_bfloat16(group.gradients, *found, inverse);
    } else {
      at::_amp_foreach_non_finite_check_and_unscale_(group.gradients, *found, inverse);
    }
  }
  return found_inf;
}

}  // namespace mezzo::amp
