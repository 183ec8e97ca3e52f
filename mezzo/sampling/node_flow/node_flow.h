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

/// A sampled mini-batch in DGL's first form (0.4, dgl.nodeflow): num_layers() sets of nodes, of
/// which layer 0 are the inputs and the last one the seeds, and a block of edges from each layer to
/// the next. Layers hold distinct nodes; all but the last are in ascending parent id. A node may
/// stand in several layers. Negative indices count from the end; one out of range is an
/// InvalidArgument. Ids of the flow run over all layers (all blocks), layer 0 first; `local` ids
/// count within one layer (block). A light handle: copies share everything. On one device, like a
/// Graph. Not safe for writing from several threads.
class MEZZO_API NodeFlow {
 public:
  /// A layer's or block's columns. Refers to the flow, which has to outlive it.
  class View {
   public:
    explicit View(Frame& frame) : frame_(&frame) {}
    Frame& data() const { return *frame_; }  ///< the columns themselves, for reading and writing

   private:
    Frame* frame_;
  };

  /// Which end of an edge block_incidence_matrix tells.
  enum class Incidence : std::uint8_t { kIn, kOut };

  /// What a flow is made of; layers input first.
  struct Parts {
    std::vector<at::Tensor> nodes;  ///< one a layer: int64, distinct ids of the parent
    std::vector<Topology> blocks;   ///< block i: sources layer i, destinations layer i + 1
    std::vector<at::Tensor>
        edges;  ///< one a block: int64 ids of the parent, -1: an added self loop
  };

  /// Names of columns, one list for each layer and each block; an empty outer list: none.
  struct ColumnsByLayer {
    std::vector<std::vector<std::string>> nodes = {};  ///< num_layers() lists, inputs first
    std::vector<std::vector<std::string>> edges = {};  ///< num_blocks() lists
  };

  /// parent: where the columns come from and go to; ids in its range, which is not checked. The
  /// flow lives where the blocks do. Throws InvalidArgument unless numbers, sizes and devices
  /// agree.
  NodeFlow(Graph parent, Parts parts);

  std::int64_t num_layers() const;                    ///< hops + 1
  std::int64_t num_blocks() const;                    ///< hops
  std::int64_t layer_size(std::int64_t layer) const;  ///< nodes
  std::int64_t block_size(std::int64_t block) const;  ///< edges
  std::int64_t num_nodes() const;                     ///< over all layers
  std::int64_t num_edges() const;                     ///< over all blocks
  at::Device device() const;                          ///< of structure and columns
  const Graph& parent() const;                        ///< the graph of which this is a sample

  View layers(std::int64_t layer);  ///< the layer's columns, a row a node
  View blocks(std::int64_t block);  ///< the block's columns, a row an edge
  /// The block's edges: sources layer `block`, destinations layer block + 1. Lives as long as the
  /// flow, until to().
  const Topology& block_topology(std::int64_t block) const;

  at::Tensor layer_nid(std::int64_t layer) const;         ///< int64, ids of the flow
  at::Tensor layer_parent_nid(std::int64_t layer) const;  ///< int64, ids of the parent
  at::Tensor block_eid(std::int64_t block) const;         ///< int64, ids of the flow
  at::Tensor block_parent_eid(std::int64_t block) const;  ///< int64, ids of the parent, or -1
  at::Tensor layer_in_degree(std::int64_t layer) const;   ///< int64; of layer 0: zeros
  at::Tensor layer_out_degree(std::int64_t layer) const;  ///< int64; of the last layer: zeros

  /// Ids of the parent for these of the flow (integers [n]), whatever their layer: int64 [n].
  at::Tensor map_to_parent_nid(const at::Tensor& ids) const;
  /// Likewise of edges; -1 for an added self loop.
  at::Tensor map_to_parent_eid(const at::Tensor& ids) const;
  /// The ids that layer `layer`'s nodes with these parent ids (integers [n]) have in the flow or,
  /// if `local`, in the layer: int64 [n]. Throws InvalidArgument that names the first node that is
  /// not there. O(layer log layer); synchronises on CUDA.
  at::Tensor map_from_parent_nid(std::int64_t layer, const at::Tensor& parent_ids,
                                 bool local = false) const;

  /// 1 (float32) at (v, u) for each edge from u to v, local ids: sparse COO [layer_size(block + 1),
  /// layer_size(block)], where parallel edges add up. Allocates.
  at::Tensor block_adjacency_matrix(std::int64_t block) const;
  /// 1 (float32) at (v, e) for each edge e of the block, local ids: sparse COO [layer_size,
  /// block_size]. kIn: v is its destination, kOut: its source. Allocates.
  at::Tensor block_incidence_matrix(std::int64_t block, Incidence incidence) const;

  /// The ends of a block's edges and their ids.
  struct BlockEdges {
    at::Tensor src, dst, edges;  ///< int64 each
  };
  /// The block's edges in the order of their ids; ids of the flow, or local.
  BlockEdges block_edges(std::int64_t block, bool local = false) const;

