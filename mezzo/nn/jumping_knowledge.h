#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "mezzo/core/export.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// How JumpingKnowledge combines the outputs of the layers: concatenation, maximum per feature, or
/// mean weighted by the attention of a bidirectional LSTM over the layers.
enum class JumpingMode : std::uint8_t { kCat, kMax, kLstm };

/// Options of JumpingKnowledge.
struct JumpingKnowledgeOptions {
  JumpingMode mode = JumpingMode::kCat;
  std::int64_t in_features = 0;  ///< kLstm: width of every layer's output; else unused
  std::int64_t num_layers = 0;   ///< kLstm: the hidden width is num_layers * in_features / 2
};

/// Jumping knowledge (Xu et al., ICML'18), with DGL's semantics and parameters: combines the
/// outputs of several layers into one tensor. kLstm has a bidirectional `lstm` and a linear layer
/// `att` [1, 2 hidden], initialised as in libtorch; the attention of a node is a softmax over the
/// layers.
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
  /// layers: at least one floating [N, ..., F] of equal shape, except that F may differ with kCat;
  /// [N, in_features] with kLstm. Returns [N, ..., sum of the widths] with kCat, else the shape of
  /// one layer. Promotes dtypes. Throws InvalidArgument for other layers.
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
