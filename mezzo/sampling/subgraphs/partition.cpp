#include "mezzo/sampling/subgraphs/partition.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <mutex>
#include <new>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <metis.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

constexpr std::int64_t kPartitionGrain = 1024;  // rows per task

/// A graph in METIS's format.
struct MetisGraph {
  std::vector<idx_t> row_begin, neighbors;
};

/// A topology's rows by source and by destination.
using BothRows = std::array<const Adjacency*, 2>;

/// The distinct other nodes that share an edge with `node`, ascending.
template <class Id>
void other_ends(const BothRows& sides, std::int64_t node, std::vector<idx_t>& neighbors) {
  neighbors.clear();
  for (const Adjacency* rows : sides) {
    const auto* indptr = rows->indptr.const_data_ptr<std::int64_t>();
    const auto* indices = rows->indices.const_data_ptr<Id>();
    for (std::int64_t i = indptr[node]; i < indptr[node + 1]; ++i) {
      if (indices[i] != node) neighbors.push_back(static_cast<idx_t>(indices[i]));
    }
  }
  std::sort(neighbors.begin(), neighbors.end());
  neighbors.erase(std::unique(neighbors.begin(), neighbors.end()), neighbors.end());
}

void check_partition(const Topology& topology, std::int64_t num_parts,
                     const PartitionOptions& options) {
  const std::int64_t num_nodes = topology.num_src();
  MEZZO_CHECK(num_nodes == topology.num_dst(),
              "metis_partition: expected a topology of one set of nodes, got {} sources and {} "
              "destinations",
              num_nodes, topology.num_dst());
  MEZZO_CHECK(topology.device().is_cpu(), "metis_partition: expected a topology on cpu, got {}",
              topology.device().str());
  const std::int64_t most = std::max<std::int64_t>(num_nodes, 1);
  MEZZO_CHECK(num_parts >= 1 && num_parts <= most,
              "metis_partition: expected num_parts in [1, {}] for {} nodes, got {}", most,
              num_nodes, num_parts);
  MEZZO_CHECK(options.imbalance > 1 && options.imbalance <= 100,
              "metis_partition: expected imbalance in (1, 100], got {}", options.imbalance);
  MEZZO_CHECK(num_nodes < IDX_MAX,
              "metis_partition: expected fewer than {} nodes (METIS has 32-bit ids), got {}",
              IDX_MAX, num_nodes);
}

template <class Id>
MetisGraph simple_graph(const Topology& topology) {
  const std::int64_t num_nodes = topology.num_src();
  // Built here, because building uses threads too.
  const BothRows sides = {&topology.csr(), &topology.csc()};
  MetisGraph graph;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_nodes));
  at::parallel_for(0, num_nodes, kPartitionGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<idx_t> neighbors;
    for (std::int64_t node = begin; node < end; ++node) {
      other_ends<Id>(sides, node, neighbors);
      counts[static_cast<std::size_t>(node)] = static_cast<std::int64_t>(neighbors.size());
    }
  });
  std::int64_t total = 0;
  graph.row_begin.resize(counts.size() + 1);
  for (std::size_t node = 0; node < counts.size(); ++node) {
    total += counts[node];
    MEZZO_CHECK(total + num_nodes < IDX_MAX,
                "metis_partition: expected fewer than {} nodes and edges (both directions "
                "counted; METIS has 32-bit ids), got a graph of {} nodes and {} edges",
                IDX_MAX, num_nodes, topology.num_edges());
    graph.row_begin[node + 1] = static_cast<idx_t>(total);
  }
  graph.neighbors.resize(static_cast<std::size_t>(total));
  at::parallel_for(0, num_nodes, kPartitionGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<idx_t> neighbors;
    for (std::int64_t node = begin; node < end; ++node) {
      other_ends<Id>(sides, node, neighbors);
      std::copy(neighbors.begin(), neighbors.end(),
                graph.neighbors.begin() + graph.row_begin[static_cast<std::size_t>(node)]);
    }
  });
  return graph;
}

