#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

namespace mezzo {

/// Options of inference.
struct InferenceOptions {
  std::int64_t batch_size = 4096;  ///< destinations of a layer per batch, at least 1
  at::Device device = at::kCPU;    ///< must be the device of the model's parameters
  /// Undefined, or floating [num_edges] on the CPU: factors of the messages, for a Model of a kind
  /// that takes_edge_weights(), or features [num_edges, F] if it takes_edge_features().
  at::Tensor edge_rows = {};
};

/// Returns the logits of all nodes from all their in-neighbours: the result of model(graph, x) in
/// evaluation mode, up to rounding; of a model with a head the rows that its forward_head() takes.
/// Runs layer by layer in batches of `batch_size` nodes. CPU memory holds the outputs of two layers
/// and, for each node, 4 bytes (8 with int64 ids) and two degrees; the device holds the
/// in-neighbours of one batch (kMlp: its nodes). Graphs of at most batch_size nodes, and models
/// whose kind needs_whole_graph(), run on the device as a whole.
///
/// graph: a Graph or Topology of one set of nodes; it and x are not moved, and are best on the CPU.
/// x: floating [N, in], strided (may be memory-mapped: reads only the rows of a batch) or sparse
/// CSR; converted to the dtype of the parameters unless autocast is on for the device. Returns [N,
/// out] on the CPU, without gradient, in the dtype of the last layer: 16-bit under autocast.
/// Restores the training modes of the model and its submodules, also after an error. Throws
/// InvalidArgument for other shapes, a batch_size below 1 and a device other than the parameters'.
/// Deterministic.
///
/// model: also a module of your own: an nn::LayeredModule, whose layers may return [num_dst, ...]
/// of any shape and see degrees of the whole graph as Topology::parent_in_degrees, or an
/// nn::GraphModule. Without parameters x keeps its dtype.
MEZZO_API at::Tensor inference(nn::Model model, const Topology& graph, const at::Tensor& x,
                               InferenceOptions options = {});

}  // namespace mezzo
