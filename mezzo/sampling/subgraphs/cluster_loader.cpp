#include "mezzo/sampling/subgraphs/cluster_loader.h"

#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/seed_order.h"
#include "mezzo/sampling/subgraphs/partition.h"

namespace mezzo {
namespace {

constexpr std::string_view kClusterLoaderName = "ClusterLoader";

/// The nodes of every cluster that has one.
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
              "{}: expected parts on the CPU, one a node ({}), got {} on {}", kClusterLoaderName,
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

/// What every batch of a loader is made from. Immutable.
struct ClusterPlan {
  detail::SubgraphSource source;
  Clusters clusters;
  SeedOrder order;
  std::shared_ptr<PipelineCounters> counters;

  /// The nodes of some clusters.
  at::Tensor nodes_of(const at::Tensor& chosen) const {
    const auto* cluster = chosen.const_data_ptr<std::int64_t>();
    const auto* begin = clusters.begins.const_data_ptr<std::int64_t>();
    std::vector<at::Tensor> members;
    for (std::int64_t i = 0; i < chosen.numel(); ++i) {
      const std::int64_t first = begin[cluster[i]];
      members.push_back(clusters.nodes.narrow(0, first, begin[cluster[i] + 1] - first));
    }
    return at::cat(members);
  }
};

class ClusterEpoch : public Epoch<SubgraphBatch> {
 public:
  ClusterEpoch(std::shared_ptr<const ClusterPlan> plan, std::int64_t number)
      : plan_(std::move(plan)), clusters_(plan_->order.epoch(number)) {}

  std::int64_t num_batches() const override { return clusters_->num_batches(); }

  SubgraphBatch make(std::int64_t index, Workspace& workspace) const override {
    PipelineStatistics took;
    SubgraphBatch batch =
        plan_->source.make(plan_->nodes_of(clusters_->batch(index)), index, workspace, took);
    plan_->source.move(batch, took);
    plan_->counters->add(took);
    return batch;
  }

 private:
  std::shared_ptr<const ClusterPlan> plan_;
  std::shared_ptr<const EpochSeeds> clusters_;
};

std::shared_ptr<const ClusterPlan> cluster_plan(const Graph& graph,
                                                const ClusterLoaderOptions& options,
                                                const std::shared_ptr<PipelineCounters>& counters) {
  check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  MEZZO_CHECK(options.clusters_per_batch >= 1,
              "{}: expected clusters_per_batch of at least 1, got {}", kClusterLoaderName,
              options.clusters_per_batch);
  detail::SubgraphSource source(kClusterLoaderName, graph, options.features, options.labels,
                                options.device);
  Clusters clusters = clusters_of(parts_of(graph, options));
  SeedOrder order(kClusterLoaderName, at::arange(clusters.size(), at::kLong), clusters.size(),
                  {.batch_size = options.clusters_per_batch,
                   .shuffle = options.shuffle,
                   .drop_last = options.drop_last,
                   .seed = options.seed});
  return std::make_shared<const ClusterPlan>(
      ClusterPlan{std::move(source), std::move(clusters), std::move(order), counters});
}

Batches<SubgraphBatch>::MakeEpoch cluster_epochs(std::shared_ptr<const ClusterPlan> plan) {
  return [plan = std::move(plan)](std::int64_t number) {
    return std::make_shared<const ClusterEpoch>(plan, number);
  };
}

}  // namespace

ClusterLoader::ClusterLoader(const Graph& graph, ClusterLoaderOptions options)
    : ClusterLoader(graph, options, std::make_shared<PipelineCounters>()) {}

ClusterLoader::ClusterLoader(const Graph& graph, const ClusterLoaderOptions& options,
                             const std::shared_ptr<PipelineCounters>& counters)
    : Batches(cluster_epochs(cluster_plan(graph, options, counters)),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}, counters) {}

}  // namespace mezzo
