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

/// How mini-batches are drawn. kNeighbor, kLabor, kLayer: blocks below a batch of training nodes,
/// by neighbours of each node or by nodes of each layer (FastGCN, LADIES). kCluster:
/// the parts of a partition of the graph, several a batch. kSaintNode, kSaintEdge, kSaintWalk:
/// subgraphs of random nodes, of the ends of random edges, of random walks (GraphSAINT).
enum class SamplerKind : std::uint8_t {
  kNeighbor,
  kLabor,
  kLayer,
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
struct LayerBatches {
  static constexpr SamplerKind kind = SamplerKind::kLayer;
  static constexpr std::string_view name = "layer";
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
using SamplerKinds = TypeList<NeighborBatches, LaborBatches, LayerBatches, ClusterBatches,
                              SaintNodeBatches, SaintEdgeBatches, SaintWalkBatches>;

/// Whether neighbours are drawn for each node, by fan-outs.
constexpr bool draws_by_fanouts(SamplerKind sampler) {
  return sampler == SamplerKind::kNeighbor || sampler == SamplerKind::kLabor;
}
/// Whether the batches are blocks below seeds (neighbor, labor, layer), and not subgraphs.
constexpr bool draws_blocks(SamplerKind sampler) {
  return draws_by_fanouts(sampler) || sampler == SamplerKind::kLayer;
}
/// Whether batches are GraphSAINT's subgraphs.
constexpr bool is_saint(SamplerKind sampler) {
  return sampler == SamplerKind::kSaintNode || sampler == SamplerKind::kSaintEdge ||
         sampler == SamplerKind::kSaintWalk;
}

/// Where mini-batches are drawn; what is drawn is the same bit for bit.
enum class SamplePlace : std::uint8_t {
  kAuto,    ///< on the device where that can draw and has room, else on the host
  kHost,    ///< by threads of the host, which send the batches to the device
  kDevice,  ///< on the CUDA device of the run, to which structure and features are copied before
};

struct SampleAnywhere {
  static constexpr SamplePlace kind = SamplePlace::kAuto;
  static constexpr std::string_view name = "auto";
};
struct SampleOnHost {
  static constexpr SamplePlace kind = SamplePlace::kHost;
  static constexpr std::string_view name = "host";
};
struct SampleOnDevice {
  static constexpr SamplePlace kind = SamplePlace::kDevice;
  static constexpr std::string_view name = "device";
};
/// Every place, with the word that the command line takes.
using SamplePlaces = TypeList<SampleAnywhere, SampleOnHost, SampleOnDevice>;

/// Training by mini-batches, as plain values. Options with samplers in front belong to these: set
/// for another one they are an error, never ignored.
struct SamplingOptions {
  SamplerKind sampler = SamplerKind::kNeighbor;  ///< how batches are drawn

  /// neighbor, labor, layer (needed): seeds of a batch, >= 1.
  std::optional<std::int64_t> batch_size = {};
  /// neighbor, labor (needed): neighbours drawn for a node, one number a layer of the model, input
  /// layer first; >= 0 (gcn, gat: >= 1), or -1: all.
  std::vector<std::int64_t> fanouts = {};
  /// layer (needed; gcn and sage): nodes drawn for a layer, one number a layer of the model, input
  /// layer first; in [1, 2^31].
  std::vector<std::int64_t> layer_sizes = {};
  bool replace = false;           ///< neighbor: draw neighbours with replacement
  bool layer_dependency = false;  ///< labor: one random number a node for all layers of a batch
  bool drop_last = false;         ///< neighbor, labor, layer: leave out a last batch not full
  bool balance_classes = false;   ///< neighbor, labor, layer: seeds of every class equally often
  /// false (neighbor, labor, layer, cluster; not with balance_classes): every epoch takes the
  /// seeds, or the parts, in their order.
  bool shuffle = true;

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

  /// kDevice: on CUDA, the sampler neighbor and no workers.
  SamplePlace sample_on = SamplePlace::kAuto;
  /// Threads that prepare batches, in [0, 256]; 0: the trainer's. By default 1 on the host, and 0
  /// where the device draws; a number above 0 makes kAuto draw on the host, as prefetch does.
  std::optional<std::int64_t> num_workers = {};
  /// Batches ready or in work for each worker, in [1, 1024], 2 by default; contradicts num_workers
  /// of 0 and kDevice, with which there is no worker.
  std::optional<std::int64_t> prefetch = {};
  std::int64_t inference_batch_size = 4096;  ///< nodes of a batch of an evaluation, >= 1

  bool operator==(const SamplingOptions&) const = default;
};

/// "all", -1 or a number of at least 0. Throws InvalidArgument for another text.
MEZZO_API std::int64_t parse_fanout(std::string_view text);

/// Whether the batches are drawn on the device of the run: as sampling.sample_on says, for kAuto
/// where the device is CUDA, the sampler neighbor, no worker asked for, and `needed_bytes`, those
/// of structure and features, are at most half of the device's `free_bytes`; the rest is for
/// training. options: checked, with sampling. Throws InvalidArgument for kDevice and more than is
/// free.
MEZZO_API bool draws_on_device(const TrainOptions& options, std::int64_t needed_bytes,
                               std::int64_t free_bytes);

/// Whether draws_on_device() depends on the memory.
bool may_draw_on_device(const TrainOptions& options);

/// Of check_options(): throws InvalidArgument that names the first option of sampling out of its
/// range or in contradiction to another one or to the model.
void check_sampling(const TrainOptions& options);

}  // namespace mezzo
