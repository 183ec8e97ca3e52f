#include "mezzo/train/steps/controlled_model.h"

#include <cstddef>
#include <cstdint>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

ControlVariateOptions variate_options(const nn::ModelOptions& model, at::ScalarType dtype) {
  const auto hidden_layers = static_cast<std::size_t>(model.num_layers - 1);
  return {.widths = std::vector<std::int64_t>(hidden_layers, model.hidden_features),
          .dtype = dtype};
}

/// The square roots of degrees, which count as at least 1: [n, 1], float32 beside 16-bit rows.
at::Tensor roots(const at::Tensor* degrees, at::ScalarType rows) {
  MEZZO_CHECK(degrees != nullptr, "control variates: expected blocks with parent degrees");
  return degrees->clamp_min(1).to(at::promote_types(rows, at::kFloat)).sqrt().unsqueeze(1);
}

}  // namespace

ControlledModel::ControlledModel(const Graph& graph, const nn::ModelOptions& model,
                                 at::ScalarType dtype)
    : normalises_(model.kind == nn::ModelKind::kGcn),
      variate_(graph, variate_options(model, dtype)) {}

at::Tensor ControlledModel::forward(nn::ModelImpl& model, const Blocks& blocks,
                                    const at::Tensor& x) {
  blocks_ = blocks;
  messages_.clear();
  at::Tensor h = model.forward_layer(0, blocks.front().topology(), x);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    const Topology& topology = blocks[i].topology();
    const auto layer = static_cast<std::int64_t>(i);
    at::Tensor message = h.detach(), correction = variate_.correction(blocks[i], layer - 1);
    if (normalises_) {
      // GraphConv's sum is sqrt(d_v) times the mean of h_u / sqrt(d_u).
      message = message / roots(topology.parent_out_degrees(), message.scalar_type());
      correction = correction * roots(topology.parent_in_degrees(), message.scalar_type());
    }
    messages_.push_back(message);
    h = model.forward_layer(layer, topology, h, {}, correction);
  }
  return h;
}

void ControlledModel::update() {
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    variate_.update(blocks_[i + 1], static_cast<std::int64_t>(i), messages_[i]);
  }
}

}  // namespace mezzo
