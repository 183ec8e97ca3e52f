#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/frame.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/seed_order.h"

/// Shared by the loaders. Internal to sampling; not exported.
namespace mezzo::detail {

/// The columns `names` of `nodes`. operation: the prefix of errors; option: the name of the
/// loader's option. Throws InvalidArgument for a missing column and for a layout other than dense
/// or, for a matrix, sparse CSR.
Columns select_columns(std::string_view operation, std::string_view option, const Frame& nodes,
                       const std::vector<std::string>& names);

/// The rows `ids` of each column; see gather_rows. If they go to a CUDA `device` next, rows of
/// columns on the CPU are in pinned memory.
Columns gather_columns(const Columns& columns, const at::Tensor& ids, at::Device device);

/// Builds the topology's rows by destination for the layers and, if `backward`, the rows by source
/// for the gradients.
void prepare_rows(const Topology& topology, bool backward);

/// The degrees of a topology's nodes in the whole graph, if it is a part of one, else its own.
struct ParentDegrees {
  at::Tensor in, out;  ///< int32 or int64 [num_nodes], or undefined
};
ParentDegrees parent_degrees_of(const Topology& topology);

/// Times stages one after another.
class Stopwatch {
 public:
  /// Seconds since the last lap, or since the start.
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

/// A pass over the seeds of a Plan: it has `order` (SeedOrder), `seed`, and make(seeds, key,
/// workspace, statistics), which several threads call.
template <class Item, class Plan>
class SeedEpoch final : public Epoch<Item> {
 public:
  SeedEpoch(std::shared_ptr<const Plan> plan, std::int64_t number)
      : plan_(std::move(plan)), number_(number), seeds_(plan_->order.epoch(number)) {}

  std::int64_t num_batches() const override { return seeds_->num_batches(); }
  Item make(std::int64_t index, Workspace& workspace,
            PipelineStatistics& statistics) const override {
    return plan_->make(*seeds_, BatchKey{plan_->seed, number_, index}, workspace, statistics);
  }

 private:
  std::shared_ptr<const Plan> plan_;
  std::int64_t number_;
  std::shared_ptr<const EpochSeeds> seeds_;
};

/// The epochs of a loader with the batches of `plan`.
template <class Item, class Plan>
typename Batches<Item>::MakeEpoch seed_epochs(Plan plan) {
  return [shared = std::make_shared<const Plan>(std::move(plan))](std::int64_t number) {
    return std::make_shared<const SeedEpoch<Item, Plan>>(shared, number);
  };
}

}  // namespace mezzo::detail
