#include "mezzo/amp/optim/fused_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/amp/optim/fused_support.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

void check_factor(const char* optimizer, const char* argument, const at::Tensor& factor) {
  MEZZO_CHECK(!factor.defined() || (factor.scalar_type() == at::kFloat && factor.dim() == 0),
              "{}::fused_step: expected {} to be float32 without dimensions, got {} with {}",
              optimizer, argument, c10::toString(factor.scalar_type()), factor.dim());
}

void check_parameter(const char* optimizer, const at::Tensor& parameter,
                     const at::Tensor& gradient) {
  const at::ScalarType dtype = parameter.scalar_type();
  const char* const dtype_name = c10::toString(dtype);
  MEZZO_CHECK(!is_16_bit(dtype),
              "{}: expected float32 or float64 parameters, got {}, whose moments would be kept in "
              "16 bits too. Use enable_mixed_precision, which keeps float32 master weights",
              optimizer, dtype_name);
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble,
              "{}: expected float32 or float64 parameters, got {}", optimizer, dtype_name);
  MEZZO_CHECK(gradient.layout() == at::kStrided && parameter.layout() == at::kStrided,
              "{}: expected dense gradients, got a sparse one. Use torch::optim::SGD for it, or "
              "make the embedding's gradient dense",
              optimizer);
  MEZZO_CHECK(gradient.scalar_type() == dtype && gradient.device() == parameter.device(),
              "{}: expected the gradient of a {} parameter on {} to be the same, got {} on {}",
              optimizer, dtype_name, parameter.device().str(),
              c10::toString(gradient.scalar_type()), gradient.device().str());
  MEZZO_CHECK(parameter.is_non_overlapping_and_dense(),
              "{}: expected parameters without holes or overlaps in memory; clone() makes one such",
              optimizer);
  // Unscaling in place would write some elements several times, which libtorch rejects.
  MEZZO_CHECK(at::has_internal_overlap(gradient) != at::MemOverlap::Yes,
              "{}: expected gradients with memory of their own for each element, got an expanded "
              "one; clone() makes one such",
              optimizer);
}

/// The matching batch among those of one group, which start at `first`.
FusedBatch& batch_for(std::vector<FusedBatch>& batches, std::size_t first,
                      const torch::optim::OptimizerOptions& options, const at::Tensor& parameter) {
  const auto begin = batches.begin() + static_cast<std::ptrdiff_t>(first);
  const auto found = std::find_if(begin, batches.end(), [&parameter](const FusedBatch& batch) {
    return batch.parameters.front().device() == parameter.device() &&
           batch.parameters.front().scalar_type() == parameter.scalar_type();
  });
  if (found != batches.end()) return *found;
  batches.push_back({.options = &options,
                     .parameters = {},
                     .gradients = {},
                     .grad_scale = std::nullopt,
                     .found_inf = std::nullopt});
  return batches.back();
}

std::optional<at::Tensor> on_device(const at::Tensor& factor, at::Device device) {
  if (!factor.defined()) return std::nullopt;
  // A non-blocking copy to the CPU could be read before it is complete.
  return factor.to(device, /*non_blocking=*/!device.is_cpu());
}

}  // namespace

at::Tensor laid_out_like(const at::Tensor& tensor, const at::Tensor& like) {
  const bool same_layout =
      tensor.strides() == like.strides() || (tensor.is_contiguous() && like.is_contiguous());
  if (same_layout && tensor.device() == like.device() &&
      tensor.scalar_type() == like.scalar_type()) {
    return tensor;
  }
  return at::empty_like(like).copy_(tensor);
}

std::vector<at::Tensor> flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    rows.push_back(tensor.is_contiguous() ? tensor : tensor.as_strided({tensor.numel()}, {1}));
  }
  return rows;
}

std::vector<FusedBatch> FusedOptimizer::batches() const {
  std::vector<FusedBatch> made;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const torch::optim::OptimizerParamGroup& group : param_groups()) {
    check_options(group.options());
    const std::size_t first = made.size();
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      check_parameter(name(), parameter, gradient);
      MEZZO_CHECK(seen.insert(parameter.unsafeGetTensorImpl()).second,
                  "{}: a parameter is listed twice; it would move twice a step", name());
      FusedBatch& batch = batch_for(made, first, group.options(), parameter);
      batch.parameters.push_back(parameter);
      batch.gradients.push_back(gradient);
    }
  }
  return made;
}

void FusedOptimizer::fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  check_factor(name(), "grad_scale", grad_scale);
  check_factor(name(), "found_inf", found_inf);
  // The kernels skip only at exactly 1; a sum over devices or ranks may be larger.
  const at::Tensor skip = found_inf.defined() ? found_inf.ne(0).to(at::kFloat) : at::Tensor();
  for (FusedBatch& batch : batches()) {
    const at::Device device = batch.parameters.front().device();
    batch.grad_scale = on_device(grad_scale, device);
    batch.found_inf = on_device(skip, device);
    std::vector<at::Tensor> gradients = std::move(batch.gradients);
    batch.gradients.clear();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      batch.gradients.push_back(laid_out_like(gradients[i], batch.parameters[i]));
    }
    step_batch(batch);
    if (!batch.grad_scale) continue;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].is_same(batch.gradients[i])) gradients[i].copy_(batch.gradients[i]);
    }
  }
  at::autocast::clear_cache();
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  fused_step({}, {});
  return loss;
}

}  // namespace mezzo::amp
