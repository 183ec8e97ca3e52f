#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"

namespace mezzo {

struct TrainOptions;

/// How mini-batches are drawn. kNeighbor, kLabor: blocks below a batch of training nodes. kCluster:
/// the parts of a partition of the graph, several a batch. kSaintNode, kSaintEdge, kSaintWalk:
/// subgraphs of random nodes, of the ends of random edges, of random walks (GraphSAINT).
enum class SamplerKind : std::uint8_t {
  kNeighbor,
  kLabor,
  kCluster,
  kSaintNode,
  kSaintEdge,
  kSaintWalk
};

struct NeighborBatches {
  static constexpr SamplerKind kind = SamplerKind::kNeighbor;
  static constexpr std::string_view name = "neighbor";
};
struct LaborBatches {
  static constexpr SamplerKind kind = SamplerKind::kLabor;
  static constexpr std::string_view name = "labor";
};
struct ClusterBatches {
  static constexpr SamplerKind kind = SamplerKind::kCluster;
  static constexpr std::string_view name = "cluster";
};
struct SaintNodeBatches {
  static constexpr SamplerKind kind = SamplerKind::kSaintNode;
  static constexpr std::string_view name = "saint-node";
};
struct SaintEdgeBatches {
  static constexpr SamplerKind kind = SamplerKind::kSaintEdge;
  static constexpr std::string_view name = "saint-edge";
};
struct SaintWalkBatches {
  static constexpr SamplerKind kind = SamplerKind::kSaintWalk;
  static constexpr std::string_view name = "saint-walk";
};
/// Every sampler, with the word that the command line takes.
using SamplerKinds = TypeList<NeighborBatches, LaborBatches, ClusterBatches, SaintNodeBatches,
                              SaintEdgeBatches, SaintWalkBatches>;

/// Whether the batches are blocks below seeds (neighbor, labor), and not subgraphs.
constexpr bool draws_blocks(SamplerKind sampler) {
  return sampler == SamplerKind::kNeighbor || sampler == SamplerKind::kLabor;
}
constexpr bool is_saint(SamplerKind sampler) {
  return sampler == SamplerKind::kSaintNode || sampler == SamplerKind::kSaintEdge ||
         sampler == SamplerKind::kSaintWalk;
}

/// Training by mini-batches, as plain values. Options with samplers in front belong to these: set
/// for another one they are an error, never ignored.
struct SamplingOptions {
  SamplerKind sampler = SamplerKind::kNeighbor;

  std::optional<std::int64_t> batch_size =
      {};  ///< neighbor, labor (needed): seeds of a batch, >= 1
  /// neighbor, labor (needed): neighbours drawn for a node, one number a layer of the model, input
  /// layer first; >= 0 (gcn, gat: >= 1), or -1: all.
  std::vector<std::int64_t> fanouts = {};
  bool replace = false;           ///< neighbor: draw neighbours with replacement
  bool layer_dependency = false;  ///< labor: one random number a node for all layers of a batch
  bool drop_last = false;         ///< neighbor, labor: leave out a last batch that is not full
  bool balance_classes = false;   ///< neighbor, labor: seeds of every class equally often

  std::optional<std::int64_t> parts = {};            ///< cluster (needed): of the partition, >= 1
  std::optional<std::int64_t> parts_per_batch = {};  ///< cluster: in [1, parts], 1 by default

  /// saint (needed): nodes (saint-node), edges (saint-edge) or walks (saint-walk) drawn for a
  /// batch, >= 1.
  std::optional<std::int64_t> saint_budget = {};
  std::optional<std::int64_t> walk_length =
      {};  ///< saint-walk: steps of a walk, >= 1, 2 by default
  /// saint: >= 1; by default as many as draw each node about once an epoch, were no node drawn
  /// twice.
  std::optional<std::int64_t> batches_per_epoch = {};

  std::int64_t num_workers = 1;  ///< threads that prepare batches, in [0, 256]; 0: the trainer's
  std::int64_t prefetch = 2;     ///< batches ready or in work for each worker, in [1, 1024]
  std::int64_t inference_batch_size = 4096;  ///< nodes of a batch of an evaluation, >= 1

  bool operator==(const SamplingOptions&) const = default;
};

/// "all", -1 or a number of at least 0. Throws InvalidArgument for another text.
MEZZO_API std::int64_t parse_fanout(std::string_view text);

/// Of check_options(): throws InvalidArgument that names the first option of sampling out of its
/// range or in contradiction to another one or to the model.
void check_sampling(const TrainOptions& options);

}  // namespace mezzo
