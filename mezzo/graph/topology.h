#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

class Topology;
struct Adjacency;
namespace detail {
MEZZO_API Topology topology_from_rows(Adjacency csc, std::int64_t num_src, std::int64_t num_dst);
}

/// One direction of a topology in compressed rows. Slots [indptr[r], indptr[r + 1]) belong to row
/// r, in ascending edge id.
struct Adjacency {
  at::Tensor indptr;    ///< int64 [num_rows + 1]
  at::Tensor indices;   ///< [num_edges], the node at the other end of each slot
  at::Tensor edge_ids;  ///< [num_edges], the edge of each slot; undefined where slot i is edge i
};

/// How wide the stored ids are. kAutomatic: int32 while every count is below 2^31, else int64.
enum class IdWidth : std::uint8_t { kAutomatic, kInt32, kInt64 };

/// An immutable bipartite graph structure: `num_edges` edges, edge i runs from source src()[i] to
/// destination dst()[i]; parallel edges and self loops are allowed. A light handle: copying shares
/// the arrays. Coordinates (COO), rows by source (CSR) and rows by destination (CSC) are built when
/// first needed, once, and kept; that is safe from several threads. Everything lives on one device,
/// where it is also built: on CUDA each format synchronises once when it is.
class MEZZO_API Topology {
 public:
  /// No nodes, no edges, on the CPU.
  Topology();

  /// src, dst: integer [E] on one device, ids in [0, num_src) and [0, num_dst). Copies unless the
  /// dtype is the stored one already. Throws InvalidArgument for other shapes, dtypes or ids; the
  /// check of the ids reads them once (synchronises on CUDA).
  static Topology from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_src,
                           std::int64_t num_dst, IdWidth width = IdWidth::kAutomatic);

  /// Rows by source. indptr: integer [num_src + 1], from 0 to E, non-decreasing; indices: integer
  /// [E], destinations. Slot i is edge edge_ids[i] (a permutation), or edge i if undefined. Checks
  /// all of them as from_coo does (synchronises on CUDA).
  static Topology from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                           std::int64_t num_dst, const at::Tensor& edge_ids = {},
                           IdWidth width = IdWidth::kAutomatic);

  /// Rows by destination; as from_csr with the sides exchanged.
  static Topology from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                           std::int64_t num_src, const at::Tensor& edge_ids = {},
                           IdWidth width = IdWidth::kAutomatic);

  std::int64_t num_src() const;
  std::int64_t num_dst() const;
  std::int64_t num_edges() const;
  at::Device device() const;
  at::ScalarType id_dtype() const;  ///< at::kInt or at::kLong

  const at::Tensor& src() const;  ///< [E], source of each edge, of id_dtype()
  const at::Tensor& dst() const;  ///< [E], destination of each edge, of id_dtype()
  const Adjacency& csr() const;   ///< rows = sources; may build: O(E) time and memory, once
  const Adjacency& csc() const;   ///< rows = destinations; likewise

  /// The slot of each edge in csr(), [E] of id_dtype(); undefined where slot i is edge i. Built
  /// when first needed, once: O(E) time, E ids. It turns what a kernel stored by slot into edge
  /// order.
  const at::Tensor& csr_slots() const;
  const at::Tensor& csc_slots() const;  ///< likewise, in csc()
  /// For each slot of csc() the slot of the same edge in csr(), likewise; undefined where they are
  /// equal.
  const at::Tensor& csr_slots_by_csc() const;

  /// Edges into each destination, int64 [num_dst]. Allocates.
  at::Tensor in_degrees() const;
  /// Edges out of each source, int64 [num_src]. Allocates.
  at::Tensor out_degrees() const;
  /// Whether some destination has no in-edge. Reads the degrees once (synchronises on CUDA), then
  /// remembers.
  bool has_zero_in_degree() const;

  /// The same structure as a sample of a graph, which remembers the degrees that its nodes have in
  /// that graph: layers that divide by degrees take these (GraphConv), everything else counts what
  /// is here. in_degrees: int32 or int64 [num_dst], out_degrees: [num_src], on this device, not
  /// copied; their values are not read. Throws InvalidArgument for other shapes, dtypes or devices.
  Topology with_parent_degrees(at::Tensor in_degrees, at::Tensor out_degrees) const;
  /// Edges into each destination in the graph of which this is a sample, int32 or int64 [num_dst];
  /// nullptr unless it remembers them. Lives as long as this handle.
  const at::Tensor* parent_in_degrees() const;
  /// Edges out of each source, likewise: [num_src].
  const at::Tensor* parent_out_degrees() const;

  /// The same structure, of which it is known that the destinations are not its first sources
  /// (to_block without include_dst_in_src): layers that read the rows of the destinations among
  /// those of the sources refuse it. Shares every array. to(), reverse() and with_parent_degrees()
  /// keep it so.
  Topology with_separate_destinations() const;
  bool has_separate_destinations() const;  ///< whether with_separate_destinations() made it

  /// The same edges, ids kept, each running the other way. Shares every array.
  Topology reverse() const;

  /// The same structure on `device`; itself where it is there already. Arrays are copied when they
  /// are first asked for (those of a CUDA device to the CPU at once, which synchronises); formats
  /// that were not built by then are built on the device.
  Topology to(at::Device device) const;

  /// Bytes of the arrays built so far.
  std::int64_t memory_bytes() const;

  /// Whether two handles share one structure (and parent degrees).
  bool is_same(const Topology& other) const { return state_ == other.state_; }

 private:
  friend Topology detail::topology_from_rows(Adjacency csc, std::int64_t num_src,
                                             std::int64_t num_dst);
  struct State;
  explicit Topology(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace mezzo
