#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/nn/model/model_input.h"
#include "mezzo/nn/model/model_kind.h"
#include "mezzo/nn/model/own_module.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/sampling/blocks/block.h"

namespace mezzo::nn {

/// Options of Model.
struct ModelOptions {
  ModelKind kind = ModelKind::kGcn;
  std::int64_t in_features = 0;
  std::int64_t hidden_features = 16;  ///< width of hidden layers; kGat: of each head; kGin, kGine:
                                      ///< also of the hidden layer of each MLP; kSgc: unused
  std::int64_t out_features = 0;
  /// What has outputs. Others than nodes: the layers are all of hidden width, and a Head follows.
  TaskTarget target = TaskTarget::kNode;
  /// kEdge: of the edges that have outputs, read by the head. kGine: of the edges of the structure.
  std::int64_t edge_features = 0;
  ReduceOp readout = ReduceOp::kMean;  ///< kGraph: one of Readouts
  Decoder decoder = Decoder::kMlp;     ///< kLink
  std::int64_t edge_types = 1;         ///< kLink: see HeadOptions
  std::int64_t num_layers = 2;         ///< kSgc: hops of the single layer
  std::int64_t num_heads = 8;          ///< kGat: in hidden layers, concatenated
  double dropout = 0.5;                ///< on the input of every layer, in [0, 1); while training
  double attention_dropout = 0;        ///< kGat; must be 0 for other kinds
  Activation activation = {};  ///< after every layer but the last; empty: ReLU, for kGat ELU
  Normalization normalization = Normalization::kNone;  ///< before the activation
  /// Creates batch normalization with the names, shapes and dtypes of BatchNorm1d's parameters and
  /// buffers; empty: libtorch's BatchNorm1d. See dist::sync_batch_normalization().
  NormalizationFactory batch_normalization = {};
  bool skip = false;  ///< add each layer's input to its output, projected if the widths differ
  std::int64_t num_output_heads = 1;          ///< kGat: in the last layer, averaged
  Aggregator aggregator = Aggregator::kMean;  ///< kSage: one of SageAggregators
  bool allow_zero_in_degree = false;  ///< kGcn, kGat, kSgc: if false, such nodes are an error
  /// Submodules (`layer0`, `norm0`, `skip0`, ..., `head`) that compute in float32 inside an
  /// autocast region: their input is cast to float32; a layer includes its dropout. Their
  /// parameters must be float32: after model->to(torch::kBFloat16), convert them back.
  std::vector<std::string> keep_float32 = {};
};

/// A stack of layers of one kind: dropout, layer, normalization, skip, activation; the last layer
/// has no normalization and no activation, unless a Head of kMlp follows. Submodules `layer0`,
/// `norm0`, `skip0`, ..., `head`. A module of your own is the submodule `own`.
class MEZZO_API ModelImpl : public torch::nn::Cloneable<ModelImpl> {
 public:
  /// Throws InvalidArgument unless the sizes and counts are positive, the dropouts are in [0, 1)
  /// and keep_float32 lists existing submodules without duplicates.
  explicit ModelImpl(ModelOptions options);
  /// A module of your own. Throws as OwnModule::check().
  explicit ModelImpl(OwnModule own);
  ~ModelImpl() override;
  ModelImpl(const ModelImpl&);  // for clone(): the copy shares the layers
  ModelImpl& operator=(const ModelImpl&);
  /// Creates the parameters; called by the constructor and clone(). Throws InvalidArgument if
  /// is_own().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;

