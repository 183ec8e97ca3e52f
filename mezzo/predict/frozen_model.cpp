#include "mezzo/predict/frozen_model.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/runtime/one_thread.h"

namespace mezzo::detail {
namespace {

/// libtorch computes the last elements of a range, those that do not fill a vector, by other code,
/// which may round otherwise. So these functions get whole vectors, on one thread.
nn::Activation in_whole_vectors(nn::Activation activation) {
  return [activation = std::move(activation)](const at::Tensor& h) {
    constexpr std::int64_t kElements = 64;  // two of the largest vectors, which are one step
    const OneThread one_thread;
    const std::int64_t rows = h.size(0), step = kElements / std::gcd(h.size(1), kElements);
    if (rows % step == 0 && h.is_contiguous()) return activation(h);
    at::Tensor padded = at::zeros({(rows + step - 1) / step * step, h.size(1)}, h.options());
    padded.narrow(0, 0, rows).copy_(h);
    return activation(padded).narrow(0, 0, rows);
  };
}

void check_model(const nn::Model& model) {
  MEZZO_CHECK(!model.is_empty(), "Predictor: expected a model, got none");
  const nn::ModelOptions& options = model->options;
  MEZZO_CHECK(!nn::is_own(options.kind),
              "Predictor: expected a model of kind {}, got a module of your own, which cannot be "
              "copied",
              detail::names(nn::ModelKinds{}));
  MEZZO_CHECK(options.kind != nn::ModelKind::kSage || options.aggregator != nn::Aggregator::kLstm,
              "Predictor: expected another aggregator than lstm, whose rows depend on the other "
              "rows of a product");
  for (const at::Tensor& parameter : model->parameters()) {
    MEZZO_CHECK(parameter.is_cpu(), "Predictor: expected a model on the CPU, got it on {}",
                parameter.device().str());
  }
}

/// Its parameters and buffers have no values: the guard makes libtorch's functions that would fill
/// them those of the device meta, which compute shapes alone. So nothing is drawn from the global
/// generator, from which other threads may draw.
std::shared_ptr<nn::ModelImpl> uninitialized_model(const nn::ModelOptions& options) {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard fill_nothing(
      keys.included_ | c10::DispatchKeySet(c10::DispatchKey::Meta), keys.excluded_);
  return std::make_shared<nn::ModelImpl>(options);
}

void copy_values(const nn::ModelImpl& from, nn::ModelImpl& to) {
  const at::NoGradGuard no_grad;
  const auto copy = [](auto to_tensors, const auto& from_tensors) {
    for (auto& item : to_tensors) {
      item.value().set_data(from_tensors[item.key()].detach().clone());
      item.value().set_requires_grad(false);
    }
  };
  copy(to.named_parameters(), from.named_parameters());
  copy(to.named_buffers(), from.named_buffers());
}

/// Converts the weights of the products that autocast would convert in every call.
void store_weights_in(at::ScalarType type, nn::ModelImpl& model) {
  const std::vector<std::string>& float32 = model.options.keep_float32;
  for (const auto& child : model.named_children()) {
    if (std::find(float32.begin(), float32.end(), child.key()) != float32.end()) continue;
    for (const auto& part : child.value()->modules()) {
      if (part->as<torch::nn::LinearImpl>() == nullptr &&
          part->as<nn::GraphConvImpl>() == nullptr) {
        continue;
      }
      for (at::Tensor& parameter : part->parameters(/*recurse=*/false)) {
        parameter.set_data(parameter.to(type));
      }
    }
  }
}

}  // namespace

FrozenModel::Scope::Scope(const FrozenModel& model)
    : precision_(model.precision_, at::kCPU, {.cpu_policy = amp::CpuPolicy::kOff}) {}

FrozenModel::FrozenModel(const nn::Model& model, amp::Precision precision)
    : precision_(precision == amp::Precision::kTensorFloat32 ? amp::Precision::kFloat32
                                                             : precision) {
  check_model(model);
  nn::ModelOptions options = model->options;
  options.allow_zero_in_degree = true;  // a node may lose its last edge
  options.activation = in_whole_vectors(options.activation);
  model_ = uninitialized_model(options);
  copy_values(*model, *model_);
  if (const auto type = low_type()) store_weights_in(*type, *model_);
  model_->eval();
}

std::optional<at::ScalarType> FrozenModel::low_type() const {
  if (precision_ == amp::Precision::kBFloat16) return at::kBFloat16;
  if (precision_ == amp::Precision::kFloat16) return at::kHalf;
  return std::nullopt;
}

at::ScalarType FrozenModel::feature_dtype() const {
  const std::vector<std::string>& float32 = options().keep_float32;
  const bool reads_float32 = std::any_of(float32.begin(), float32.end(), [](std::string_view part) {
    return part == "layer0" || part == "skip0";
  });
  return reads_float32 ? at::kFloat : low_type().value_or(at::kFloat);
}

bool FrozenModel::sums_inputs(std::int64_t index, at::ScalarType type) const {
  const nn::ModelOptions& o = options();
  if (!o.keep_float32.empty() || type != low_type().value_or(at::kFloat)) return false;
  if (nn::has_layer_mlps(o.kind)) return true;
  const bool is_last = index + 1 == num_layers() && o.target == TaskTarget::kNode;
  const std::int64_t in = index == 0 ? o.in_features : o.hidden_features,
                     out = is_last ? o.out_features : o.hidden_features;
  const bool is_mean = o.kind == nn::ModelKind::kSage && o.aggregator == nn::Aggregator::kMean;
  return (is_mean || o.kind == nn::ModelKind::kGcn) && in <= out;
}

std::int64_t FrozenModel::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& t : model_->parameters()) bytes += static_cast<std::int64_t>(t.nbytes());
  for (const at::Tensor& t : model_->buffers()) bytes += static_cast<std::int64_t>(t.nbytes());
  return bytes;
}

}  // namespace mezzo::detail
