#include "mezzo/nn/jumping_knowledge.h"

#include <array>
#include <cstddef>
#include <ostream>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/recurrent.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kJumpingKnowledgeName = "JumpingKnowledge";
constexpr std::array<std::string_view, 3> kModeNames = {"cat", "max", "lstm"};

/// Whether two outputs can be combined: equal shapes, except the last dimension if `any_width`.
bool fit(const at::Tensor& a, const at::Tensor& b, bool any_width) {
  if (a.dim() != b.dim() || a.device() != b.device()) return false;
  return any_width
             ? a.sizes().slice(0, a.sizes().size() - 1) == b.sizes().slice(0, b.sizes().size() - 1)
             : a.sizes() == b.sizes();
}

void check_layers(const std::vector<at::Tensor>& layers, const JumpingKnowledgeOptions& options) {
  MEZZO_CHECK(!layers.empty(), "{}: expected the output of at least one layer, got none",
              kJumpingKnowledgeName);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor &layer = layers[i], &first = layers.front();
    MEZZO_CHECK(layer.defined() && layer.layout() == at::kStrided && layer.dim() >= 2 &&
                    at::isFloatingType(layer.scalar_type()),
                "{}: expected a floating, strided output [N, ..., F] of layer {}, got {}",
                kJumpingKnowledgeName, i, detail::describe(layer));
    MEZZO_CHECK(fit(layer, first, options.mode == JumpingMode::kCat),
                "{}: expected an output of layer {} that fits {} on {}, got {} on {}",
                kJumpingKnowledgeName, i, detail::describe(first), first.device().str(),
                detail::describe(layer), layer.device().str());
  }
  MEZZO_CHECK(options.mode != JumpingMode::kLstm ||
                  (layers[0].dim() == 2 && layers[0].size(1) == options.in_features),
              "{}: expected outputs [N, {}], got {}", kJumpingKnowledgeName, options.in_features,
              detail::describe(layers[0]));
}

}  // namespace

JumpingKnowledgeImpl::JumpingKnowledgeImpl(JumpingKnowledgeOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void JumpingKnowledgeImpl::reset() {
  if (options.mode != JumpingMode::kLstm) return;
  detail::check_positive(kJumpingKnowledgeName, "in_features", options.in_features);
  detail::check_positive(kJumpingKnowledgeName, "num_layers", options.num_layers);
  const std::int64_t hidden = options.num_layers * options.in_features / 2;
  detail::check_positive(kJumpingKnowledgeName, "num_layers * in_features / 2", hidden);
  lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(options.in_features, hidden)
                                                     .bidirectional(true)
                                                     .batch_first(true)));
  att = register_module("att", torch::nn::Linear(2 * hidden, 1));
}

void JumpingKnowledgeImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::JumpingKnowledge(mode={}, in_features={}, num_layers={})",
                        kModeNames.at(static_cast<std::size_t>(options.mode)), options.in_features,
                        options.num_layers);
}

void JumpingKnowledgeImpl::reset_parameters() {
  if (options.mode != JumpingMode::kLstm) return;
  lstm->reset_parameters();
  att->reset_parameters();
}

at::Tensor JumpingKnowledgeImpl::attention(const std::vector<at::Tensor>& layers) const {
  const std::size_t count = layers.size();
  const std::vector<detail::LstmWeights> weights = detail::lstm_weights(lstm);
  const detail::LstmState start = detail::lstm_start(lstm, layers[0].size(0), layers[0]);
  std::vector<at::Tensor> forward(count), backward(count), scores;
  detail::LstmState state = start;
  for (std::size_t i = 0; i < count; ++i) {
    state = detail::lstm_step(weights[0], layers[i], state);
    forward[i] = state.hidden;
  }
  state = start;
  for (std::size_t i = count; i-- > 0;) {
    state = detail::lstm_step(weights[1], layers[i], state);
    backward[i] = state.hidden;
  }
  for (std::size_t i = 0; i < count; ++i) {
    scores.push_back(detail::apply_linear(*att, at::cat({forward[i], backward[i]}, 1)));
  }
  return at::softmax(at::cat(scores, 1), 1);
}

at::Tensor JumpingKnowledgeImpl::forward(const std::vector<at::Tensor>& layers) {
  check_layers(layers, options);
  switch (options.mode) {
    case JumpingMode::kCat:
      return at::cat(layers, -1);
    case JumpingMode::kMax:
      return std::get<0>(at::stack(layers).max(0));
    case JumpingMode::kLstm: {
      const at::Tensor rows = at::stack(layers, 1);
      std::vector<at::Tensor> promoted;
      for (const at::Tensor& layer : layers) promoted.push_back(layer.to(rows.scalar_type()));
      const at::Tensor shares = attention(promoted).to(rows.scalar_type());
      return (rows * shares.unsqueeze(-1)).sum(1);
    }
  }
  mezzo::detail::raise<InvalidArgument>("{}: expected mode to be one of kCat, kMax, kLstm",
                                        kJumpingKnowledgeName);
}

}  // namespace mezzo::nn