  /// input: a Graph or Topology of one set of nodes; for a single layer other than kSgc also a
  /// Block, whose destinations are the first num_dst sources; or Blocks, one for each layer, where
  /// the destinations of a block are the sources of the next. x: [num_src, in] for the sources of
  /// the first block, strided or sparse CSR, on the input's device. Returns the logits [num_dst,
  /// out] of the destinations of the last block; with a head those of the input's targets, whose
  /// rows of nodes are these destinations. Dropout draws from libtorch's generator.
  /// The only column of a Graph or Block that is read is the one that the input names: features for
  /// kGine and kOwnEdges, else weights, floating [num_edges], factors for the mean over its edges,
  /// such as BlockLoader writes for layer_sizes. Do not name the "edge_weights" of a LABOR block:
  /// those are for sums. Throws InvalidArgument for other shapes, devices and numbers of blocks,
  /// for kSgc of several hops and kOwnGraph on Blocks, for edge weights if the kind takes none or
  /// kSage has another aggregator than kMean, for 16-bit parameters of a submodule in keep_float32,
  /// and for a module of your own that returns another number of rows, or other outputs than
  /// options.out_features columns unless that is 0.
  at::Tensor forward(ModelInput input, const at::Tensor& x);
  /// The first part of forward(): what the last layer, or a GraphModule, returns.
  at::Tensor forward_layers(ModelInput input, const at::Tensor& x);
  /// The second part, from what the first returned: the outputs of the head. Without one the same
  /// rows; of a GraphModule for edges the rows of targets->edge_ids.
  at::Tensor forward_head(const at::Tensor& h, const HeadTargets* targets);
  /// Whether a head computes the outputs, from rows of nodes.
  bool has_head() const { return !head_.is_empty() || own_.forward_head; }
  /// Empty without a head, and if it is a module of your own.
  const Head& head() const { return head_; }

  /// The number of layers, and so of the Blocks that forward() takes; kSgc and kOwnGraph: 1.
  std::int64_t num_layers() const;
  /// Runs only layer `index`, as in forward(): dropout, layer, normalization, skip, activation.
  /// x: [num_src, input width of the layer], strided or sparse CSR; its first num_dst rows are
  /// those of the destinations. Or a pair: rows of sources and of destinations. edge_rows:
  /// undefined, or floating [num_edges], which multiplies the messages if the kind
  /// takes_edge_weights(); floating [num_edges, edge_features] if it takes_edge_features(), for
  /// kOwnEdges of any width or undefined.
  /// received_offset: undefined, or floating [num_dst, input width of the layer], which is added,
  /// without dropout, to the mean (kGcn: the normalised sum) over the neighbours, such as a
  /// correction of ControlVariate; only if the kind takes_received_offset(), kSage with kMean.
  /// Returns [num_dst, output width]. Throws InvalidArgument for other indices, shapes and devices,
  /// for kOwnGraph, and for the parameter dtypes that forward() rejects.
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const NodeRows& x,
                           const at::Tensor& edge_rows = {},
                           const at::Tensor& received_offset = {});

  ModelOptions options;  ///< is_own(): kind, num_layers, and out_features, 0 until train() sets it

 private:
  struct Layer;
  /// Returns the output width of layer `index`.
  std::int64_t add_layer(std::int64_t index, std::int64_t in_features);
  /// Whether the layer has no normalization and no activation.
  bool is_linear(std::int64_t index) const;
  void check_keep_float32() const;
  bool keeps_float32(const std::string& path) const;
  void check_blocks(const Blocks& blocks) const;
  void check_received_offset(const Layer& layer, const Topology& topology,
                             const at::Tensor& offset) const;
  at::Tensor run_layer(const Layer& layer, const Topology& topology, const NodeRows& before,
                       const at::Tensor& edge_rows, const at::Tensor& received_offset);
  void check_edge_rows(const Topology& topology, const at::Tensor& edge_rows) const;

  std::vector<Layer> layers_;
  Head head_{nullptr};
  OwnModule own_;
};

/// The holder of ModelImpl. Converts from the holder of a LayeredModule or GraphModule, which it
/// shares: its forward() runs the layers on a graph or on blocks. Such a model cannot be cloned.
class Model : public InOutHolder<ModelImpl> {
 public:
  using InOutHolder<ModelImpl>::InOutHolder;
  template <class Module>
  requires(LayeredModule<Module> || GraphModule<Module>)
      Model(const torch::nn::ModuleHolder<Module>& holder)  // NOLINT: converts
      : Model(holder.is_empty() ? nullptr : std::make_shared<ModelImpl>(own_module(holder.ptr()))) {
  }
};

}  // namespace mezzo::nn