  /// Gathers these columns of the parent's nodes into every layer, these of its edges into every
  /// block, on the flow's device whatever the parent's; gradients flow to the parent's column.
  /// Rows of nodes that the sampler's workers gathered ahead (NeighborSamplerOptions::features) are
  /// taken, once, and not gathered again, unless the parent has another tensor in the column since,
  /// or one that was written to. Throws InvalidArgument for a missing column, and for edge columns
  /// where a block has an added self loop, for which no edge of the parent stands; nothing is
  /// written then. Allocates.
  void copy_from_parent(const std::vector<std::string>& node_columns,
                        const std::vector<std::string>& edge_columns = {});
  /// Likewise all columns of the parent.
  void copy_from_parent();
  /// Likewise layer by layer and block by block. The type is to be named, as braces alone would be
  /// ambiguous: flow.copy_from_parent(NodeFlow::ColumnsByLayer{.nodes = {{"feat"}, {"h"}, {}}}).
  void copy_from_parent(const ColumnsByLayer& columns);
  /// Writes columns of the layers and blocks to the rows of the parent's columns, without their
  /// gradients: flow.copy_to_parent({.nodes = {{}, {"h"}, {"h"}}}). A column that the parent has
  /// keeps its dtype and shape; rows that are not in the flow keep what they have, or are 0 in a
  /// new column. Where a node stands in several layers with the column, the last layer's row stays
  /// (edges and blocks alike). In place, at the cost of the rows that are written: whatever shares
  /// the column's memory sees them. Only where a gradient depends on the column, or its memory is
  /// not its own (mapped files, at::from_blob, expanded rows), the parent gets a copy with them.
  /// Throws InvalidArgument as copy_from_parent, and where a block has an edge twice
  /// (sampled with replacement); nothing is written then.
  void copy_to_parent(const ColumnsByLayer& columns);

  /// Structure, ids and every column to `device`, in place; the parent stays where it is.
  void to(at::Device device);

  // Defaults, as those of DGL's NodeFlow: the functions of calls that do not give their own. Of the
  // block of this index or, without one (DGL's ALL), of every block; what is registered last stays.
  // The flow and its copies have them; the next flow of a sampler has none. A function must not
  // hold a copy of the flow that keeps it: neither would ever be freed.

  /// DGL's register_message_func: the messages of block_compute and prop_flow.
  void register_message_func(const MessageFunction& function,
                             std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_reduce_func: the reduction of block_compute and prop_flow.
  void register_reduce_func(const ReduceFunction& function,
                            std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_apply_node_func: what block_compute and prop_flow apply at layer block + 1, and
  /// what apply_layer computes of that layer; without `block`, of every layer, layer 0 among them.
  /// (DGL's apply_layer takes that of the block from the layer on, and of the last layer none.) An
  /// empty function removes it.
  void register_apply_node_func(const ApplyFunction& function,
                                std::optional<std::int64_t> block = std::nullopt);
  /// DGL's register_apply_edge_func: what apply_block computes.
  void register_apply_edge_func(const MessageFunction& function,
                                std::optional<std::int64_t> block = std::nullopt);

  // Message passing. User-defined functions see the layers' (blocks') own frames: NodeBatch::nodes
  // and the ids of an EdgeBatch are local, so that layer_parent_nid(i).index_select(0, ids) gives
  // the parent's. Ids to restrict to are distinct ids of the flow (integers [n]). A function that
  // is not given ({}) is the registered one; `apply` given as ApplyFunction() applies nothing.
  // Errors: those of the functions of Graph, and InvalidArgument, which names function and block
  // (layer), where one is neither given nor registered; they leave the flow as it was.

  /// Messages along block `block`, reduced at layer block + 1, where nodes without in-edges get 0;
  /// then `apply`, if there is one, maps that layer's columns, the reduced ones included, to new
  /// ones. See Graph::update_all.
  void block_compute(std::int64_t block, const std::optional<MessageFunction>& message = {},
                     const std::optional<ReduceFunction>& reduce = {},
                     const std::optional<ApplyFunction>& apply = {});
  /// For these nodes of layer block + 1 alone; the others keep their rows, or get 0 in a new
  /// column. Unlike in DGL a node among `nodes` needs no in-edge: it gets 0. See Graph::pull.
  void block_compute(std::int64_t block, const std::optional<MessageFunction>& message,
                     const std::optional<ReduceFunction>& reduce,
                     const std::optional<ApplyFunction>& apply, const at::Tensor& nodes);
  /// Computes columns of the layer's nodes from their own.
  void apply_layer(std::int64_t layer, const std::optional<ApplyFunction>& function = {});
  /// Of `nodes` alone, which the function sees in the given order.
  void apply_layer(std::int64_t layer, const std::optional<ApplyFunction>& function,
                   const at::Tensor& nodes);
  /// Computes columns of the block's edges from their ends' columns and their own.
  void apply_block(std::int64_t block, const std::optional<MessageFunction>& function = {});
  /// Of `edges` alone, which the function sees in the given order.
  void apply_block(std::int64_t block, const std::optional<MessageFunction>& function,
                   const at::Tensor& edges);
  /// block_compute of every block, from the inputs to the seeds. An error in a block leaves what
  /// those before it computed; a function that is missing is told before any.
  void prop_flow(const std::optional<MessageFunction>& message = {},
                 const std::optional<ReduceFunction>& reduce = {},
                 const std::optional<ApplyFunction>& apply = {});

 private:
  friend struct detail::FlowRows;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mezzo
