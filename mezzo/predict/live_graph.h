#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// A graph that changes. Internal to predict; not exported.
namespace mezzo::detail {

/// An edge in the row of one of its ends.
struct LiveEdge {
  std::int32_t node;  ///< the other end
  std::int32_t row;   ///< of the edge rows
};

/// Edges to add or remove: edge i runs from src[i] to dst[i]. rows: float32 [n, row width]; null
/// without edge rows.
struct LiveEdges {
  std::span<const std::int64_t> src, dst;
  const float* rows = nullptr;
};

/// Distinct nodes, ascending: those whose out-edges and those whose in-edges have changed.
struct ChangedEnds {
  std::vector<std::int32_t> src, dst;
};

/// The in-edges and out-edges of every node, each ordered by the other end, then by the bits of
/// the edge's row: equal graphs have equal rows, whatever their history. An update costs the
/// degrees of the nodes that it names. Nodes are in [0, 2^31 - 1); ids are not checked.
class LiveGraph {
 public:
  struct Options {
    std::int64_t num_nodes = 0;
    std::int64_t row_width = 0;  ///< numbers of an edge's row; 0: edges have none
    /// Every node has one loop, with a row of ones; loops in updates are ignored.
    bool self_loops = false;
    bool sums_weights = false;  ///< whether to keep sums of the rows, which have one number
  };
  explicit LiveGraph(const Options& options);

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(in_.size()); }
  std::int64_t num_edges() const { return num_edges_; }
  std::int64_t row_width() const { return options_.row_width; }

  std::span<const LiveEdge> in_edges(std::int64_t node) const { return in_[index(node)]; }
  std::span<const LiveEdge> out_edges(std::int64_t node) const { return out_[index(node)]; }
  /// [row_width()], valid until the next update.
  const float* row(LiveEdge edge) const {
    return rows_.data() + static_cast<std::int64_t>(edge.row) * options_.row_width;
  }
  /// The sum of the weights of the in-edges, of the out-edges.
  double in_sum(std::int64_t node) const { return in_sums_[index(node)]; }
  double out_sum(std::int64_t node) const { return out_sums_[index(node)]; }

  ChangedEnds add(const LiveEdges& edges);
  /// The first pair that has no edge to remove if each pair before it has removed one; -1: all have
  /// one.
  std::int64_t find_missing(const LiveEdges& edges) const;
  /// Removes one edge for each pair, the first of parallel ones. There must be enough.
  ChangedEnds remove(const LiveEdges& edges);
  /// Adds nodes after the others.
  void add_nodes(std::int64_t count);

  std::int64_t memory_bytes() const;

 private:
  using Row = std::vector<LiveEdge>;
  /// An edge with both ends.
  struct Edge {
    std::int32_t src, dst, row;
  };

  static std::size_t index(std::int64_t node) { return static_cast<std::size_t>(node); }
  bool is_kept(std::int64_t src, std::int64_t dst) const {
    return !options_.self_loops || src != dst;
  }
  bool row_before(std::int32_t a, std::int32_t b) const;
  bool before(LiveEdge a, LiveEdge b) const {
    return a.node != b.node ? a.node < b.node : row_before(a.row, b.row);
  }
  std::int32_t store_row(const float* row);
  /// The edges of `pairs` that remove() chooses.
  std::vector<Edge> chosen(const LiveEdges& pairs) const;
  template <class Change>
  void change_rows(std::vector<Edge>& edges, bool of_dst, std::vector<std::int32_t>& changed,
                   const Change& change);
  template <class Change>
  ChangedEnds change_both(std::vector<Edge>& edges, const Change& change);

  Options options_;
  std::vector<Row> in_, out_;
  std::vector<float> rows_;
  std::vector<std::int32_t> free_rows_;
  std::vector<double> in_sums_, out_sums_;
  std::int64_t num_edges_ = 0;
};

}  // namespace mezzo::detail
