#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/control_variate.h"

namespace mezzo {

/// Runs a model on blocks with control variates (VR-GCN): each layer but the first receives the
/// mean over the drawn neighbours plus the ControlVariate's correction from the stored activations
/// of all neighbours. Features are not stored, so the first layer receives the plain mean of the
/// drawn neighbours: let it draw all of them. The stored activations, without dropout, start at 0.
/// Not thread-safe. Internal to train.
class ControlledModel {
 public:
  /// graph: on the CPU; blocks are drawn from it along in-edges. model: gcn or sage, of two layers
  /// or more, the options of the models to run. dtype: of the stored activations, which take
  /// num_nodes * hidden_features * (num_layers - 1) numbers on the CPU.
  MEZZO_API ControlledModel(const Graph& graph, const nn::ModelOptions& model,
                            at::ScalarType dtype);

  /// The logits [num_dst, out] of the last block; x: [num_src, in] of the first. blocks: one for
  /// each layer; of gcn with the degrees of the whole graph (BlockLoaderOptions::parent_degrees).
  MEZZO_API at::Tensor forward(nn::ModelImpl& model, const Blocks& blocks, const at::Tensor& x);

  /// Stores the activations of the last forward(); without it, for a step that was skipped because
  /// of inf or nan, those before stay.
  MEZZO_API void update();

 private:
  bool normalises_;  ///< gcn: messages are divided by the roots of both degrees
  ControlVariate variate_;
  Blocks blocks_;                     ///< of the last forward()
  std::vector<at::Tensor> messages_;  ///< of its layers but the first, detached
};

}  // namespace mezzo
