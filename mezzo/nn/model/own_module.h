#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/nn/model/model_input.h"
#include "mezzo/nn/model/model_kind.h"

/// Modules of your own that are Models: train() and load_checkpoint() take their holders.
namespace mezzo::nn {

class ModelImpl;

/// A module whose layers read rows of nodes alone.
template <class Module>
concept HasNodeLayers = requires(Module& module, std::int64_t index, const Topology& topology,
                                 const at::Tensor& x) {
  { module.forward_layer(index, topology, x) } -> std::convertible_to<at::Tensor>;
};

/// A module whose layers read rows of edges, too.
template <class Module>
concept HasEdgeLayers = requires(Module& module, std::int64_t index, const Topology& topology,
                                 const at::Tensor& x, const at::Tensor& edge_rows) {
  { module.forward_layer(index, topology, x, edge_rows) } -> std::convertible_to<at::Tensor>;
};

/// A module of layers. num_layers(): how many, at least 1. forward_layer(index, topology, x) or
/// forward_layer(index, topology, x, edge_rows): layer `index` with all that follows it; it must
/// read no more than its arguments:
///
///     topology     the whole graph, or the block of this layer
///     x            [num_src, ...], the rows of the sources; the destinations are the first num_dst
///     edge_rows    float32 [num_edges, F], the features of these edges; undefined if the data have
///                  none
///
/// Returns [num_dst, ...]; the last layer the outputs of nodes, or the rows that the head reads
/// (HasHead).
template <class Module>
concept LayeredModule =
    std::derived_from<Module, torch::nn::Module> && !std::same_as<Module, ModelImpl> &&
    requires(Module & module) {
  { module.num_layers() } -> std::convertible_to<std::int64_t>;
  requires HasNodeLayers<Module> || HasEdgeLayers<Module>;
};

/// A module that computes a whole graph at once, such as a stack of InteractionBlocks, which pass
/// rows of edges on; for the full graph and batches of graphs. forward(input, x): x: [N, F]; it
/// reads input.topology(), input.edge_rows() (as LayeredModule) and, for outputs of graphs,
/// input.targets()->graph_sizes. Returns the outputs of each node, edge of the topology or graph;
/// or [N, ...], the rows of nodes that the head reads (HasHead).
template <class Module>
concept GraphModule =
    std::derived_from<Module, torch::nn::Module> && !std::same_as<Module, ModelImpl> &&
    !LayeredModule<Module> && !std::derived_from<Module, torch::nn::SequentialImpl> &&
    requires(Module & module, const ModelInput& input, const at::Tensor& x) {
  { module.forward(input, x) } -> std::convertible_to<at::Tensor>;
};

/// A module with a head, which computes the outputs of edges, links or graphs from rows of nodes:
/// its public member `head` is the holder of a registered submodule, a Head or one of your own with
/// forward(h, targets). h: [N, ...]; targets: HeadTargets. Returns their outputs, [T, out]. An
/// empty holder is no head, and neither is a member of another type.
template <class Module>
concept HasHead = requires(Module& module, const at::Tensor& h, const HeadTargets& targets) {
  { module.head->forward(h, targets) } -> std::convertible_to<at::Tensor>;
  { module.head.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
  requires !std::derived_from<std::remove_cvref_t<decltype(*module.head)>,
                              torch::nn::SequentialImpl>;
};

/// What a Model runs of a module of your own. The functions refer to the module.
struct OwnModule {
  std::shared_ptr<torch::nn::Module> module;
  ModelKind kind = ModelKind::kOwn;
  std::int64_t num_layers = 1;
  /// As LayeredModule says; empty for kOwnGraph.
  std::function<at::Tensor(std::int64_t index, const Topology& topology, const at::Tensor& x,
                           const at::Tensor& edge_rows)>
      forward_layer;
  /// As GraphModule says; only for kOwnGraph.
  std::function<at::Tensor(const ModelInput& input, const at::Tensor& x)> forward;
  /// As HasHead says; empty without a head.
  std::function<at::Tensor(const at::Tensor& h, const HeadTargets& targets)> forward_head;
  std::shared_ptr<torch::nn::Module> head_module;
  Head head{nullptr};  ///< if head_module is one

  /// Throws InvalidArgument for num_layers below 1 and a head that is no submodule of the module.
  void check() const;
  /// forward_layer(). Throws InvalidArgument without it, for a pair of rows, and for a result of
  /// another shape. out_features: the columns of outputs; 0: any.
  at::Tensor run_layer(std::int64_t index, const Topology& topology, const NodeRows& x,
                       const at::Tensor& edge_rows, std::int64_t out_features) const;
  /// forward(). Throws InvalidArgument for blocks, and for a result of another shape.
  at::Tensor run_graph(const ModelInput& input, const at::Tensor& x,
                       std::int64_t out_features) const;
  /// forward_head(). Throws InvalidArgument for a result of another shape.
  at::Tensor run_head(const at::Tensor& h, const HeadTargets& targets,
                      std::int64_t out_features) const;
};

/// The parts of `module`, which is not null.
template <class Module>
requires(LayeredModule<Module> || GraphModule<Module>) OwnModule
    own_module(const std::shared_ptr<Module>& module) {
  OwnModule result;
  result.module = module;
  Module& own = *module;
  if constexpr (LayeredModule<Module>) {
    result.kind = HasEdgeLayers<Module> ? ModelKind::kOwnEdges : ModelKind::kOwn;
    result.num_layers = own.num_layers();
    result.forward_layer = [&own](std::int64_t index, const Topology& topology, const at::Tensor& x,
                                  const at::Tensor& edge_rows) -> at::Tensor {
      if constexpr (HasEdgeLayers<Module>) {
        return own.forward_layer(index, topology, x, edge_rows);
      } else {
        return own.forward_layer(index, topology, x);
      }
    };
  } else {
    result.kind = ModelKind::kOwnGraph;
    result.forward = [&own](const ModelInput& input, const at::Tensor& x) -> at::Tensor {
      return own.forward(input, x);
    };
  }
  if constexpr (HasHead<Module>) {
    if (own.head.is_empty()) return result;
    result.head_module = own.head.ptr();
    result.forward_head = [&own](const at::Tensor& h, const HeadTargets& targets) -> at::Tensor {
      return own.head->forward(h, targets);
    };
    if constexpr (std::same_as<decltype(own.head), Head>) result.head = own.head;
  }
  return result;
}

}  // namespace mezzo::nn
