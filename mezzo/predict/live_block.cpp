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

template <class Edges>
at::Tensor degrees_of(const std::int32_t* nodes, std::int64_t count, const Edges& edges) {
  at::Tensor degrees = at::empty({count}, at::kInt);
  auto* degree = degrees.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    degree[i] = static_cast<std::int32_t>(edges(nodes[i]).size());
  }
  return degrees;
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
  const std::int64_t num_dst = numbers.size();
  const std::int64_t fanout = read == EdgeRead::kNothing ? 0 : draw.fanout;
  const auto takes_all = [fanout](std::int64_t degree) {
    return fanout == kAllNeighbors || degree <= fanout;
  };
  at::Tensor starts = at::empty({num_dst + 1}, at::kLong);
  auto* start = starts.mutable_data_ptr<std::int64_t>();
  const auto* nodes = numbers.nodes<std::int32_t>();
  std::int64_t longest = 0;
  start[0] = 0;
  for (std::int64_t i = 0; i < num_dst; ++i) {
    const auto degree = static_cast<std::int64_t>(graph.in_edges(nodes[i]).size());
    const std::int64_t count = takes_all(degree) ? degree : fanout;
    longest = std::max(longest, count);
    start[i + 1] = start[i] + count;
  }
  const std::int64_t num_edges = start[num_dst];
  BlockWriter writer(graph, read, num_edges);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < num_dst; ++i) {
    const std::span<const LiveEdge> edges = graph.in_edges(nodes[i]);
    if (takes_all(static_cast<std::int64_t>(edges.size()))) {
      for (const LiveEdge& edge : edges) writer.add(edge, nodes[i]);
      continue;
    }
    draw_positions(static_cast<std::int64_t>(edges.size()), nodes[i],
                   {fanout, draw.seed, draw.layer}, positions);
    for (const std::int64_t position : positions) {
      writer.add(edges[static_cast<std::size_t>(position)], nodes[i]);
    }
  }
  const at::Tensor sources = writer.sources();
  numbers.add<std::int32_t>(sources.mutable_data_ptr<std::int32_t>(), num_edges);
  const std::int64_t num_src = numbers.size();
  Topology topology = topology_from_rows({starts, sources, {}, longest}, num_src, num_dst);
  if (reads_out_edges(read)) {
    nodes = numbers.nodes<std::int32_t>();
    const auto in = [&](std::int64_t node) { return graph.in_edges(node); };
    const auto out = [&](std::int64_t node) { return graph.out_edges(node); };
    topology = topology.with_parent_degrees(degrees_of(nodes, num_dst, in),
                                            degrees_of(nodes, num_src, out));
  }
  return {topology, writer.rows()};
}

}  // namespace mezzo::detail
