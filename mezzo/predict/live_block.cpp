#include "mezzo/predict/live_block.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/random.h"
#include "mezzo/sampling/draw_stream.h"

namespace mezzo::detail {
namespace {

/// `fanout` of `degree` positions, ascending, each set equally likely (Floyd's algorithm).
void draw_positions(std::int64_t degree, std::int64_t node, const EdgeDraw& draw,
                    std::vector<std::int64_t>& positions) {
  const std::uint64_t stream = draw_stream(BatchKey{}, DrawPurpose::kNeighbors, draw.layer);
  positions.clear();
  for (std::int64_t i = 0; i < draw.fanout; ++i) {
    const std::int64_t largest = degree - draw.fanout + i;
    const std::uint64_t number =
        (static_cast<std::uint64_t>(node) << 32) | static_cast<std::uint64_t>(i);
    auto position = static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(largest) + 1, draw.seed, stream, number));
    auto place = std::lower_bound(positions.begin(), positions.end(), position);
    if (place != positions.end() && *place == position) {
      position = largest;
      place = positions.end();
    }
    positions.insert(place, position);
  }
}

/// w sqrt(d_src d_dst / (s_src s_dst)) for an edge of weight w, where an end has d edges and s is
/// the sum of their weights. GraphConv divides by sqrt(d_src d_dst), so w / sqrt(s_src s_dst)
/// stays.
float factor_of(const LiveGraph& graph, LiveEdge edge, std::int64_t dst) {
  const auto degrees = static_cast<double>(graph.out_edges(edge.node).size()) *
                       static_cast<double>(graph.in_edges(dst).size());
  const double sums = graph.out_sum(edge.node) * graph.in_sum(dst);
  return static_cast<float>(*graph.row(edge) * std::sqrt(degrees / sums));
}

/// Fills the arrays of a block, edge by edge.
class BlockWriter {
 public:
  BlockWriter(const LiveGraph& graph, EdgeRead read, std::int64_t num_edges)
      : graph_(graph), read_(read), sources_(at::empty({num_edges}, at::kInt)) {
    if (read == EdgeRead::kWeights || read == EdgeRead::kFactors) rows_ = at::empty({num_edges});
    if (read == EdgeRead::kRows) rows_ = at::empty({num_edges, graph.row_width()});
    source_ = sources_.mutable_data_ptr<std::int32_t>();
    row_ = rows_.defined() ? rows_.mutable_data_ptr<float>() : nullptr;
  }

  void add(LiveEdge edge, std::int64_t dst) {
    *source_++ = edge.node;
    if (read_ == EdgeRead::kWeights) *row_++ = *graph_.row(edge);
    if (read_ == EdgeRead::kFactors) *row_++ = factor_of(graph_, edge, dst);
    if (read_ == EdgeRead::kRows) row_ = std::copy_n(graph_.row(edge), graph_.row_width(), row_);
  }

  at::Tensor sources() const { return sources_; }
  at::Tensor rows() const { return rows_; }

 private:
  const LiveGraph& graph_;
  EdgeRead read_;
  at::Tensor sources_, rows_;
  std::int32_t* source_ = nullptr;
  float* row_ = nullptr;
};

/// The edges into some nodes: rows of ids.
struct EdgeRows {
  at::Tensor starts, sources, rows;
  std::int64_t longest = 0;
};

