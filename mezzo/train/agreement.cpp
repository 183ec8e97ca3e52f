#include "mezzo/train/agreement.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"

namespace mezzo {
namespace {

/// The options that must be equal on all ranks. Paths may differ.
std::string agreement(TrainOptions options) {
  options.device = at::Device(options.device.type());
  options.dataset.clear();
  options.csv = {};
  return fmt::format("{} epochs {} patience {} resume {} init {} capture {}",
                     config_to_json(options), options.epochs, options.patience.value_or(0),
                     !options.resume.empty(), !options.init.empty(), options.capture);
}

/// A 20-bit hash of a node id, so that a double holds the sum exactly. Two different sets of equal
/// size hardly ever have equal sums.
std::int64_t bits_of_node(std::int64_t node) {
  return static_cast<std::int64_t>(random_bits(0, 0, static_cast<std::uint64_t>(node)) >> 44);
}

/// Checks that each node is owned by exactly one process; the count alone does not show this.
void check_own_nodes(const DatasetPart& part, Ranks& ranks) {
  const at::Tensor own = part.node_ids.masked_select(part.own_mask).contiguous();
  const auto* ids = own.const_data_ptr<std::int64_t>();
  std::int64_t bits = 0, bits_of_all = 0;
  for (std::int64_t i = 0; i < own.numel(); ++i) bits += bits_of_node(ids[i]);
  for (std::int64_t node = 0; node < part.num_nodes; ++node) bits_of_all += bits_of_node(node);
  const std::vector<double> sums =
      ranks.sums({static_cast<double>(own.numel()), static_cast<double>(bits)});
  const auto nodes = static_cast<std::int64_t>(sums[0]);
  MEZZO_CHECK(nodes == part.num_nodes,
              "train: the parts of the data hold {} nodes in all, expected {}", nodes,
              part.num_nodes);
  MEZZO_CHECK(static_cast<std::int64_t>(sums[1]) == bits_of_all,
              "train: the parts of the data are from different partitions: some nodes belong to "
              "several parts, others to none");
}

/// Checks that rank i has part i of all parts. Fails on all processes or on none.
void check_parts(const Dataset& dataset, const TrainOptions& options, Ranks& ranks) {
  const DatasetPart& part = *dataset.part;
  MEZZO_CHECK(part.num_parts == ranks.world_size(),
              "train: expected one process for each of the {} parts of the data, got {}",
              part.num_parts, ranks.world_size());
  MEZZO_CHECK(ranks.largest(part.index == ranks.rank() ? 0 : 1) == 0,
              "train: expected part i of the data on rank i, got another on some rank");
  check_own_nodes(part, ranks);
  MEZZO_CHECK(
      dataset.metric == Metric::kAccuracy,
      "train: {}, the metric of {}, is not computed over parts; train on the whole data set",
      metric_name(dataset.metric), dataset.name);
  const bool idle = !dataset.split(options.split_index).train.any().item<bool>();
  const auto idle_rank =
      static_cast<std::int64_t>(ranks.largest(idle ? static_cast<double>(ranks.rank()) : -1));
  MEZZO_CHECK(idle_rank < 0, "train: part {} of the data has no training nodes; use fewer parts",
              idle_rank);
}

}  // namespace

void check_group(const Dataset& dataset, const TrainOptions& options, Ranks& ranks) {
  if (ranks.alone()) {
    MEZZO_CHECK(
        options.gradient_traffic == dist::GradientTraffic::kFloat32 || !options.resume.empty(),
        "gradient-traffic: expected the default with one process, which sends no gradients");
    return;
  }
  ranks.check_same("the options", agreement(options));
  MEZZO_CHECK(!options.capture, "capture: a step is captured in one process, not in {}",
              ranks.world_size());
  ranks.check_same_data(dataset);
  MEZZO_CHECK(
      options.sampling && draws_blocks(options.sampling->sampler),
      "train: {} processes train by mini-batches of the samplers neighbor, labor and layer: "
      "set {}, or train in one process",
      ranks.world_size(),
      dataset.target == TaskTarget::kGraph ? "batch-size" : "batch-size and fanout or layer-sizes");
  MEZZO_CHECK(!options.sampling->control_variates,
              "control-variates: expected one process, since processes do not share stored "
              "activations, got {}",
              ranks.world_size());
  if (dataset.part) check_parts(dataset, options, ranks);
}

}  // namespace mezzo
