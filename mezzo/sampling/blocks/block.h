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

/// One hop of a mini-batch: the sampled edges into its destinations. The destinations are the first
/// num_dst() sources, in the same order, but for blocks of to_block() without include_dst_in_src,
/// whose topology says so. Layers take it as a Topology. A light handle: copies share structure and
/// frames. On one device, like a Graph. As DGL's block (to_block).
class MEZZO_API Block {
 public:
  /// A block whose nodes and edges are called as in a parent graph.
  /// topology: num_src() >= num_dst(). src_nodes: integer [num_src], the sources' ids in the
  /// parent, of which the first num_dst are the destinations'. edges: integer [num_edges], the
  /// edges' ids in the parent, -1 for one that it does not have (an added self loop); undefined:
  /// not known. Throws InvalidArgument for other shapes.
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
  /// int64 [num_edges], ids of the parent, -1 for an added self loop. Throws InvalidArgument where
  /// they are not known.
  at::Tensor parent_edges() const;

  Frame& srcdata();  ///< one row a source
  const Frame& srcdata() const;
  Frame& dstdata();  ///< one row a destination
  const Frame& dstdata() const;
  Frame& edata();  ///< one row an edge
  const Frame& edata() const;

  at::Tensor in_degrees() const { return topology().in_degrees(); }    ///< int64 [num_dst]
  at::Tensor out_degrees() const { return topology().out_degrees(); }  ///< int64 [num_src]

  /// Structure and every column on `device`; a new block unless it is there already. The ids
  /// follow when first asked for, since few are.
  Block to(at::Device device) const;

  /// The same block with frames of its own, which begin with the same columns (DGL's local_var and
  /// clone): columns added, replaced or removed on one are not on the other; tensors are shared.
  Block local_var() const;

  class LocalScope;
  /// While the result lives, columns added, replaced or removed are so only for its life; at its
  /// end the three frames are as they were (tensors changed in place stay changed).
  [[nodiscard]] LocalScope local_scope();

  // Message passing as that of Graph, with its costs and errors; functions see srcdata(), edata()
  // and dstdata(), with ids of this block. The rest, as apply_nodes(block.dstdata(), function), is
  // in mezzo/message_passing/update_all.h.

  /// Sends `message` along every edge and reduces what arrives at each destination with `reduce`;
  /// then `apply`, if there is one, maps the destinations' columns (the reduced ones included) to
  /// new ones. The new columns go to dstdata(). See Graph::update_all.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply = {});
  /// Computes columns of the edges, or of `edges` alone, from their ends' columns and their own.
  /// See Graph::apply_edges.
  void apply_edges(const MessageFunction& function,
                   const std::optional<at::Tensor>& edges = std::nullopt);

 private:
  friend class BlockSampler;
  /// Trusted: edge i of the block is edge edge_ids[slots[i]] of the parent, or slots[i] where
  /// edge_ids is undefined; translated when first asked for, since few do.
  Block(Topology topology, at::Tensor src_nodes, at::Tensor slots, at::Tensor edge_ids);

  friend MEZZO_API Block to_block(const Topology& topology, const at::Tensor& edges,
                                  const at::Tensor& dst_nodes, bool include_dst_in_src);
  /// Trusted: destinations that are not the first sources.
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

/// The blocks of a mini-batch, input layer first: the destinations of one are the sources of the
/// next.
using Blocks = std::vector<Block>;

/// The block of the edges `edges` (integers [n], or bool [num_edges]) of `topology`, whose two
/// sides are one set of nodes, into `dst_nodes` (distinct integers [m]): edge i of the block is
/// edges[i]; its sources are the destinations in the given order, then the others in the order in
/// which they first appear. Throws InvalidArgument for an edge into another node. On the CPU;
/// O(nodes of `topology`). As DGL's to_block.
/// include_dst_in_src = false: the sources are those of the edges alone, in the order in which they
/// first appear. Such a block is for layers that read no rows of the destinations (GraphConv) and
/// for those that are given a pair of rows (nn::NodeRows); the others, and nn::Model, refuse it
/// (Topology::has_separate_destinations).
MEZZO_API Block to_block(const Topology& topology, const at::Tensor& edges,
                         const at::Tensor& dst_nodes, bool include_dst_in_src = true);

}  // namespace mezzo
