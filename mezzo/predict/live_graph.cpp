#include "mezzo/predict/live_graph.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "mezzo/core/error.h"

namespace mezzo::detail {
namespace {

constexpr std::int32_t kLoopRow = 0, kRemoved = -1;

/// The edges of a row to `node`.
template <class Row>
auto edges_to(Row& row, std::int32_t node) {
  const auto [first, last] =
      std::equal_range(row.begin(), row.end(), LiveEdge{node, 0},
                       [](const LiveEdge& a, const LiveEdge& b) { return a.node < b.node; });
  return std::span(first, last);
}

/// The pairs in order, each with its position.
struct Pair {
  std::int64_t src, dst, position;

  bool operator<(const Pair& other) const {
    return std::tie(dst, src, position) < std::tie(other.dst, other.src, other.position);
  }
  bool has_ends_of(const Pair& other) const { return src == other.src && dst == other.dst; }
};

}  // namespace

LiveGraph::LiveGraph(const Options& options) : options_(options) {
  rows_.assign(static_cast<std::size_t>(options_.row_width), 1.F);
  add_nodes(options_.num_nodes);
}

void LiveGraph::add_nodes(std::int64_t count) {
  const std::int64_t first = num_nodes(), all = first + count;
  in_.resize(index(all));
  out_.resize(index(all));
  if (options_.sums_weights) {
    const double sum = options_.self_loops ? 1 : 0;
    in_sums_.resize(index(all), sum);
    out_sums_.resize(index(all), sum);
  }
  if (!options_.self_loops) return;
  for (std::int64_t node = first; node < all; ++node) {
    const LiveEdge loop{static_cast<std::int32_t>(node), kLoopRow};
    in_[index(node)].push_back(loop);
    out_[index(node)].push_back(loop);
  }
  num_edges_ += count;
}

bool LiveGraph::row_before(std::int32_t a, std::int32_t b) const {
  const std::int64_t width = options_.row_width;
  if (a == b || width == 0) return false;
  return std::memcmp(row({0, a}), row({0, b}), index(width) * sizeof(float)) < 0;
}

std::int32_t LiveGraph::store_row(const float* row) {
  const std::int64_t width = options_.row_width;
  if (width == 0) return kLoopRow;
  std::int32_t place;
  if (free_rows_.empty()) {
    place = static_cast<std::int32_t>(static_cast<std::int64_t>(rows_.size()) / width);
    rows_.resize(rows_.size() + index(width));
  } else {
    place = free_rows_.back();
    free_rows_.pop_back();
  }
  std::copy_n(row, width, rows_.data() + place * width);
  return place;
}

/// Calls change(row of a node, the edges at it) for the sources or destinations of `edges`, which
/// it sorts.
template <class Change>
void LiveGraph::change_rows(std::vector<Edge>& edges, bool of_dst,
                            std::vector<std::int32_t>& changed, const Change& change) {
  const auto own = [of_dst](const Edge& e) { return of_dst ? e.dst : e.src; };
  const auto at_row = [of_dst](const Edge& e) { return LiveEdge{of_dst ? e.src : e.dst, e.row}; };
  std::sort(edges.begin(), edges.end(), [&](const Edge& a, const Edge& b) {
    return own(a) != own(b) ? own(a) < own(b) : before(at_row(a), at_row(b));
  });
  Row of_node;
  for (auto edge = edges.begin(); edge != edges.end();) {
    const std::int32_t node = own(*edge);
    of_node.clear();
    for (; edge != edges.end() && own(*edge) == node; ++edge) of_node.push_back(at_row(*edge));
    Row& row = (of_dst ? in_ : out_)[index(node)];
    change(row, of_node);
    changed.push_back(node);
    if (!options_.sums_weights) continue;
    double sum = 0;
    for (const LiveEdge& e : row) sum += *this->row(e);
    (of_dst ? in_sums_ : out_sums_)[index(node)] = sum;
  }
}

template <class Change>
ChangedEnds LiveGraph::change_both(std::vector<Edge>& edges, const Change& change) {
  ChangedEnds changed;
  change_rows(edges, /*of_dst=*/false, changed.src, change);
  change_rows(edges, /*of_dst=*/true, changed.dst, change);
  return changed;
}

ChangedEnds LiveGraph::add(const LiveEdges& edges) {
  std::vector<Edge> added;
  added.reserve(edges.src.size());
  for (std::size_t i = 0; i < edges.src.size(); ++i) {
    if (!is_kept(edges.src[i], edges.dst[i])) continue;
    const float* row = edges.rows + static_cast<std::int64_t>(i) * options_.row_width;
    added.push_back({static_cast<std::int32_t>(edges.src[i]),
                     static_cast<std::int32_t>(edges.dst[i]), store_row(row)});
  }
  num_edges_ += static_cast<std::int64_t>(added.size());
  return change_both(added, [this](Row& row, const Row& more) {
    const auto old_size = static_cast<std::ptrdiff_t>(row.size());
    row.insert(row.end(), more.begin(), more.end());
    std::inplace_merge(row.begin(), row.begin() + old_size, row.end(),
                       [this](LiveEdge a, LiveEdge b) { return before(a, b); });
  });
}

std::int64_t LiveGraph::find_missing(const LiveEdges& edges) const {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < edges.src.size(); ++i) {
    if (is_kept(edges.src[i], edges.dst[i])) {
      pairs.push_back({edges.src[i], edges.dst[i], static_cast<std::int64_t>(i)});
    }
  }
  std::sort(pairs.begin(), pairs.end());
  std::int64_t missing = -1;
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    auto left = static_cast<std::int64_t>(
        edges_to(in_[index(pair->dst)], static_cast<std::int32_t>(pair->src)).size());
    const Pair first = *pair;
    for (; pair != pairs.end() && pair->has_ends_of(first); ++pair, --left) {
      if (left <= 0 && (missing < 0 || pair->position < missing)) missing = pair->position;
    }
  }
  return missing;
}

