#include "mezzo/train/agreement.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"

namespace mezzo {
namespace {

/// The options that must be equal on all processes. Paths may differ.
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
void check_own_nodes(const DatasetPart& part, Processes& processes) {
  const at::Tensor own = part.node_ids.masked_select(part.own_mask).contiguous();
  const auto* ids = own.const_data_ptr<std::int64_t>();
  std::int64_t bits = 0, bits_of_all = 0;
  for (std::int64_t i = 0; i < own.numel(); ++i) bits += bits_of_node(ids[i]);
  for (std::int64_t node = 0; node < part.num_nodes; ++node) bits_of_all += bits_of_node(node);
  const std::vector<double> sums =
      processes.sums({static_cast<double>(own.numel()), static_cast<double>(bits)});
  const auto nodes = static_cast<std::int64_t>(sums[0]);
  MEZZO_CHECK(nodes == part.num_nodes,
              "train: the parts of the data hold {} nodes in all, expected {}", nodes,
              part.num_nodes);
  MEZZO_CHECK(static_cast<std::int64_t>(sums[1]) == bits_of_all,
              "train: the parts of the data are from different partitions: some nodes belong to "
              "several parts, others to none");
}

/// Checks that process i has part i of all parts. Fails on all processes or on none.
void check_parts(const Dataset& dataset, const TrainOptions& options, Processes& processes) {
  const DatasetPart& part = *dataset.part;
  MEZZO_CHECK(part.num_parts == processes.world_size(),
              "train: expected one process for each of the {} parts of the data, got {}",
              part.num_parts, processes.world_size());
  MEZZO_CHECK(processes.largest(part.index == processes.index() ? 0 : 1) == 0,
              "train: expected part i of the data on rank i, got another on some rank");
  check_own_nodes(part, processes);
  MEZZO_CHECK(
      dataset.metric == Metric::kAccuracy,
      "train: {}, the metric of {}, is not computed over parts; train on the whole data set",
      metric_name(dataset.metric), dataset.name);
  const bool idle = !dataset.split(options.split_index).train.any().item<bool>();
  const auto idle_part = static_cast<std::int64_t>(
      processes.largest(idle ? static_cast<double>(processes.index()) : -1));
  MEZZO_CHECK(idle_part < 0, "train: part {} of the data has no training nodes; use fewer parts",
              idle_part);
}

}  // namespace

void check_group(const Dataset& dataset, const TrainOptions& options, Processes& processes) {
  if (processes.alone()) {
    MEZZO_CHECK(
        options.gradient_traffic == dist::GradientTraffic::kFloat32 || !options.resume.empty(),
        "gradient-traffic: expected the default with one process, which sends no gradients");
    return;
  }
  processes.check_same("the options", agreement(options));
  MEZZO_CHECK(!options.capture, "capture: a step is captured in one process, not in {}",
              processes.world_size());
  processes.check_same_data(dataset);
  MEZZO_CHECK(
      options.sampling && draws_blocks(options.sampling->sampler),
      "train: {} processes train by mini-batches of the samplers neighbor, labor and layer: "
      "set {}, or train in one process",
      processes.world_size(),
      dataset.target == TaskTarget::kGraph ? "batch-size" : "batch-size and fanout or layer-sizes");
  MEZZO_CHECK(!options.sampling->control_variates,
              "control-variates: expected one process, since processes do not share stored "
              "activations, got {}",
              processes.world_size());
  if (dataset.part) check_parts(dataset, options, processes);
}

}  // namespace mezzo
