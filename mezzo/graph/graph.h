#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

struct Dataset;
class MessageFunction;  // these three: mezzo/message_passing/functions.h
class ReduceFunction;
class ApplyFunction;

/// A Topology whose two sides are one set of nodes, with features of the nodes and of the edges. A
/// light handle: copies share structure and frames. Not safe for writing from several threads.
class MEZZO_API Graph {
 public:
  /// No nodes.
  Graph();
  /// topology: num_src() == num_dst(), else InvalidArgument. Frames start empty.
  explicit Graph(Topology topology);

  /// src, dst: integer [E], ids in [0, num_nodes).
  static Graph from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes,
                        IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by source; indices: integer [E].
  static Graph from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// indptr: integer [N + 1], rows by destination; indices: integer [E].
  static Graph from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                        const at::Tensor& edge_ids = {}, IdWidth width = IdWidth::kAutomatic);
  /// ndata: "feat" (float32 [N, F], densified), "label", "train_mask", "val_mask", "test_mask" (of
  /// split `split_index`).
  static Graph from_dataset(const Dataset& dataset, std::int64_t split_index = 0);

  std::int64_t num_nodes() const;
  std::int64_t num_edges() const;
  at::Device device() const;
  const Topology& topology() const;
  operator const Topology&() const { return topology(); }  // NOLINT: layers take a Topology

  Frame& ndata();
  const Frame& ndata() const;
  Frame& edata();
  const Frame& edata() const;

  at::Tensor in_degrees() const;   ///< int64 [N]
  at::Tensor out_degrees() const;  ///< int64 [N]

  /// Structure and every column on `device`; a new graph unless it is there already.
  Graph to(at::Device device) const;

  class LocalScope;
  /// While the result lives, columns added, replaced or removed are so only for its life; at its
  /// end the frames are as they were (tensors changed in place stay changed).
  [[nodiscard]] LocalScope local_scope();

  /// Sends `message` along every edge and reduces what arrives at each node with `reduce` (DGL's
  /// update_all); the new columns go to ndata(). A built-in pair runs as one fused kernel without
  /// an E x F message; user-defined functions run by degree buckets. Nodes without in-edges get 0.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce);
  /// As above; then `apply` maps the nodes' columns (the reduced ones included) to new ones.
  void update_all(const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply);
  /// Computes columns of the edges from their ends' columns and their own.
  void apply_edges(const MessageFunction& message);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

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
