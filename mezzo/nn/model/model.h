#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/sampling/blocks/block.h"

namespace mezzo::nn {

/// The layers of a Model: GraphConv (norm kBoth, with parent_degrees), SAGEConv, GATConv, GINConv
/// (sum, each with an MLP of one hidden layer), GINEConv (as GINConv; a linear map makes the
/// features of the edges as wide as the layer's input), or linear layers, which ignore the edges.
/// kSgc: one SGConv of num_layers hops, a linear model without hidden layers. kOwn: a module of
/// your own, see LayeredModule.
enum class ModelKind : std::uint8_t { kGcn, kSage, kGat, kGin, kGine, kSgc, kMlp, kOwn };

struct GcnModel {
  static constexpr ModelKind kind = ModelKind::kGcn;
  static constexpr std::string_view name = "gcn";
};
struct SageModel {
  static constexpr ModelKind kind = ModelKind::kSage;
  static constexpr std::string_view name = "sage";
};
struct GatModel {
  static constexpr ModelKind kind = ModelKind::kGat;
  static constexpr std::string_view name = "gat";
};
struct GinModel {
  static constexpr ModelKind kind = ModelKind::kGin;
  static constexpr std::string_view name = "gin";
};
struct GineModel {
  static constexpr ModelKind kind = ModelKind::kGine;
  static constexpr std::string_view name = "gine";
};
struct SgcModel {
  static constexpr ModelKind kind = ModelKind::kSgc;
  static constexpr std::string_view name = "sgc";
};
struct MlpModel {
  static constexpr ModelKind kind = ModelKind::kMlp;
  static constexpr std::string_view name = "mlp";
};
/// Every kind that a Model can make, with its name on the command line.
using ModelKinds = TypeList<GcnModel, SageModel, GatModel, GinModel, GineModel, SgcModel, MlpModel>;

/// The name in ModelKinds; "own" for kOwn.
constexpr std::string_view to_string(ModelKind kind) {
  return kind == ModelKind::kOwn ? "own" : name_of(ModelKinds{}, kind);
}

/// Whether nodes without in-edges are an error unless allow_zero_in_degree is set.
constexpr bool needs_in_edges(ModelKind kind) {
  return kind == ModelKind::kGcn || kind == ModelKind::kGat || kind == ModelKind::kSgc;
}

/// Whether the layers multiply messages by edge weights (GraphConv, SAGEConv). SAGEConv accepts
/// weights for means, such as those of blocks, only with kMean.
constexpr bool takes_edge_weights(ModelKind kind) {
  return kind == ModelKind::kGcn || kind == ModelKind::kSage;
}

/// Whether the layers read features of the edges.
constexpr bool takes_edge_features(ModelKind kind) {
  return kind == ModelKind::kGine;
}

/// Whether the layers have an MLP of one hidden layer each.
constexpr bool has_layer_mlps(ModelKind kind) {
  return kind == ModelKind::kGin || kind == ModelKind::kGine;
}

/// Whether the layers add something to what a node receives before they multiply it by weights, as
/// Model::forward_layer does with its received_offset.
constexpr bool takes_received_offset(ModelKind kind) {
  return kind == ModelKind::kGcn || kind == ModelKind::kSage;
}

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

/// The graph input of a model: one structure for all layers, or one block for each layer. A view:
/// converts implicitly from its argument, which must outlive it.
class ModelInput {
 public:
  ModelInput(const Topology& topology) : topology_(&topology) {}    // NOLINT: implicit
  ModelInput(const Graph& graph) : topology_(&graph.topology()) {}  // NOLINT
  ModelInput(const Block& block) : topology_(&block.topology()) {}  // NOLINT
  ModelInput(const Blocks& blocks) : blocks_(&blocks) {}            // NOLINT
  /// edge_rows: what every layer reads of the edges: undefined, or floating [num_edges], the
  /// factors of the messages; kGine: their features, floating [num_edges, edge_features].
  ModelInput(const Topology& topology, at::Tensor edge_rows)
      : topology_(&topology), edge_rows_(std::move(edge_rows)) {}
  /// Blocks with edge rows, in the column `edge_column` of their edges. Weights must be factors for
  /// a mean over these edges, as BlockLoader writes for layer_sizes. LABOR writes weights for sums
  /// to a column of the same name: they give wrong results, which cannot be detected here.
  ModelInput(const Blocks& blocks, std::string edge_column)
      : blocks_(&blocks), edge_column_(std::move(edge_column)) {}

  /// The same with what the outputs are for, which must outlive the result.
  ModelInput with_targets(const HeadTargets& targets) && {
    targets_ = &targets;
    return std::move(*this);
  }

  /// The structure for all layers; nullptr if the input is Blocks.
  const Topology* topology() const { return topology_; }
  /// The blocks, input layer first; nullptr if the input is one structure.
  const Blocks* blocks() const { return blocks_; }
  /// The structure for layer `index`: the block of that index, or the one for all layers. Throws
  /// InvalidArgument if there are fewer blocks.
  MEZZO_API const Topology& layer(std::int64_t index) const;
  /// The column of each block's edges that holds the edge rows; empty: none.
  const std::string& edge_column() const { return edge_column_; }
  /// The edge rows of the one structure; undefined: none.
  const at::Tensor& edge_rows() const { return edge_rows_; }
  /// What the head reads; nullptr: there is none.
  const HeadTargets* targets() const { return targets_; }

