#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

struct Dataset;

/// A Topology whose two sides are one set of nodes, with features of the nodes and of the edges. A
/// light handle: copies share structure and frames. Not safe for writing from several threads.
class MEZZO_API Graph {
 public:
  /// No nodes.
  Graph();
  /// topology: num_src() == num_dst(), else InvalidArgument. Frames start empty.
  explicit Graph(Topology topology);

  // These three check what they are given, as Topology's: they synchronise on CUDA.

  /// src, dst: integer [E], ids in [0, num_nodes).
  static Graph from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes,
                        IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by source; indices: integer [E].
  static Graph from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by destination; indices: integer [E].
  static Graph from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// ndata: "feat" ([N, F] as the data set has it, sparse features densified; mapped ones stay
  /// mapped, read-only), "label" (as Dataset::labels),
  /// "train_mask", "val_mask", "test_mask" (of split `split_index`); data without labels give
  /// "feat" alone. Of a part of a data set also "node_id" (int64, ids in the whole) and "own_mask".
  /// Structure: see topology_of.
  static Graph from_dataset(const Dataset& dataset, std::int64_t split_index = 0);

  std::int64_t num_nodes() const;
  std::int64_t num_edges() const;
  at::Device device() const;
  const Topology& topology() const;
  operator const Topology&() const { return topology(); }  // NOLINT: layers take a Topology

  /// The columns of the nodes, and of the edges; copies of the graph share them.
  Frame& ndata();
  const Frame& ndata() const;
  Frame& edata();
  const Frame& edata() const;

  // What a Block has, for code that takes either: both sides are the nodes.

  std::int64_t num_src() const { return num_nodes(); }
  std::int64_t num_dst() const { return num_nodes(); }
  Frame& srcdata() { return ndata(); }
  const Frame& srcdata() const { return ndata(); }
  Frame& dstdata() { return ndata(); }
  const Frame& dstdata() const { return ndata(); }

  at::Tensor in_degrees() const;   ///< int64 [N]
  at::Tensor out_degrees() const;  ///< int64 [N]

  /// The edges into `nodes` (integers [n], or bool [N]) as ids: int64, node by node in the given
  /// order, ascending within one; a node named twice gives its edges twice. Allocates; synchronises
  /// on CUDA.
  at::Tensor in_edges(const at::Tensor& nodes) const;
  /// The edges out of `nodes`, likewise.
  at::Tensor out_edges(const at::Tensor& nodes) const;
  /// The edge from src[i] to dst[i] (integers [n]), of parallel ones the lowest: int64 [n]. Throws
  /// InvalidArgument for a pair without an edge. Reads the out-edges of each source, on the host
  /// (on CUDA it copies the structure there, and synchronises).
  at::Tensor edge_ids(const at::Tensor& src, const at::Tensor& dst) const;
  /// Whether there is an edge from src[i] to dst[i]: bool [n]. Ids that are no nodes are an
  /// InvalidArgument. Cost as edge_ids. As DGL's has_edges_between.
  at::Tensor has_edges_between(const at::Tensor& src, const at::Tensor& dst) const;

  std::int64_t batch_size() const;     ///< graphs that batch() joined to this one, else 1
  at::Tensor batch_num_nodes() const;  ///< int64 [batch_size] on the CPU, a copy
  at::Tensor batch_num_edges() const;  ///< int64 [batch_size] on the CPU, a copy
  /// Says that this graph is a batch whose parts have these numbers of nodes and edges, one after
  /// another; copies of the handle see it, to() and local_var() keep it. batch() says so by itself;
  /// the graphs that transforms make (add_self_loop, ...; not remove_self_loop) are no batches.
  /// num_nodes, num_edges: integer [batch_size], not negative, that sum to num_nodes() and
  /// num_edges(), else InvalidArgument. Synchronises where the numbers are on CUDA.
  void set_batch(const at::Tensor& num_nodes, const at::Tensor& num_edges);

  /// Structure and every column on `device`; a new graph unless it is there already.
  Graph to(at::Device device) const;

  /// The same structure with frames of its own, which begin with the same columns (DGL's local_var
  /// and clone): columns added, replaced or removed on one are not on the other; tensors are
  /// shared.
  Graph local_var() const;

  class LocalScope;
  /// While the result lives, columns added, replaced or removed are so only for its life; at its
  /// end the frames are as they were (tensors changed in place stay changed).
  [[nodiscard]] LocalScope local_scope();

  // Message passing, defined in mezzo/message_passing/update_all.cpp.

  /// Sends `message` along every edge and reduces what arrives at each node with `reduce` (DGL's
  /// update_all); then `apply`, if there is one, maps the nodes' columns (the reduced ones
  /// included) to new ones. The new columns go to ndata(). A built-in pair runs as one fused kernel
  /// without an E x F message; user-defined reductions run by degree buckets, for which the
  /// in-degrees are read on the host (synchronises on CUDA). Nodes without in-edges get 0; where no
  /// node has any, a user-defined `reduce` is never called and makes no column. Throws
  /// InvalidArgument that names the function, expected and given; what a user-defined function
  /// throws passes through. An error leaves the frames as they were.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply = {});

  // Message passing along some of the edges, fused as well. Ids are integers [n], or a mask (bool);
  // an edge that is named twice, also by a node named twice, sends twice. Only the rows of the
  // nodes that receive are written: the others keep theirs, or are 0 in a new column (see
  // Frame::update_rows). Without a node that receives nothing happens and no function is called.
  // Synchronises on CUDA.

  /// Along `edges`, to the nodes they run into. See edge_ids for edges by their ends.
  void send_and_recv(const at::Tensor& edges, const MessageFunction& message,
                     const ReduceFunction& reduce, const ApplyFunction& apply = {});
  /// Along all edges into `nodes`, all of which receive: those without in-edges get 0.
  void pull(const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
            const ApplyFunction& apply = {});
  /// Along all edges out of `nodes`, to the nodes they run into.
  void push(const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
            const ApplyFunction& apply = {});

  // The ids that these two take are distinct; the function sees the rows in their order. With ids
  // they synchronise on CUDA.

  /// Computes columns of the nodes, or of `nodes` alone, from their own.
  void apply_nodes(const ApplyFunction& function,
                   const std::optional<at::Tensor>& nodes = std::nullopt);
  /// Computes columns of the edges, or of `edges` alone, from their ends' columns and their own.
  void apply_edges(const MessageFunction& function,
                   const std::optional<at::Tensor>& edges = std::nullopt);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The edges of a data set: nodes on both sides, edge i as the data set numbers them. Rows are
/// taken over as they are, so that mapped ones stay in their file. That of a part of a data set
/// remembers the degrees in the whole (Topology::with_parent_degrees). Throws InvalidArgument for
/// ids out of range (reads every id once).
MEZZO_API Topology topology_of(const Dataset& dataset);

/// See Graph::local_scope.
class MEZZO_API Graph::LocalScope {
 public:
  explicit LocalScope(Graph graph);
  ~LocalScope();
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;

 private:
  Graph graph_;
  Frame ndata_;
  Frame edata_;
};

}  // namespace mezzo
