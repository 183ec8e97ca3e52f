#include "bench/gpu_kernels/graph.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <thread>

#include "bench/gpu_kernels/numbers.h"
#include "bench/gpu_kernels/parallel.h"

namespace mezzo::bench::gpu {
namespace {

using Nodes = std::vector<std::int32_t>;

constexpr std::uint64_t kGraphSeed = 1;
constexpr std::int64_t kPart = 1 << 16;  // edges that a thread draws at a time

struct Edges {
  Nodes src, dst;
};

/// Each level picks a quadrant of the matrix by 16 random bits.
void draw_edge(std::int64_t edge, int levels, std::int64_t num_nodes, Edges& edges) {
  constexpr std::uint32_t kA = 37356, kB = 49807, kC = 62259;  // of 65536, cumulative
  std::uint64_t src = 0, dst = 0, bits = 0;
  for (int level = 0; level < levels; ++level) {
    if (level % 4 == 0) {
      bits = mixed(kGraphSeed, static_cast<std::uint64_t>(edge * 16 + level / 4));
    }
    const auto draw = static_cast<std::uint32_t>(bits & 0xFFFF);
    bits >>= 16;
    src = 2 * src + (draw >= kB ? 1 : 0);
    dst = 2 * dst + ((draw >= kA && draw < kB) || draw >= kC ? 1 : 0);
  }
  const auto at = static_cast<std::size_t>(edge);
  const auto nodes = static_cast<std::uint64_t>(num_nodes);
  edges.src[at] = static_cast<std::int32_t>(src % nodes);
  edges.dst[at] = static_cast<std::int32_t>(dst % nodes);
}

Nodes random_numbers(std::int64_t num_nodes) {
  Nodes number(static_cast<std::size_t>(num_nodes));
  std::iota(number.begin(), number.end(), 0);
  std::mt19937_64 random(kGraphSeed);
  for (std::size_t i = number.size(); i > 1; --i) std::swap(number[i - 1], number[random() % i]);
  return number;
}

Nodes numbers_by_degree(const Nodes& dst, std::int64_t num_nodes) {
  std::vector<std::int64_t> degree(static_cast<std::size_t>(num_nodes));
  for (const std::int32_t node : dst) ++degree[static_cast<std::size_t>(node)];
  Nodes nodes(degree.size()), number(degree.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(), [&](std::int32_t a, std::int32_t b) {
    return degree[static_cast<std::size_t>(a)] > degree[static_cast<std::size_t>(b)];
  });
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    number[static_cast<std::size_t>(nodes[i])] = static_cast<std::int32_t>(i);
  }
  return number;
}

/// Each thread fills a range of rows, in the order of the edges.
Rows rows_by(const Nodes& keys, const Nodes& others, std::int64_t num_rows) {
  Rows rows;
  rows.indptr.resize(static_cast<std::size_t>(num_rows) + 1);
  rows.ids.resize(keys.size());
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 64);
  const auto for_own_edges = [&](std::int64_t part, const auto& f) {
    const std::int64_t begin = part * num_rows / parts, end = (part + 1) * num_rows / parts;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] >= begin && keys[i] < end) f(static_cast<std::size_t>(keys[i]), i);
    }
  };
  parallel_for(parts, [&](std::int64_t part) {
    for_own_edges(part, [&](std::size_t row, std::size_t) { ++rows.indptr[row + 1]; });
  });
  std::partial_sum(rows.indptr.begin(), rows.indptr.end(), rows.indptr.begin());
  std::vector<std::int64_t> next = rows.indptr;
  parallel_for(parts, [&](std::int64_t part) {
    for_own_edges(part, [&](std::size_t row, std::size_t i) {
      rows.ids[static_cast<std::size_t>(next[row]++)] = others[i];
    });
  });
  return rows;
}

}  // namespace

HostGraph rmat_graph(std::int64_t num_nodes, std::int64_t num_edges, NodeOrder order) {
  const auto count = static_cast<std::size_t>(num_edges);
  Edges edges{Nodes(count), Nodes(count)};
  const int levels = std::bit_width(static_cast<std::uint64_t>(num_nodes - 1));
  const std::int64_t parts = (num_edges + kPart - 1) / kPart;
  const auto for_edges = [&](const auto& f) {
    parallel_for(parts, [&](std::int64_t part) {
      const std::int64_t end = std::min((part + 1) * kPart, num_edges);
      for (std::int64_t edge = part * kPart; edge < end; ++edge) f(edge);
    });
  };
  for_edges([&](std::int64_t edge) { draw_edge(edge, levels, num_nodes, edges); });
  const Nodes number = order == NodeOrder::kRandom ? random_numbers(num_nodes)
                                                   : numbers_by_degree(edges.dst, num_nodes);
  for_edges([&](std::int64_t edge) {
    for (Nodes* ends : {&edges.src, &edges.dst}) {
      std::int32_t& node = (*ends)[static_cast<std::size_t>(edge)];
      node = number[static_cast<std::size_t>(node)];
    }
  });
  return {.num_nodes = num_nodes,
          .num_edges = num_edges,
          .csc = rows_by(edges.dst, edges.src, num_nodes),
          .csr = rows_by(edges.src, edges.dst, num_nodes)};
}

}  // namespace mezzo::bench::gpu