 private:
  const Topology* topology_ = nullptr;
  const Blocks* blocks_ = nullptr;
  std::string edge_column_;
  at::Tensor edge_rows_;
  const HeadTargets* targets_ = nullptr;
};

/// Runs layer `index` of a module. x: [num_src, ...], the rows of the sources of `topology`; the
/// destinations are the first num_dst sources. Returns [num_dst, ...].
using LayerForward =
    std::function<at::Tensor(std::int64_t index, const Topology& topology, const at::Tensor& x)>;

/// A stack of layers of one kind: dropout, layer, normalization, skip, activation; the last layer
/// has no normalization and no activation, unless a Head of kMlp follows. Submodules `layer0`,
/// `norm0`, `skip0`, ..., `head`. A module of your own is the submodule `own`.
class MEZZO_API ModelImpl : public torch::nn::Cloneable<ModelImpl> {
 public:
  /// Throws InvalidArgument unless the sizes and counts are positive, the dropouts are in [0, 1)
  /// and keep_float32 lists existing submodules without duplicates.
  explicit ModelImpl(ModelOptions options);
  /// Of kind kOwn, which Model makes of a LayeredModule. Throws InvalidArgument for num_layers
  /// below 1.
  ModelImpl(std::shared_ptr<torch::nn::Module> module, std::int64_t num_layers,
            LayerForward forward_layer);
  ~ModelImpl() override;
  ModelImpl(const ModelImpl&);  // for clone(): the copy shares the layers
  ModelImpl& operator=(const ModelImpl&);
  /// Creates the parameters; called by the constructor and clone(). kOwn: throws InvalidArgument.
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
  /// kGine, else weights, floating [num_edges], factors for the mean over the edges of the block,
  /// such as BlockLoader writes for layer_sizes. Do not name the "edge_weights" of a LABOR block:
  /// those are for sums. Throws InvalidArgument for other shapes, devices and numbers of blocks,
  /// for kSgc of several hops on Blocks, for edge weights if the kind takes none or kSage has
  /// another aggregator than kMean, for 16-bit parameters of a submodule in keep_float32, and for a
  /// layer of a module of your own that returns another number of rows, the last one also of
  /// columns unless options.out_features is 0.
  at::Tensor forward(ModelInput input, const at::Tensor& x);
  /// The first part of forward(): what the last layer returns.
  at::Tensor forward_layers(ModelInput input, const at::Tensor& x);
  /// The second part, which is the identity without a head. h: the rows of nodes.
  at::Tensor forward_head(const at::Tensor& h, const HeadTargets* targets);
  /// Empty for outputs of nodes.
  const Head& head() const { return head_; }

  /// The number of layers, and so of the Blocks that forward() takes; kSgc: 1.
  std::int64_t num_layers() const;
  /// Runs only layer `index`, as in forward(): dropout, layer, normalization, skip, activation.
  /// x: [num_src, input width of the layer], strided or sparse CSR; its first num_dst rows are
  /// those of the destinations. Or a pair: rows of sources and of destinations. edge_rows:
  /// undefined, or floating [num_edges], which multiplies the messages if the kind
  /// takes_edge_weights(); floating [num_edges, edge_features] if it takes_edge_features().
  /// received_offset: undefined, or floating [num_dst, input width of the layer], which is added,
  /// without dropout, to the mean (kGcn: the normalised sum) over the neighbours, such as a
  /// correction of ControlVariate; only if the kind takes_received_offset(), kSage with kMean.
  /// Returns [num_dst, output width]. Throws InvalidArgument for other indices, shapes and devices,
  /// and for the parameter dtypes that forward() rejects.
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const NodeRows& x,
                           const at::Tensor& edge_rows = {},
                           const at::Tensor& received_offset = {});

  ModelOptions options;  ///< kOwn: kind, num_layers, and out_features, 0 until train() sets it

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
  at::Tensor run_own_layer(std::int64_t index, const Topology& topology, const NodeRows& x);

  std::vector<Layer> layers_;
  Head head_{nullptr};
  LayerForward own_layer_;  // kOwn
};

/// A module of your own that is a Model: train(), inference() and load_checkpoint() take it.
/// num_layers(): how many layers it has, at least 1. forward_layer(index, topology, x): layer
/// `index` with all that follows it, as LayerForward; it must read no more than its topology and x.
/// The last one returns the logits.
template <class Module>
concept LayeredModule =
    std::derived_from<Module, torch::nn::Module> && !std::same_as<Module, ModelImpl> &&
    requires(Module & module, std::int64_t index, const Topology& topology, const at::Tensor& x) {
  { module.num_layers() } -> std::convertible_to<std::int64_t>;
  { module.forward_layer(index, topology, x) } -> std::convertible_to<at::Tensor>;
};

/// The holder of ModelImpl. Converts from the holder of a LayeredModule, which it shares: its
/// forward() runs the layers on a graph or on blocks. Such a model cannot be cloned.
class Model : public InOutHolder<ModelImpl> {
 public:
  using InOutHolder<ModelImpl>::InOutHolder;
  template <LayeredModule Module>
  Model(const torch::nn::ModuleHolder<Module>& holder)  // NOLINT: converts
      : Model(holder.is_empty() ? nullptr : wrap(holder.ptr())) {}

 private:
  template <class Module>
  static std::shared_ptr<ModelImpl> wrap(const std::shared_ptr<Module>& module) {
    const auto layer = [&own = *module](std::int64_t index, const Topology& topology,
                                        const at::Tensor& x) -> at::Tensor {
      return own.forward_layer(index, topology, x);
    };
    return std::make_shared<ModelImpl>(module, module->num_layers(), layer);
  }
};

}  // namespace mezzo::nn
