#include "mezzo/nn/normalization.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include "mezzo/core/error.h"

namespace mezzo::nn::detail {

std::function<at::Tensor(const at::Tensor&)> add_normalization(
    torch::nn::Module& owner, const std::string& name, Normalization kind, std::int64_t width,
    const NormalizationFactory& make_batch) {
  if (kind == Normalization::kLayer) {
    auto norm = torch::nn::LayerNorm(std::vector<std::int64_t>{width});
    owner.register_module(name, norm);
    return [norm](const at::Tensor& h) mutable { return norm(h); };
  }
  if (kind == Normalization::kBatch && make_batch) {
    NormalizationModule norm = make_batch(width);
    owner.register_module(name, std::move(norm.module));
    return std::move(norm.apply);
  }
  if (kind == Normalization::kBatch) {
    auto norm = torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(width));
    owner.register_module(name, norm);
    return [norm](const at::Tensor& h) mutable {
      MEZZO_CHECK(!norm->is_training() || h.size(0) > 1,
                  "batch normalization: expected at least 2 rows while training, got {}",
                  h.size(0));
      return norm(h);
    };
  }
  return {};
}

}  // namespace mezzo::nn::detail
