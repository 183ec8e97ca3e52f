#include "mezzo/sampling/node_flow/flow_epochs.h"

#include <utility>

#include "mezzo/sampling/node_flow/node_flow_state.h"

namespace mezzo::detail {
namespace {

struct FlowPlan {
  SeedOrder seeds;
  std::uint64_t seed;
  DrawFlow draw;
  Columns features;
  std::shared_ptr<PipelineCounters> counters;
};

class FlowEpoch final : public Epoch<NodeFlow> {
 public:
  FlowEpoch(std::shared_ptr<const FlowPlan> plan, std::int64_t number)
      : plan_(std::move(plan)), seeds_(plan_->seeds.epoch(number)), number_(number) {}

  std::int64_t num_batches() const override { return seeds_->num_batches(); }

  NodeFlow make(std::int64_t index, Workspace& workspace) const override {
    Stopwatch watch;
    NodeFlow flow = plan_->draw(seeds_->batch(index), {plan_->seed, number_, index}, workspace);
    PipelineStatistics took;
    took.sampled_edges = flow.num_edges();
    took.sampled_nodes = flow.layer_size(0);
    took.sample_seconds = watch.lap();
    FlowRows::gather_ahead(flow, plan_->features);
    took.gather_seconds = watch.lap();
    plan_->counters->add(took);
    return flow;
  }

 private:
  std::shared_ptr<const FlowPlan> plan_;
  std::shared_ptr<const EpochSeeds> seeds_;
  std::int64_t number_;
};

}  // namespace

Batches<NodeFlow>::MakeEpoch flow_epochs(SeedOrder seeds, std::uint64_t seed, DrawFlow draw,
                                         Columns features,
                                         std::shared_ptr<PipelineCounters> counters) {
  auto plan = std::make_shared<const FlowPlan>(
      FlowPlan{std::move(seeds), seed, std::move(draw), std::move(features), std::move(counters)});
  return [plan = std::move(plan)](std::int64_t number) {
    return std::make_shared<const FlowEpoch>(plan, number);
  };
}

}  // namespace mezzo::detail
