#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

namespace detail {
struct FlowRows;
}

/// A sampled mini-batch as in DGL 0.4 (dgl.nodeflow): num_layers() sets of nodes, layer 0 the
/// inputs and the last layer the seeds, and a block of edges from each layer to the next. The nodes
/// of a layer are distinct and, except in the last layer, in ascending parent id. A node may be in
/// several layers. Negative indices count from the end; an index out of range throws
/// InvalidArgument. Ids of the flow number the nodes (edges) of all layers (blocks), layer 0 first;
/// `local` ids number the nodes of one layer or the edges of one block. A light handle: copies
/// share everything. On one device, like a Graph. Not safe for writing from several threads.
class MEZZO_API NodeFlow {
 public:
  /// A layer's or block's columns; valid while the flow lives.
  class View {
   public:
    explicit View(Frame& frame) : frame_(&frame) {}
    Frame& data() const { return *frame_; }  ///< to read and write

   private:
    Frame* frame_;
  };

  /// The end of an edge in block_incidence_matrix.
  enum class Incidence : std::uint8_t { kIn, kOut };

  /// The contents of a flow; inputs first.
  struct Parts {
    std::vector<at::Tensor> nodes;  ///< one per layer: int64, distinct ids of the parent
    std::vector<Topology> blocks;   ///< block i: sources layer i, destinations layer i + 1
    /// one per block: int64 ids of the parent, -1 for an added self loop
    std::vector<at::Tensor> edges;
  };

  /// Names of columns, one list for each layer and each block; an empty outer list: none.
  struct ColumnsByLayer {
    std::vector<std::vector<std::string>> nodes = {};  ///< num_layers() lists, inputs first
    std::vector<std::vector<std::string>> edges = {};  ///< num_blocks() lists
  };

  /// parent: the source and target of column copies; the ids' range is not checked. The flow is on
  /// the blocks' device. Throws InvalidArgument unless counts, sizes and devices agree.
  NodeFlow(Graph parent, Parts parts);

  std::int64_t num_layers() const;                    ///< hops + 1
  std::int64_t num_blocks() const;                    ///< hops
  std::int64_t layer_size(std::int64_t layer) const;  ///< nodes
  std::int64_t block_size(std::int64_t block) const;  ///< edges
  std::int64_t num_nodes() const;                     ///< over all layers
  std::int64_t num_edges() const;                     ///< over all blocks
  at::Device device() const;                          ///< of structure and columns
  const Graph& parent() const;                        ///< the sampled graph

  View layers(std::int64_t layer);  ///< the layer's columns, a row per node
  View blocks(std::int64_t block);  ///< the block's columns, a row per edge
  /// The block's edges: sources layer `block`, destinations layer block + 1. Valid until to().
  const Topology& block_topology(std::int64_t block) const;

  at::Tensor layer_nid(std::int64_t layer) const;         ///< int64, ids of the flow
  at::Tensor layer_parent_nid(std::int64_t layer) const;  ///< int64, ids of the parent
  at::Tensor block_eid(std::int64_t block) const;         ///< int64, ids of the flow
  at::Tensor block_parent_eid(std::int64_t block) const;  ///< int64, ids of the parent, or -1
  at::Tensor layer_in_degree(std::int64_t layer) const;   ///< int64; of layer 0: zeros
  at::Tensor layer_out_degree(std::int64_t layer) const;  ///< int64; of the last layer: zeros

  /// The parent's ids of nodes of any layer (integers [n], ids of the flow): int64 [n].
  at::Tensor map_to_parent_nid(const at::Tensor& ids) const;
  /// The parent's ids of edges; -1 for an added self loop.
  at::Tensor map_to_parent_eid(const at::Tensor& ids) const;
  /// Ids of the flow (if `local`, of the layer) of the layer's nodes with these parent ids
  /// (integers [n]): int64 [n]. Throws InvalidArgument for the first node that is not in the layer.
  /// O(layer log layer); synchronises on CUDA.
  at::Tensor map_from_parent_nid(std::int64_t layer, const at::Tensor& parent_ids,
                                 bool local = false) const;

  /// 1 (float32) at (v, u) for each edge from u to v, local ids: sparse COO [layer_size(block + 1),
  /// layer_size(block)]; parallel edges add up. Allocates.
  at::Tensor block_adjacency_matrix(std::int64_t block) const;
  /// 1 (float32) at (v, e) for each edge e of the block, local ids: sparse COO [layer_size,
  /// block_size]. kIn: v is its destination, kOut: its source. Allocates.
  at::Tensor block_incidence_matrix(std::int64_t block, Incidence incidence) const;

  /// The ends and ids of a block's edges.
  struct BlockEdges {
    at::Tensor src, dst, edges;  ///< int64 each
  };
  /// The block's edges in edge-id order; ids of the flow, or local.
  BlockEdges block_edges(std::int64_t block, bool local = false) const;

