#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// One hop of a mini-batch: the sampled edges into its destinations (DGL's block). The destinations
/// are the first num_dst() sources, in the same order, unless to_block() built the block without
/// include_dst_in_src (Topology::has_separate_destinations). Converts to the Topology that layers
/// take. A light handle: copies share structure and frames. On one device, like a Graph.
class MEZZO_API Block {
 public:
  /// topology: num_src() >= num_dst(). src_nodes: integer [num_src], ids of the sources in the
  /// parent graph; the first num_dst are the destinations. edges: integer [num_edges], ids of the
  /// edges in the parent, -1 for an added self loop; undefined: unknown. Throws InvalidArgument for
  /// other shapes.
  Block(Topology topology, at::Tensor src_nodes, at::Tensor edges);

  const Topology& topology() const;
  operator const Topology&() const { return topology(); }  // NOLINT: layers take a Topology
  std::int64_t num_src() const { return topology().num_src(); }
  std::int64_t num_dst() const { return topology().num_dst(); }
  std::int64_t num_edges() const { return topology().num_edges(); }
  at::Device device() const { return topology().device(); }

  at::Tensor src_nodes() const;  ///< int64 [num_src], ids of the parent
  /// int64 [num_dst], ids of the parent; the first of src_nodes() unless
  /// topology().has_separate_destinations().
  at::Tensor dst_nodes() const;
  /// int64 [num_edges], ids of the parent, -1 for an added self loop. Throws InvalidArgument if
  /// they are unknown.
  at::Tensor parent_edges() const;

  Frame& srcdata();  ///< one row per source
  const Frame& srcdata() const;
  Frame& dstdata();  ///< one row per destination
  const Frame& dstdata() const;
  Frame& edata();  ///< one row per edge
  const Frame& edata() const;

  at::Tensor in_degrees() const { return topology().in_degrees(); }    ///< int64 [num_dst]
  at::Tensor out_degrees() const { return topology().out_degrees(); }  ///< int64 [num_src]

  /// Structure and every column on `device`; *this if it is there already. The ids are copied on
  /// first use.
  Block to(at::Device device) const;

  /// The same block with its own frames, which start with the same columns (DGL's local_var and
  /// clone): adding, replacing or removing columns on one does not affect the other; they share the
  /// tensors.
  Block local_var() const;

  class LocalScope;
  /// Destroying the result restores the present columns of the three frames (in-place changes of
  /// tensors remain).
  [[nodiscard]] LocalScope local_scope();

  // Message passing with the costs and errors of Graph's; functions see srcdata(), edata() and
  // dstdata(), with ids of this block. For more, e.g. apply_nodes(block.dstdata(), function), see
  // mezzo/message_passing/update_all.h.

  /// Sends `message` along every edge and reduces the messages at each destination with `reduce`;
  /// then `apply`, if set, maps the destinations' columns, including the reduced ones, to new ones.
  /// Writes the new columns to dstdata(). See Graph::update_all.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply = {});
  /// Computes columns of all edges, or only of `edges`, from their ends' columns and their own. See
  /// Graph::apply_edges.
  void apply_edges(const MessageFunction& function,
                   const std::optional<at::Tensor>& edges = std::nullopt);

 private:
  friend class BlockSampler;
  /// Unchecked: edge i of the block is edge edge_ids[entries[i]] of the parent, or entries[i] if
  /// edge_ids is undefined; translated on first use.
  Block(Topology topology, at::Tensor src_nodes, at::Tensor entries, at::Tensor edge_ids);

  friend MEZZO_API Block to_block(const Topology& topology, const at::Tensor& edges,
                                  const at::Tensor& dst_nodes, bool include_dst_in_src);
  /// Unchecked: destinations that are not the first sources.
  static Block with_own_destinations(Topology topology, at::Tensor src_nodes, at::Tensor dst_nodes,
                                     at::Tensor edges);

  struct State;
  explicit Block(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// See Block::local_scope.
class MEZZO_API Block::LocalScope {
 public:
  explicit LocalScope(Block block);
  ~LocalScope();
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;

 private:
  Block block_;
  Frame srcdata_;
  Frame dstdata_;
  Frame edata_;
};

/// The blocks of a mini-batch, input layer first: each block's destinations are the next one's
/// sources.
using Blocks = std::vector<Block>;

/// The block of `edges` (integers [n], or bool [num_edges]) of a topology with one set of nodes,
/// into `dst_nodes` (distinct integers [m]), as DGL's to_block: edge i of the block is edges[i];
/// its sources are the destinations in their order, then the others by first appearance. Throws
/// InvalidArgument for an edge into another node. On the CPU; O(nodes of `topology`).
/// include_dst_in_src = false: the sources are only the edges' sources, by first appearance. Such a
/// block works with layers that do not read the destinations' rows (GraphConv) and with a pair of
/// rows (nn::NodeRows); other layers and nn::Model reject it.
MEZZO_API Block to_block(const Topology& topology, const at::Tensor& edges,
                         const at::Tensor& dst_nodes, bool include_dst_in_src = true);

}  // namespace mezzo