std::vector<LiveGraph::Edge> LiveGraph::chosen(const LiveEdges& pairs) const {
  std::vector<Edge> edges;
  edges.reserve(pairs.src.size());
  for (std::size_t i = 0; i < pairs.src.size(); ++i) {
    if (!is_kept(pairs.src[i], pairs.dst[i])) continue;
    edges.push_back({static_cast<std::int32_t>(pairs.src[i]),
                     static_cast<std::int32_t>(pairs.dst[i]), kRemoved});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.dst, a.src) < std::tie(b.dst, b.src);
  });
  std::size_t parallel = 0;  // edges before this one with its ends
  for (std::size_t i = 0; i < edges.size(); ++i) {
    Edge& edge = edges[i];
    const bool repeats = i > 0 && edges[i - 1].src == edge.src && edges[i - 1].dst == edge.dst;
    parallel = repeats ? parallel + 1 : 0;
    edge.row = edges_to(in_[index(edge.dst)], edge.src)[parallel].row;
  }
  return edges;
}

ChangedEnds LiveGraph::remove(const LiveEdges& pairs) {
  std::vector<Edge> edges = chosen(pairs);
  num_edges_ -= static_cast<std::int64_t>(edges.size());
  const ChangedEnds changed = change_both(edges, [](Row& row, const Row& less) {
    for (const LiveEdge& edge : less) {
      for (LiveEdge& candidate : edges_to(row, edge.node)) {
        if (candidate.row != edge.row) continue;
        candidate.row = kRemoved;
        break;
      }
    }
    std::erase_if(row, [](const LiveEdge& edge) { return edge.row == kRemoved; });
  });
  if (options_.row_width > 0) {
    for (const Edge& edge : edges) free_rows_.push_back(edge.row);
  }
  return changed;
}

std::int64_t LiveGraph::memory_bytes() const {
  constexpr std::int64_t kOfAllocation = 16;
  std::int64_t edges = 0;
  for (const std::vector<Row>* rows : {&in_, &out_}) {
    for (const Row& row : *rows) edges += static_cast<std::int64_t>(row.capacity());
  }
  return edges * static_cast<std::int64_t>(sizeof(LiveEdge)) +
         2 * num_nodes() * (static_cast<std::int64_t>(sizeof(Row)) + kOfAllocation) +
         static_cast<std::int64_t>(rows_.capacity() * sizeof(float) +
                                   free_rows_.capacity() * sizeof(std::int32_t) +
                                   (in_sums_.capacity() + out_sums_.capacity()) * sizeof(double));
}

}  // namespace mezzo::detail
