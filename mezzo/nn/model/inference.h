#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

namespace mezzo {

/// Options of inference.
struct InferenceOptions {
  std::int64_t batch_size = 4096;  ///< destinations of a layer computed at a time, at least 1
  at::Device device = at::kCPU;    ///< where the layers run: that of the model's parameters
};

/// The logits of all nodes, from all their in-neighbours: what model(graph, x) gives in evaluation
/// mode, to rounding. Layer by layer, `batch_size` nodes at a time, each layer once for each node,
/// so that memory holds the outputs of two layers on the CPU, 4 (int64 ids: 8) bytes and two
/// degrees a node, and one part's in-neighbours on the device (kMlp: its nodes). A graph of at most
/// batch_size nodes, and a model of kind kSgc, whose one layer has all the hops, run on the device
/// as a whole.
///
/// graph: a Graph or Topology of one set of nodes; it and x stay where they are, and are best on
/// the CPU. x: floating [N, in], strided (memory-mapped too: only the rows of a part are read) or
/// sparse CSR; taken in the dtype of the model's parameters, unless autocast is on for the device,
/// which casts by its own rules. Returns [N, out] on the CPU, without gradient, in the dtype that
/// the last layer gives: 16-bit under autocast. The modes of the model and its parts are as before,
/// also after an error. Throws InvalidArgument for other shapes, a batch_size below 1 and a device
/// that is not the parameters'. Deterministic.
MEZZO_API at::Tensor inference(nn::Model& model, const Topology& graph, const at::Tensor& x,
                               InferenceOptions options = {});

}  // namespace mezzo
