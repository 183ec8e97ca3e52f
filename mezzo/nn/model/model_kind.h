#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo::nn {

/// The layers of a Model: GraphConv (norm kBoth, with parent_degrees), SAGEConv, GATConv, GINConv
/// (sum, each with an MLP of one hidden layer), GINEConv (as GINConv; a linear map makes the
/// features of the edges as wide as the layer's input), or linear layers, which ignore the edges.
/// kSgc: one SGConv of num_layers hops, a linear model without hidden layers. A module of your own
/// is kOwn, a LayeredModule; kOwnEdges, one whose layers read edge rows; or kOwnGraph, a
/// GraphModule.
enum class ModelKind : std::uint8_t {
  kGcn,
  kSage,
  kGat,
  kGin,
  kGine,
  kSgc,
  kMlp,
  kOwn,
  kOwnEdges,
  kOwnGraph,
};

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

/// Whether it is a module of your own.
constexpr bool is_own(ModelKind kind) {
  return kind == ModelKind::kOwn || kind == ModelKind::kOwnEdges || kind == ModelKind::kOwnGraph;
}

/// The name in ModelKinds; "own" if is_own().
constexpr std::string_view to_string(ModelKind kind) {
  return is_own(kind) ? "own" : name_of(ModelKinds{}, kind);
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

/// Whether the model reads features of the edges.
constexpr bool takes_edge_features(ModelKind kind) {
  return kind == ModelKind::kGine || kind == ModelKind::kOwnEdges || kind == ModelKind::kOwnGraph;
}

/// Whether the model runs on one structure only, not on blocks or layer by layer.
constexpr bool needs_whole_graph(ModelKind kind) {
  return kind == ModelKind::kSgc || kind == ModelKind::kOwnGraph;
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

}  // namespace mezzo::nn
