#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

class Topology;
struct Adjacency;
namespace detail {
/// Builds a structure from valid rows by destination, as samplers produce them, without checks,
/// copies or reads. csc: a valid Adjacency on one device with num_dst rows, whose longest row is
/// known or -1; indices below num_src, int32 or int64, which becomes id_dtype(); edge_ids, if
/// defined, of the same dtype.
MEZZO_API Topology topology_from_rows(Adjacency csc, std::int64_t num_src, std::int64_t num_dst);
}  // namespace detail

/// One direction of a topology in compressed rows. Entries [indptr[r], indptr[r + 1]) belong to row
/// r, in ascending edge id.
struct Adjacency {
  at::Tensor indptr;    ///< int64 [num_rows + 1]
  at::Tensor indices;   ///< [num_edges], the other endpoint of each entry
  at::Tensor edge_ids;  ///< [num_edges], the edge of each entry; undefined if entry i is edge i
  std::int64_t longest_row = -1;  ///< entries of the longest row; -1 if unknown
};

/// The dtype of stored ids. kAutomatic: int32 if every count is below 2^31, else int64.
enum class IdWidth : std::uint8_t { kAutomatic, kInt32, kInt64 };

/// max(d, 1)^-1 or max(d, 1)^(-1/2) of a degree d.
enum class DegreePower : std::uint8_t { kInverse, kInverseRoot };

/// An immutable bipartite graph structure: `num_edges` edges, edge i runs from source src()[i] to
/// destination dst()[i]; parallel edges and self loops are allowed. A light handle: copying shares
/// the arrays. Coordinates (COO), rows by source (CSR) and rows by destination (CSC) are built
/// once, on first use, which is thread-safe. All arrays are on one device and are built there; on
/// CUDA building a format synchronises once.
class MEZZO_API Topology {
 public:
  /// No nodes, no edges, on the CPU.
  Topology();

  /// src, dst: integer [E] on one device, ids in [0, num_src) and [0, num_dst). Copies unless the
  /// dtype already matches. Throws InvalidArgument for other shapes, dtypes or ids; reads the ids
  /// once to check them (synchronises on CUDA).
  static Topology from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_src,
                           std::int64_t num_dst, IdWidth width = IdWidth::kAutomatic);

  /// Rows by source. indptr: integer [num_src + 1], from 0 to E, non-decreasing; indices: integer
  /// [E], destinations. Entry i is edge edge_ids[i] (a permutation), or edge i if undefined. Checks
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
  const Adjacency& csc() const;   ///< rows = destinations; cost as csr()

  /// The position of each edge in csr(), [E] of id_dtype(); undefined if entry i is edge i. Built
  /// once, on first use: O(E) time, E ids. Converts kernel output from CSR order to edge-id order.
  const at::Tensor& csr_entries() const;
  const at::Tensor& csc_entries() const;  ///< the same for csc()
  /// For each entry of csc() the position of the same edge in csr(), also [E]; undefined if equal.
  const at::Tensor& csr_entries_by_csc() const;

  /// Edges into each destination, int64 [num_dst]. Allocates.
  at::Tensor in_degrees() const;
  /// Edges out of each source, int64 [num_src]. Allocates.
  at::Tensor out_degrees() const;
  /// The power of the in-degree of each destination, [num_dst] of dtype, float32 or float64.
  /// float32 is computed once, on first use, and shared: do not change it in place. The first use
  /// must not be in a CUDA graph capture. Throws InvalidArgument for another dtype.
  at::Tensor in_degree_factors(DegreePower power, at::ScalarType dtype) const;
  /// The same for the out-degree of each source, [num_src].
  at::Tensor out_degree_factors(DegreePower power, at::ScalarType dtype) const;
  /// Whether some destination has no in-edge. Reads the degrees once (synchronises on CUDA) and
  /// caches the result.
  bool has_zero_in_degree() const;

  /// Returns the same structure, marked as a sample of a graph, with the degrees of its nodes in
  /// that graph. Layers that divide by degrees (GraphConv) use these; everything else counts the
  /// edges here. in_degrees: int32 or int64 [num_dst], out_degrees: [num_src], on this device, not
  /// copied; their values are not read. Throws InvalidArgument for other shapes, dtypes or devices.
  Topology with_parent_degrees(at::Tensor in_degrees, at::Tensor out_degrees) const;
  /// Edges into each destination in the sampled graph, int32 or int64 [num_dst]; nullptr if not
  /// set. Valid as long as this handle.
  const at::Tensor* parent_in_degrees() const;
  /// Edges out of each source in the sampled graph, [num_src]; nullptr if not set.
  const at::Tensor* parent_out_degrees() const;

  /// Returns the same structure, marked: its destinations are not its first sources (to_block
  /// without include_dst_in_src). Layers that look for destination rows among the source rows
  /// reject it. Shares every array. to(), reverse() and with_parent_degrees() keep the mark.
  Topology with_separate_destinations() const;
  bool has_separate_destinations() const;  ///< set by with_separate_destinations()

  /// Returns the structure with every edge reversed and the same edge ids. Shares every array.
  Topology reverse() const;

  /// Returns the structure on `device`; itself if it is already there. Arrays are copied on first
  /// use (from CUDA to the CPU immediately, which synchronises); formats not built before that are
  /// built on `device`.
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
