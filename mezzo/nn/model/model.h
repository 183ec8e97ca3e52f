#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/sage_conv.h"
#include "mezzo/nn/layer_holder.h"
#include "mezzo/nn/model/model_input.h"
#include "mezzo/nn/normalization.h"

namespace mezzo::nn {

/// Of which layer a Model is a stack: GraphConv (norm kBoth, with parent_degrees), SAGEConv,
/// GATConv, GINConv (sum, each with an MLP of one hidden layer), or a linear layer that ignores the
/// edges. kSgc: one SGConv of num_layers hops, a linear model without hidden layers.
enum class ModelKind : std::uint8_t { kGcn, kSage, kGat, kGin, kSgc, kMlp };

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
struct SgcModel {
  static constexpr ModelKind kind = ModelKind::kSgc;
  static constexpr std::string_view name = "sgc";
};
struct MlpModel {
  static constexpr ModelKind kind = ModelKind::kMlp;
  static constexpr std::string_view name = "mlp";
};
/// Every kind, with the word that the command line takes.
using ModelKinds = TypeList<GcnModel, SageModel, GatModel, GinModel, SgcModel, MlpModel>;

/// Whether a node without in-edges is an error to the kind's layers, unless they are told
/// otherwise.
constexpr bool needs_in_edges(ModelKind kind) {
  return kind == ModelKind::kGcn || kind == ModelKind::kGat || kind == ModelKind::kSgc;
}

/// Whether the kind's layers multiply messages by weights of the edges (GraphConv, SAGEConv). Those
/// of blocks are for means: of SAGEConv's aggregators only kMean takes them.
constexpr bool takes_edge_weights(ModelKind kind) {
  return kind == ModelKind::kGcn || kind == ModelKind::kSage;
}

/// Options of Model.
struct ModelOptions {
  ModelKind kind = ModelKind::kGcn;
  std::int64_t in_features = 0;
  std::int64_t hidden_features = 16;  ///< of a hidden layer, kGat: of each of its heads, kGin: also
                                      ///< of the hidden layer of each MLP; kSgc: none
  std::int64_t out_features = 0;
  std::int64_t num_layers = 2;   ///< kSgc: hops of its one layer
  std::int64_t num_heads = 8;    ///< kGat: of a hidden layer, concatenated
  double dropout = 0.5;          ///< of the input of every layer, in [0, 1); while training
  double attention_dropout = 0;  ///< kGat; another kind takes only 0
  Activation activation = {};    ///< after every layer but the last; empty: ReLU, for kGat ELU
  Normalization normalization = Normalization::kNone;  ///< before the activation
  /// Makes batch normalization, with the names, shapes and dtypes of BatchNorm1d's parameters and
  /// buffers; empty: libtorch's BatchNorm1d. See dist::sync_batch_normalization().
  NormalizationFactory batch_normalization = {};
  bool skip = false;  ///< add each layer's input to its output, projected where the widths differ
  std::int64_t num_output_heads = 1;          ///< kGat: of the last layer, averaged
  Aggregator aggregator = Aggregator::kMean;  ///< kSage: one of SageAggregators
  bool allow_zero_in_degree = false;  ///< kGcn, kGat, kSgc: otherwise such nodes are an error
  /// Submodules (`layer0`, `norm0`, `skip0`, ...) that compute in float32 inside an autocast
  /// region: their input is widened and nothing in them is cast; a layer's dropout belongs to it.
  /// Their parameters have to be float32: after model->to(torch::kBFloat16), bring them back.
  std::vector<std::string> keep_float32 = {};
};

/// A stack of layers of one kind: dropout, layer, normalization, skip, activation; the last layer
/// without normalization and activation. Submodules `layer0`, `norm0`, `skip0`, ...
class MEZZO_API ModelImpl : public torch::nn::Cloneable<ModelImpl> {
 public:
  /// Throws InvalidArgument unless the sizes and counts are positive, the dropouts in [0, 1) and
  /// keep_float32 names submodules, each once.
  explicit ModelImpl(ModelOptions options);
  ~ModelImpl() override;
  ModelImpl(const ModelImpl&);  // for clone(): a copy shares the layers
  ModelImpl& operator=(const ModelImpl&);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;

  /// input: a Graph or Topology of one set of nodes, or, for a single layer other than kSgc's, one
  /// whose destinations are the first num_dst sources (a Block); or Blocks, one for each layer, the
  /// destinations of one being the sources of the next. x: [num_src, in], of Blocks the sources of
  /// the first, strided or sparse CSR, on the input's device. Returns the logits [num_dst, out], of
  /// Blocks the destinations of the last. Throws InvalidArgument for other shapes, devices and
  /// numbers of blocks, and for kSgc of several hops on Blocks. Reads no column of a Graph or
  /// Block but the one that the input names as edge weights (floating [num_edges]): factors for
  /// the mean over the edges of the block, such as BlockLoader writes for layer_sizes. The
  /// "edge_weights" of a LABOR block are for sums; they must not be named, and are not read
  /// otherwise. Throws InvalidArgument for edge weights and a kind that takes none, or kSage with
  /// another aggregator than kMean, and for 16-bit parameters of a part in keep_float32. Dropout
  /// draws from libtorch's generator.
  at::Tensor forward(ModelInput input, const at::Tensor& x);

  /// Layers with edges of their own, so also the Blocks that forward() takes; kSgc: 1.
  std::int64_t num_layers() const;
  /// Layer `index` alone, as forward() runs it: dropout, layer, normalization, skip, activation.
  /// topology: its destinations are the first num_dst sources; x: [num_src, width before the
  /// layer], strided or sparse CSR. edge_weight: floating [num_edges], multiplies the messages, of
  /// a kind that takes_edge_weights(), or undefined. Returns [num_dst, width after it]. Throws
  /// InvalidArgument for other indices, shapes and devices, and parameters as forward() does.
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& x,
                           const at::Tensor& edge_weight = {});

  ModelOptions options;

 private:
  struct Layer;
  /// Returns the width of what layer `index` gives.
  std::int64_t add_layer(std::int64_t index, std::int64_t in_features);
  void check_keep_float32() const;
  bool keeps_float32(const std::string& path) const;
  void check_blocks(const Blocks& blocks) const;
  at::Tensor run_layer(const Layer& layer, const Topology& topology, const at::Tensor& before,
                       const at::Tensor& edge_weight);

  std::vector<Layer> layers_;
};
using Model = InOutHolder<ModelImpl>;

}  // namespace mezzo::nn
