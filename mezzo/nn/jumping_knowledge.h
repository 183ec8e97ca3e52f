#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "mezzo/core/export.h"
#include "mezzo/nn/layer_holder.h"

namespace mezzo::nn {

/// What JumpingKnowledge makes of the outputs of the layers: all of them side by side, their
/// maximum per feature, or their mean weighted by the attention of a bidirectional LSTM over them.
enum class JumpingMode : std::uint8_t { kCat, kMax, kLstm };

/// Options of JumpingKnowledge.
struct JumpingKnowledgeOptions {
  JumpingMode mode = JumpingMode::kCat;
  std::int64_t in_features = 0;  ///< kLstm: the width of every layer's output; otherwise unused
  std::int64_t num_layers = 0;   ///< kLstm: the hidden width is num_layers * in_features / 2
};

/// Jumping knowledge (Xu et al., ICML'18), with DGL's semantics and parameters: one tensor of the
/// outputs of several layers. With kLstm a bidirectional `lstm` and a linear layer `att` [1, 2
/// hidden], as libtorch initialises them; the attention of a node is the softmax over the layers.
class MEZZO_API JumpingKnowledgeImpl : public torch::nn::Cloneable<JumpingKnowledgeImpl> {
 public:
  /// Throws InvalidArgument for kLstm unless in_features, num_layers and the hidden width are
  /// positive.
  explicit JumpingKnowledgeImpl(JumpingKnowledgeOptions options = {});
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// layers: at least one, floating [N, ..., F], alike but for F with kCat, [N, in_features] with
  /// kLstm. Returns [N, ..., sum of the widths] with kCat, else the shape of one. Dtypes are
  /// promoted. Throws InvalidArgument for others.
  at::Tensor forward(const std::vector<at::Tensor>& layers);

  JumpingKnowledgeOptions options;
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear att{nullptr};

 private:
  /// The weight of each layer for each node: [N, number of layers], rows sum to 1.
  at::Tensor attention(const std::vector<at::Tensor>& layers) const;
};
using JumpingKnowledge = LayerHolder<JumpingKnowledgeImpl>;

}  // namespace mezzo::nn