std::vector<idx_t> run_metis(MetisGraph& graph, idx_t num_parts, const PartitionOptions& options) {
  auto num_nodes = static_cast<idx_t>(graph.row_begin.size() - 1);
  std::vector<idx_t> weights;
  if (options.balance_edges) {
    for (std::size_t node = 0; node + 1 < graph.row_begin.size(); ++node) {
      weights.push_back(1 + graph.row_begin[node + 1] - graph.row_begin[node]);
    }
  }
  idx_t settings[METIS_NOPTIONS];
  METIS_SetDefaultOptions(settings);
  settings[METIS_OPTION_SEED] = static_cast<idx_t>(options.seed & 0x7fffffff);
  settings[METIS_OPTION_NUMBERING] = 0;
  settings[METIS_OPTION_UFACTOR] =
      std::max(static_cast<idx_t>((options.imbalance - 1) * 1000), idx_t{1});  // in thousandths
  std::vector<idx_t> parts(static_cast<std::size_t>(num_nodes));
  idx_t constraints = 1, cut = 0;
  static std::mutex one_at_a_time;  // METIS draws from one generator of the process
  const std::lock_guard lock(one_at_a_time);
  const int status =
      METIS_PartGraphKway(&num_nodes, &constraints, graph.row_begin.data(), graph.neighbors.data(),
                          weights.empty() ? nullptr : weights.data(), nullptr, nullptr, &num_parts,
                          nullptr, nullptr, settings, &cut, parts.data());
  if (status == METIS_ERROR_MEMORY) throw std::bad_alloc();
  // METIS handles SIGTERM while it runs, and then returns this status.
  if (status == METIS_ERROR) std::raise(SIGTERM);
  if (status != METIS_OK) {
    detail::raise<LogicError>("metis_partition: METIS failed with status {}", status);
  }
  return parts;
}

/// Moves the last node of the largest part to each empty part.
void fill_empty_parts(std::vector<std::int64_t>& parts, std::int64_t num_parts) {
  std::vector<std::vector<std::size_t>> members(static_cast<std::size_t>(num_parts));
  for (std::size_t node = 0; node < parts.size(); ++node) {
    members[static_cast<std::size_t>(parts[node])].push_back(node);
  }
  for (std::size_t part = 0; part < members.size(); ++part) {
    if (!members[part].empty()) continue;
    const auto largest =
        std::max_element(members.begin(), members.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const std::size_t node = largest->back();
    largest->pop_back();
    members[part].push_back(node);
    parts[node] = static_cast<std::int64_t>(part);
  }
}

}  // namespace

at::Tensor metis_partition(const Topology& topology, std::int64_t num_parts,
                           PartitionOptions options) {
  check_partition(topology, num_parts, options);
  const std::int64_t num_nodes = topology.num_src();
  if (num_parts == 1) return at::zeros({num_nodes}, at::kLong);
  if (num_parts == num_nodes) return at::arange(num_nodes, at::kLong);
  MetisGraph graph;
  detail::visit(detail::IdTypes{}, topology.id_dtype(),
                [&]<class Id>() { graph = simple_graph<typename Id::Type>(topology); });
  if (graph.neighbors.empty()) {
    return at::arange(num_nodes, at::kLong).mul_(num_parts).floor_divide_(num_nodes);
  }
  const std::vector<idx_t> cut = run_metis(graph, static_cast<idx_t>(num_parts), options);
  std::vector<std::int64_t> parts(cut.begin(), cut.end());
  fill_empty_parts(parts, num_parts);
  return at::tensor(parts, at::kLong);
}

std::int64_t edge_cut(const Topology& topology, const at::Tensor& parts) {
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "edge_cut: expected a topology of one set of nodes, got {} sources and {} "
              "destinations",
              topology.num_src(), topology.num_dst());
  const at::Tensor part = detail::check_vector("edge_cut", "parts", parts);
  MEZZO_CHECK(part.numel() == topology.num_src() && part.device() == topology.device(),
              "edge_cut: expected parts of {} nodes on {}, got {} on {}", topology.num_src(),
              topology.device().str(), detail::describe(parts), part.device().str());
  return part.index_select(0, topology.src())
      .ne(part.index_select(0, topology.dst()))
      .sum()
      .item<std::int64_t>();
}

}  // namespace mezzo
