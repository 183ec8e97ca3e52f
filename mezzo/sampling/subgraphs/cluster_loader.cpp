#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/subgraphs/partition.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/sampling/subgraphs/subgraph_source.h"

namespace mezzo {
namespace {

constexpr std::string_view kClusterLoaderName = "ClusterLoader";

/// The nodes of every cluster that is not empty.
struct Clusters {
  at::Tensor nodes;   ///< int64 [num_nodes], cluster by cluster
  at::Tensor begins;  ///< int64 [num_clusters + 1]
  std::int64_t size() const { return begins.numel() - 1; }
};

at::Tensor parts_of(const Graph& graph, const ClusterLoaderOptions& options) {
  if (!options.parts.defined()) {
    return metis_partition(graph.topology(), options.num_parts, {.seed = options.seed});
  }
  MEZZO_CHECK(options.num_parts == 0, "{}: expected parts or num_parts, got both",
              kClusterLoaderName);
  const at::Tensor parts =
      detail::check_vector(kClusterLoaderName, "parts", options.parts).to(at::kLong);
  MEZZO_CHECK(parts.is_cpu() && parts.numel() == graph.num_nodes(),
              "{}: expected parts on the CPU, one per node ({}), got {} on {}", kClusterLoaderName,
              graph.num_nodes(), detail::describe(parts), parts.device().str());
  detail::check_range(kClusterLoaderName, "parts", parts, graph.num_nodes());
  return parts;
}

Clusters clusters_of(const at::Tensor& parts) {
  const at::Tensor order = std::get<1>(parts.sort(/*stable=*/true, /*dim=*/0, false));
  const at::Tensor sizes =
      std::get<2>(at::_unique2(parts, /*sorted=*/true, /*return_inverse=*/false,
                               /*return_counts=*/true));
  return {.nodes = order, .begins = at::cat({at::zeros({1}, at::kLong), sizes.cumsum(0)})};
}

/// The inputs of a loader's batches. Immutable.
struct ClusterPlan {
  detail::SubgraphSource source;
  Clusters clusters;
  detail::SeedOrder order;  ///< of the clusters
  std::uint64_t seed;

  at::Tensor nodes_of(const at::Tensor& selected) const {
    const auto* cluster = selected.const_data_ptr<std::int64_t>();
    const auto* begin = clusters.begins.const_data_ptr<std::int64_t>();
    std::vector<at::Tensor> members;
    for (std::int64_t i = 0; i < selected.numel(); ++i) {
      const std::int64_t first = begin[cluster[i]];
      members.push_back(clusters.nodes.narrow(0, first, begin[cluster[i] + 1] - first));
    }
    return at::cat(members);
  }

  SubgraphBatch make(const detail::EpochSeeds& seeds, const BatchKey& key, Workspace& workspace,
                     PipelineStatistics& statistics) const {
    SubgraphBatch batch =
        source.make(nodes_of(seeds.batch(key.batch)), key.batch, workspace, statistics);
    source.move(batch, statistics);
    return batch;
  }
};

ClusterPlan cluster_plan(const Graph& graph, const ClusterLoaderOptions& options) {
  detail::check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  MEZZO_CHECK(options.clusters_per_batch >= 1,
              "{}: expected clusters_per_batch of at least 1, got {}", kClusterLoaderName,
              options.clusters_per_batch);
  detail::SubgraphSource source(kClusterLoaderName, graph, options.features, options.labels,
                                options.device);
  Clusters clusters = clusters_of(parts_of(graph, options));
  detail::SeedOrder order(kClusterLoaderName, at::arange(clusters.size(), at::kLong),
                          clusters.size(),
                          {.batch_size = options.clusters_per_batch,
                           .shuffle = options.shuffle,
                           .drop_last = options.drop_last,
                           .seed = options.seed});
  return {std::move(source), std::move(clusters), std::move(order), options.seed};
}

}  // namespace

ClusterLoader::ClusterLoader(const Graph& graph, ClusterLoaderOptions options)
    : Batches(detail::seed_epochs<SubgraphBatch>(cluster_plan(graph, options)),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