  /// Gathers these columns of the parent's nodes into every layer and of its edges into every
  /// block, on the flow's device; gradients flow to the parent's columns. Uses the rows that the
  /// sampler's workers prefetched (NeighborSamplerOptions::features) once, unless the parent's
  /// column was replaced or written to. Throws InvalidArgument for a missing column, and for edge
  /// columns if a block has an added self loop, which is not an edge of the parent; then it does
  /// not write. Allocates.
  void copy_from_parent(const std::vector<std::string>& node_columns,
                        const std::vector<std::string>& edge_columns = {});
  /// Copies all columns of the parent.
  void copy_from_parent();
  /// Copies columns layer by layer and block by block. Name the type; braces alone are
  /// ambiguous: flow.copy_from_parent(NodeFlow::ColumnsByLayer{.nodes = {{"feat"}, {"h"}, {}}}).
  void copy_from_parent(const ColumnsByLayer& columns);
  /// Writes columns of the layers and blocks, detached, to the rows of the parent's columns:
  /// flow.copy_to_parent({.nodes = {{}, {"h"}, {"h"}}}). An existing column keeps its dtype and
  /// shape; rows outside the flow keep their values, or are 0 in a new column. If several layers
  /// (blocks) have a node (edge) and the column, the last one wins. In place, at the cost of the
  /// written rows; tensors that share the column's memory see them. The parent gets a copy only if
  /// a gradient depends on the column or it does not own its memory (mapped files, at::from_blob,
  /// expanded rows). Throws InvalidArgument like copy_from_parent, and if a block has an edge twice
  /// (sampled with replacement); then it does not write.
  void copy_to_parent(const ColumnsByLayer& columns);

  /// Structure, ids and every column to `device`, in place; the parent does not move.
  void to(at::Device device);

  // Default functions of one block or, without an index (DGL's ALL), of every block; a later call
  // replaces an earlier one. Copies of the flow share them; a sampler's next flow has none. A
  // function must not hold a copy of its flow, or neither is ever freed.

  /// DGL's register_message_func: the messages of block_compute and prop_flow.
  void register_message_func(const MessageFunction& function,
                             std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_reduce_func: the reduction of block_compute and prop_flow.
  void register_reduce_func(const ReduceFunction& function,
                            std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_apply_node_func: the function that block_compute, prop_flow and apply_layer
  /// apply at layer block + 1; without `block`, of every layer, including layer 0. (In DGL,
  /// apply_layer uses the function of the block that starts at the layer.) An empty function
  /// removes it.
  void register_apply_node_func(const ApplyFunction& function,
                                std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_apply_edge_func: the function of apply_block.
  void register_apply_edge_func(const MessageFunction& function,
                                std::optional<std::int64_t> block = std::nullopt);

  // Message passing. User-defined functions see the frames of the layers and blocks:
  // NodeBatch::nodes and the ids of an EdgeBatch are local, so layer_parent_nid(i).index_select(0,
  // ids) are the parent's. `nodes` and `edges` are distinct ids of the flow (integers [n]), which a
  // function sees in their order. An omitted function ({}) is the registered one; ApplyFunction()
  // means no function. Throws the errors of Graph's functions, and InvalidArgument if a function is
  // neither passed nor registered; an error leaves the flow unchanged.

  /// Messages along block `block`, reduced at layer block + 1, where nodes without in-edges get 0;
  /// then `apply`, if set, maps that layer's columns, including the reduced ones, to new ones (see
  /// Graph::update_all). With `nodes` of layer block + 1 only for these: the others keep their
  /// rows, or get 0 in a new column (see Graph::pull; unlike in DGL, a node without in-edges gets
  /// 0).
  void block_compute(std::int64_t block, const std::optional<MessageFunction>& message = {},
                     const std::optional<ReduceFunction>& reduce = {},
                     const std::optional<ApplyFunction>& apply = {},
                     const std::optional<at::Tensor>& nodes = std::nullopt);
  /// Computes columns of the layer's nodes, or only of `nodes`, from their own.
  void apply_layer(std::int64_t layer, const std::optional<ApplyFunction>& function = {},
                   const std::optional<at::Tensor>& nodes = std::nullopt);
  /// Computes columns of the block's edges, or only of `edges`, from their ends' columns and their
  /// own.
  void apply_block(std::int64_t block, const std::optional<MessageFunction>& function = {},
                   const std::optional<at::Tensor>& edges = std::nullopt);
  /// block_compute of every block, from the inputs to the seeds. Throws for a missing function
  /// before it computes; another error in a block keeps the results of the blocks before.
  void prop_flow(const std::optional<MessageFunction>& message = {},
                 const std::optional<ReduceFunction>& reduce = {},
                 const std::optional<ApplyFunction>& apply = {});

 private:
  friend struct detail::FlowRows;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mezzo
