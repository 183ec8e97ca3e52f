#include "mezzo/train/agreement.h"

#include <string>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

/// What all ranks have to agree on beside the data. Where files lie is each one's own.
std::string agreement(TrainOptions options) {
  options.device = at::Device(options.device.type());
  options.dataset.clear();
  return fmt::format("{} epochs {} patience {} resume {} capture {}", recipe_to_json(options),
                     options.epochs, options.patience.value_or(0), !options.resume.empty(),
                     options.capture);
}

/// Each process has another part, together all of them. Fails on all processes or on none.
void check_parts(const Dataset& dataset, const TrainOptions& options, Ranks& ranks) {
  const DatasetPart& part = *dataset.part;
  const at::Tensor own = part.own_mask;
  MEZZO_CHECK(part.num_parts == ranks.world_size(),
              "train: the data are cut into {} parts, and there are {} processes", part.num_parts,
              ranks.world_size());
  MEZZO_CHECK(ranks.largest(part.index == ranks.rank() ? 0 : 1) == 0,
              "train: a process has another part of the data than that of its rank");
  const auto nodes = static_cast<std::int64_t>(
      ranks.sums({static_cast<double>(own.sum().item<std::int64_t>())})[0]);
  MEZZO_CHECK(nodes == part.num_nodes,
              "train: the parts of the data hold {} nodes together, expected {}", nodes,
              part.num_nodes);
  MEZZO_CHECK(dataset.metric == Metric::kAccuracy,
              "train: {}, the metric of {}, is not computed over parts; train on the whole",
              metric_name(dataset.metric), dataset.name);
  const bool idle = !dataset.split(options.split_index).train.any().item<bool>();
  const auto idle_rank =
      static_cast<std::int64_t>(ranks.largest(idle ? static_cast<double>(ranks.rank()) : -1));
  MEZZO_CHECK(idle_rank < 0, "train: part {} of the data has no training nodes; use fewer parts",
              idle_rank);
}

}  // namespace

void check_group(const Dataset& dataset, const TrainOptions& options, Ranks& ranks) {
  ranks.check_same("the options", agreement(options));
  MEZZO_CHECK(!options.capture, "capture: a step is captured in one process, not in {}",
              ranks.world_size());
  ranks.check_same_data(dataset);
  MEZZO_CHECK(options.sampling && draws_blocks(options.sampling->sampler),
              "train: {} processes train by mini-batches of the samplers neighbor and labor: set "
              "batch-size and fanout, or train in one process",
              ranks.world_size());
  if (dataset.part) check_parts(dataset, options, ranks);
}

}  // namespace mezzo