EdgeRows edges_into(const LiveGraph& graph, EdgeRead read, const EdgeDraw& draw,
                    std::span<const std::int32_t> nodes) {
  const std::int64_t fanout = read == EdgeRead::kNothing ? 0 : draw.fanout;
  const auto takes_all = [fanout](std::int64_t degree) {
    return fanout == kAllNeighbors || degree <= fanout;
  };
  EdgeRows edges;
  edges.starts = at::empty({static_cast<std::int64_t>(nodes.size()) + 1}, at::kLong);
  auto* start = edges.starts.mutable_data_ptr<std::int64_t>();
  *start = 0;
  for (const std::int32_t node : nodes) {
    const auto degree = static_cast<std::int64_t>(graph.in_edges(node).size());
    const std::int64_t count = takes_all(degree) ? degree : fanout;
    edges.longest = std::max(edges.longest, count);
    start[1] = start[0] + count;
    ++start;
  }
  BlockWriter writer(graph, read, *start);
  std::vector<std::int64_t> positions;
  for (const std::int32_t node : nodes) {
    const std::span<const LiveEdge> all = graph.in_edges(node);
    if (takes_all(static_cast<std::int64_t>(all.size()))) {
      for (const LiveEdge& edge : all) writer.add(edge, node);
      continue;
    }
    draw_positions(static_cast<std::int64_t>(all.size()), node, {fanout, draw.seed, draw.layer},
                   positions);
    for (const std::int64_t position : positions) {
      writer.add(all[static_cast<std::size_t>(position)], node);
    }
  }
  edges.sources = writer.sources();
  edges.rows = writer.rows();
  return edges;
}

/// degree(i) for each i below `count`.
template <class Degree>
at::Tensor degrees_of(std::int64_t count, const Degree& degree) {
  at::Tensor degrees = at::empty({count}, at::kInt);
  auto* to = degrees.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::int32_t>(degree(i));
  return degrees;
}

/// out_degrees: of the sources; undefined if layers count none.
LiveBlock block_of(const LiveGraph& graph, const EdgeRows& edges,
                   std::span<const std::int32_t> nodes, std::int64_t num_src,
                   const at::Tensor& out_degrees) {
  const auto num_dst = static_cast<std::int64_t>(nodes.size());
  const Topology topology =
      topology_from_rows({edges.starts, edges.sources, {}, edges.longest}, num_src, num_dst);
  if (!out_degrees.defined()) return {topology, edges.rows};
  const at::Tensor in_degrees = degrees_of(num_dst, [&](std::int64_t i) {
    return graph.in_edges(nodes[static_cast<std::size_t>(i)]).size();
  });
  return {topology.with_parent_degrees(in_degrees, out_degrees), edges.rows};
}

std::span<const std::int32_t> all_of(const NodeNumbers& numbers) {
  return {numbers.nodes<std::int32_t>(), static_cast<std::size_t>(numbers.size())};
}

}  // namespace

EdgeRead edge_read_of(nn::ModelKind kind, bool has_rows) {
  if (kind == nn::ModelKind::kMlp) return EdgeRead::kNothing;
  if (nn::takes_edge_features(kind)) return EdgeRead::kRows;
  if (kind == nn::ModelKind::kGcn) return has_rows ? EdgeRead::kFactors : EdgeRead::kDegrees;
  return has_rows ? EdgeRead::kWeights : EdgeRead::kEdges;
}

LiveBlock make_block(const LiveGraph& graph, EdgeRead read, const EdgeDraw& draw,
                     NodeNumbers& numbers) {
  const auto num_dst = static_cast<std::size_t>(numbers.size());
  const EdgeRows edges = edges_into(graph, read, draw, all_of(numbers));
  numbers.add<std::int32_t>(edges.sources.mutable_data_ptr<std::int32_t>(), edges.sources.numel());
  const std::span<const std::int32_t> sources = all_of(numbers);
  at::Tensor out_degrees;
  if (reads_out_edges(read)) {
    out_degrees = degrees_of(numbers.size(), [&](std::int64_t i) {
      return graph.out_edges(sources[static_cast<std::size_t>(i)]).size();
    });
  }
  return block_of(graph, edges, sources.first(num_dst), numbers.size(), out_degrees);
}

TableBlocks::TableBlocks(const LiveGraph& graph, EdgeRead read) : graph_(graph), read_(read) {
  if (!reads_out_edges(read)) return;
  out_degrees_ = degrees_of(graph.num_nodes(),
                            [&](std::int64_t node) { return graph.out_edges(node).size(); });
}

LiveBlock TableBlocks::into(std::span<const std::int32_t> nodes) const {
  return block_of(graph_, edges_into(graph_, read_, {}, nodes), nodes, graph_.num_nodes(),
                  out_degrees_);
}

}  // namespace mezzo::detail
