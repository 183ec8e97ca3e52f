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

/// What Graph::from_dataset makes of sparse features. Strided ones stay as they are.
enum class SparseFeatures : std::uint8_t {
  kToDense,  ///< a strided tensor, which everything takes
  /// Sparse CSR as read, at a fraction of memory and time. For layers, loaders, inference() and
  /// gather_rows(); message passing and most of libtorch's functions need x.to_dense().
  kKeep,
};

/// A Topology with one node set, plus node and edge features. A light handle: copies share
/// structure and frames. Concurrent writes are not safe.
class MEZZO_API Graph {
 public:
  /// No nodes.
  Graph();
  /// topology: num_src() == num_dst(), else InvalidArgument. Frames start empty.
  explicit Graph(Topology topology);

  // These three check their arguments as in Topology and synchronise on CUDA.

  /// src, dst: integer [E], ids in [0, num_nodes).
  static Graph from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes,
                        IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by source; indices: integer [E].
  static Graph from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by destination; indices: integer [E].
  static Graph from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// Builds a graph from a dataset. ndata: "feat" ([N, F]; sparse features by `sparse`, mapped
  /// ones stay mapped and read-only); a dataset part also has "node_id" (int64, ids in the full
  /// dataset) and "own_mask". edata: "weight" and "feat", if the edges have weights and features.
  /// ndata, or edata for labels of edges and links: "label" (as Dataset::labels), "train_mask",
  /// "val_mask", "test_mask" (of split `split_index`). Labels of graphs stay in the dataset. A set
  /// of graphs becomes a batch, for which the edges are sorted by graph, stably, unless they are
  /// already. Structure: see topology_of. Warns if a dense tensor of more than 64 MiB is made of
  /// sparse features.
  static Graph from_dataset(const Dataset& dataset, std::int64_t split_index = 0,
                            SparseFeatures sparse = SparseFeatures::kToDense);

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

  // The interface of Block, for code that accepts either: both sides are the nodes.

  std::int64_t num_src() const { return num_nodes(); }
  std::int64_t num_dst() const { return num_nodes(); }
  Frame& srcdata() { return ndata(); }
  const Frame& srcdata() const { return ndata(); }
  Frame& dstdata() { return ndata(); }
  const Frame& dstdata() const { return ndata(); }

  at::Tensor in_degrees() const;   ///< int64 [N]
  at::Tensor out_degrees() const;  ///< int64 [N]

  /// Returns the ids of the edges into `nodes` (integers [n], or bool [N]): int64, in the order of
  /// `nodes`, ascending per node. A repeated node repeats its edges. Allocates; synchronises on
  /// CUDA.
  at::Tensor in_edges(const at::Tensor& nodes) const;
  /// Returns the ids of the edges out of `nodes`, in the same form.
  at::Tensor out_edges(const at::Tensor& nodes) const;
  /// Returns the lowest id of an edge from src[i] to dst[i] (integers [n]): int64 [n]. Throws
  /// InvalidArgument for a pair without an edge. Reads the out-edges of each source on the host; on
  /// CUDA, copies the structure and synchronises.
  at::Tensor edge_ids(const at::Tensor& src, const at::Tensor& dst) const;
  /// Whether there is an edge from src[i] to dst[i]: bool [n]. Throws InvalidArgument for invalid
  /// node ids. Cost as edge_ids. As DGL's has_edges_between.
  at::Tensor has_edges_between(const at::Tensor& src, const at::Tensor& dst) const;

  std::int64_t batch_size() const;     ///< number of graphs that batch() joined, else 1
  at::Tensor batch_num_nodes() const;  ///< int64 [batch_size] on the CPU, a copy
  at::Tensor batch_num_edges() const;  ///< int64 [batch_size] on the CPU, a copy
  /// Marks this graph as a batch of consecutive parts with the specified node and edge counts.
  /// Copies of the handle share the mark; to() and local_var() keep it. batch() sets it; of the
  /// transforms only remove_self_loop keeps it. num_nodes, num_edges: integer [batch_size], not
  /// negative, that sum to num_nodes() and num_edges(), else InvalidArgument. Synchronises if the
  /// counts are on CUDA.
  void set_batch(const at::Tensor& num_nodes, const at::Tensor& num_edges);

  /// Returns a graph with structure and columns on `device`; this graph if it is already there.
  Graph to(at::Device device) const;

  /// Returns a graph with the same structure and copies of the frames (DGL's local_var and clone):
  /// adding, replacing or removing columns on one does not affect the other. Tensors are shared.
  Graph local_var() const;

  class LocalScope;
  /// When the returned scope ends, the frames get their old columns back. In-place changes to
  /// tensors remain.
  [[nodiscard]] LocalScope local_scope();

  // Message passing, defined in mezzo/message_passing/update_all.cpp.

  /// Sends `message` along every edge and reduces the incoming messages of each node with `reduce`
  /// (DGL's update_all). Then `apply`, if set, maps the nodes' columns, including the reduced ones,
  /// to new columns. Results go to ndata(). A built-in pair runs as one fused kernel without an E x
  /// F message; user-defined reductions run by degree buckets, which read the in-degrees on the
  /// host (synchronises on CUDA). Nodes without in-edges get 0. If the graph has no edges, a
  /// user-defined `reduce` is not called and adds no column. Throws InvalidArgument that names the
  /// function; exceptions of user-defined functions pass through. On an error the frames are
  /// unchanged.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply = {});

  // Message passing along selected edges, also fused. Ids are integers [n] or a bool mask; a
  // repeated edge or node sends repeatedly. Only the rows of receiving nodes are written; others
  // are unchanged, or 0 in a new column (see Frame::update_rows). If no node receives, no function
  // is called. Synchronises on CUDA.

  /// Sends along `edges` to their destinations. edge_ids finds edges by their endpoints.
  void send_and_recv(const at::Tensor& edges, const MessageFunction& message,
                     const ReduceFunction& reduce, const ApplyFunction& apply = {});
  /// Sends along all edges into `nodes`. Those without in-edges get 0.
  void pull(const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
            const ApplyFunction& apply = {});
  /// Sends along all edges out of `nodes` to their destinations.
  void push(const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
            const ApplyFunction& apply = {});

  // The ids of these two must be distinct; the function gets the rows in their order. With ids they
  // synchronise on CUDA.

  /// Computes columns of all nodes, or of `nodes`, from their own columns.
  void apply_nodes(const ApplyFunction& function,
                   const std::optional<at::Tensor>& nodes = std::nullopt);
  /// Computes columns of all edges, or of `edges`, from their columns and the columns of their
  /// endpoints.
  void apply_edges(const MessageFunction& function,
                   const std::optional<at::Tensor>& edges = std::nullopt);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Returns the structure of a dataset, with its edge ids. Arrays are shared, so mapped ones stay in
/// their file. The structure of a dataset part stores the degrees in the full dataset
/// (Topology::with_parent_degrees). Throws InvalidArgument for ids out of range (reads every id
/// once).
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
