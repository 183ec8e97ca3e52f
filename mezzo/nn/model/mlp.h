#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/normalization.h"

namespace mezzo::nn {

/// Options of MLP.
struct MLPOptions {
  std::int64_t in_features = 0;
  std::int64_t hidden_features = 16;
  std::int64_t out_features = 0;
  std::int64_t num_layers = 2;
  double dropout = 0.5;        ///< on the input of every layer, in [0, 1); while training
  Activation activation = {};  ///< after every layer but the last; empty: ReLU
  Normalization normalization = Normalization::kNone;  ///< before the activation
};

/// A multilayer perceptron: dropout, linear, normalization, activation; the last layer has only
/// dropout and linear. Parameters `layer0.weight` [hidden, in], `layer0.bias` [hidden], ...,
/// `norm0.weight`, ..., initialised as in libtorch.
class MEZZO_API MLPImpl : public torch::nn::Cloneable<MLPImpl> {
 public:
  /// Throws InvalidArgument unless the sizes and num_layers are positive and the dropout is in
  /// [0, 1).
  explicit MLPImpl(MLPOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// x: [N, in], strided or sparse CSR. Returns [N, out]. Throws InvalidArgument for other shapes.
  /// Dropout draws from libtorch's generator.
  at::Tensor forward(const at::Tensor& x);

  MLPOptions options;

 private:
  std::vector<torch::nn::Linear> layers_;
  std::vector<std::function<at::Tensor(const at::Tensor&)>> normalizations_;  // of hidden layers
};
using MLP = InOutHolder<MLPImpl>;

}  // namespace mezzo::nn
