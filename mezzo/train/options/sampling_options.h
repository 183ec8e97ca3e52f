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

/// How mini-batches are drawn. kNeighbor, kLabor, kLayer: blocks for a batch of training nodes, by
/// neighbours of each node or by nodes of each layer (FastGCN, LADIES). kCluster: several parts of
/// a partition of the graph. kSaintNode, kSaintEdge, kSaintWalk: subgraphs of random nodes, ends of
/// random edges, or random walks (GraphSAINT).
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
/// Every sampler with its name on the command line.
using SamplerKinds = TypeList<NeighborBatches, LaborBatches, LayerBatches, ClusterBatches,
                              SaintNodeBatches, SaintEdgeBatches, SaintWalkBatches>;

/// Whether neighbours are drawn for each node, with fan-outs.
constexpr bool draws_by_fanouts(SamplerKind sampler) {
  return sampler == SamplerKind::kNeighbor || sampler == SamplerKind::kLabor;
}
/// Whether the batches are blocks (neighbor, labor, layer), not subgraphs.
constexpr bool draws_blocks(SamplerKind sampler) {
  return draws_by_fanouts(sampler) || sampler == SamplerKind::kLayer;
}
/// Whether batches are subgraphs of GraphSAINT.
constexpr bool is_saint(SamplerKind sampler) {
  return sampler == SamplerKind::kSaintNode || sampler == SamplerKind::kSaintEdge ||
         sampler == SamplerKind::kSaintWalk;
}

/// Where mini-batches are drawn; the batches are the same bit for bit.
enum class SamplePlace : std::uint8_t {
  kAuto,    ///< on the device if it can and has enough memory, else on the host
  kHost,    ///< by threads of the host, which copy the batches to the device
  kDevice,  ///< on the CUDA device of the run, after copying structure and features to it
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
/// Every place with its name on the command line.
using SamplePlaces = TypeList<SampleAnywhere, SampleOnHost, SampleOnDevice>;

/// Training by mini-batches, as plain values. Flags, ranges and checkpoints derive from the list in
/// option_fields.h. An option that names samplers is an error if set for another one. Edges and
/// links take the sampler neighbor, and graphs neighbor with a batch_size alone; none of them takes
/// control_variates, balance_classes or kDevice.
struct SamplingOptions {
  SamplerKind sampler = SamplerKind::kNeighbor;  ///< how batches are drawn

  /// neighbor, labor, layer (required): seeds of a batch, >= 1: nodes, edges, links or graphs.
  std::optional<std::int64_t> batch_size = {};
  /// neighbor, labor (required, but empty for labels of graphs): neighbours drawn for a node, one
  /// number a layer of the model, input layer first; >= 0 (gcn, gat: >= 1), or -1: all.
  std::vector<std::int64_t> fanouts = {};
  /// layer (required; gcn and sage): nodes drawn for a layer, one number a layer of the model,
  /// input layer first; in [1, 2^31].
  std::vector<std::int64_t> layer_sizes = {};
  bool replace = false;  ///< neighbor: draw neighbours with replacement
  /// neighbor, with gcn or sage of two layers or more, on the CPU, in one process, not resumed:
  /// adds to the mean of the drawn neighbours a correction from stored activations of all (VR-GCN).
  bool control_variates = false;
  bool layer_dependency = false;  ///< labor: one random number a node for all layers of a batch
  bool drop_last = false;         ///< neighbor, labor, layer: leave out a last batch not full
  bool balance_classes = false;   ///< neighbor, labor, layer: seeds of every class equally often
  /// false (neighbor, labor, layer, cluster; not with balance_classes): every epoch takes seeds or
  /// parts in their order.
  bool shuffle = true;

  std::optional<std::int64_t> parts = {};            ///< cluster (required): of the partition, >= 1
  std::optional<std::int64_t> parts_per_batch = {};  ///< cluster: in [1, parts], 1 by default

  /// saint (required): nodes (saint-node), edges (saint-edge) or walks (saint-walk) drawn for a
  /// batch, in [1, 2^31].
  std::optional<std::int64_t> saint_budget = {};
  /// saint-walk: steps of a walk, in [1, 2^31], 2 by default.
  std::optional<std::int64_t> walk_length = {};
  /// saint: >= 1; by default the number of nodes divided by the nodes drawn for a batch.
  std::optional<std::int64_t> batches_per_epoch = {};

  /// kDevice: on CUDA, the sampler neighbor and no workers.
  SamplePlace sample_on = SamplePlace::kAuto;
  /// Threads that prepare batches, in [0, 256]; 0: the trainer's. By default 1 on the host, 0 if
  /// the device draws. With a number above 0, or with prefetch, kAuto means kHost.
  std::optional<std::int64_t> num_workers = {};
  /// Batches ready or in work for each worker, in [1, 1024], 2 by default; an error without workers
  /// (num_workers = 0, kDevice).
  std::optional<std::int64_t> prefetch = {};
  std::int64_t inference_batch_size = 4096;  ///< nodes of a batch of an evaluation, >= 1

  bool operator==(const SamplingOptions&) const = default;
};

/// "all", -1 or a number of at least 0. Throws InvalidArgument for another text.
MEZZO_API std::int64_t parse_fanout(std::string_view text);

/// Whether the device of the run draws the batches: as sampling.sample_on says; with kAuto if the
/// device is CUDA, the sampler is neighbor, no workers are set, and structure and features
/// (`needed_bytes`) take at most half of the device's `free_bytes`. options: checked, with
/// sampling. Throws InvalidArgument for kDevice if they take more than is free.
MEZZO_API bool draws_on_device(const TrainOptions& options, std::int64_t needed_bytes,
                               std::int64_t free_bytes);

/// Whether draws_on_device() depends on memory alone.
bool may_draw_on_device(const TrainOptions& options);

/// Part of check_options(): throws InvalidArgument that names the first option of sampling that is
/// out of range or contradicts another one or the model.
void check_sampling(const TrainOptions& options);

}  // namespace mezzo
