#include "mezzo/sampling/blocks/block_loader.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/sampling/blocks/layer_blocks.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/seed_order.h"

namespace mezzo {
namespace {

constexpr std::string_view kBlockLoaderName = "BlockLoader";

const at::Tensor& column_of(const Columns& columns, std::string_view option,
                            const std::string& name) {
  const auto found = columns.find(name);
  if (found != columns.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [known, column] : columns) names.push_back(known);
  detail::raise<InvalidArgument>(
      "Batch::{}: expected a column that the loader gathers ({}: {}), got '{}'", option, option,
      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), name);
}

/// The column that an option names, if it names one.
at::Tensor named_column(const Frame& frame, std::string_view option, std::string_view rows,
                        const std::string& name) {
  if (name.empty()) return {};
  MEZZO_CHECK(frame.contains(name), "{}: expected {} to name a column of the {} ({}), got '{}'",
              kBlockLoaderName, option, rows, fmt::join(frame.names(), ", "), name);
  return frame.at(name);
}

/// What every batch of a loader is made from. Immutable.
struct BlockPlan {
  std::optional<BlockSampler> sampler;        ///< of fanouts
  std::optional<detail::LayerBlocks> layers;  ///< of layer_sizes
  SeedOrder order;
  Columns features, labels;
  at::Device graph_device, device;
  std::uint64_t seed;
  bool prepare_backward;
  std::shared_ptr<PipelineCounters> counters;

  Blocks sample(const at::Tensor& nodes, const BatchKey& key, Workspace& workspace) const {
    return layers ? layers->sample(nodes, key, workspace) : sampler->sample(nodes, key, workspace);
  }
};

void move(Batch& batch, at::Device device) {
  for (Block& block : batch.blocks) block = block.to(device);
  batch.input_nodes = batch.input_nodes.to(device);
  batch.output_nodes = batch.output_nodes.to(device);
  if (batch.output_counts.defined()) batch.output_counts = batch.output_counts.to(device);
  for (Columns* columns : {&batch.feature_columns, &batch.label_columns}) {
    for (auto& [name, column] : *columns) column = column.to(device);
  }
}

class BlockEpoch : public Epoch<Batch> {
 public:
  BlockEpoch(std::shared_ptr<const BlockPlan> plan, std::int64_t number)
      : plan_(std::move(plan)), number_(number), seeds_(plan_->order.epoch(number)) {}

  std::int64_t num_batches() const override { return seeds_->num_batches(); }

  Batch make(std::int64_t index, Workspace& workspace) const override {
    detail::Stopwatch watch;
    PipelineStatistics took;
    Batch batch;
    batch.index = index;
    batch.output_nodes = seeds_->batch(index).to(plan_->graph_device);
    batch.output_counts = seeds_->counts(index);
    batch.blocks = plan_->sample(batch.output_nodes, {plan_->seed, number_, index}, workspace);
    batch.input_nodes = batch.blocks.front().src_nodes();
    for (const Block& block : batch.blocks) took.sampled_edges += block.num_edges();
    took.sampled_nodes = batch.input_nodes.numel();
    took.sample_seconds = watch.lap();
    batch.feature_columns =
        detail::gathered_columns(plan_->features, batch.input_nodes, plan_->device);
    batch.label_columns =
        detail::gathered_columns(plan_->labels, batch.output_nodes, plan_->device);
    took.gather_seconds = watch.lap();
    move(batch, plan_->device);
    for (const Block& block : batch.blocks) {
      detail::prepare_rows(block.topology(), plan_->prepare_backward);
    }
    took.transfer_seconds = watch.lap();
    plan_->counters->add(took);
    return batch;
  }

 private:
  std::shared_ptr<const BlockPlan> plan_;
  std::int64_t number_;
  std::shared_ptr<const EpochSeeds> seeds_;
};

/// `ids`, of which those on the graph's device come to the CPU, where seeds are ordered.
at::Tensor host_copy(const at::Tensor& ids, const Graph& graph) {
  return ids.defined() && ids.device() == graph.device() ? ids.cpu() : ids;
}

/// Throws InvalidArgument for options of other draws.
detail::LayerBlocks layer_blocks(const Graph& graph, const BlockLoaderOptions& options) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU for layer_sizes, got {}",
              kBlockLoaderName, graph.device().str());
  MEZZO_CHECK(options.fanouts.empty(), "{}: expected fanouts or layer_sizes, got both",
              kBlockLoaderName);
  const bool draws_otherwise = options.draw != NeighborDraw::kNeighbor || options.replace ||
                               options.layer_dependency || !options.edge_weights.empty() ||
                               !options.node_ids.empty();
  MEZZO_CHECK(!draws_otherwise,
              "{}: expected draw, replace, layer_dependency, edge_weights and node_ids as they are "
              "by default with layer_sizes, got another one",
              kBlockLoaderName);
  return detail::LayerBlocks(graph.topology(), options.layer_sizes, options.parent_degrees);
}

/// Draws by fan-outs.
BlockSampler block_sampler(const Graph& graph, const BlockLoaderOptions& options) {
  return BlockSampler(
      graph.topology(),
      {.fanouts = options.fanouts,
       .draw = options.draw,
       .replace = options.replace,
       .layer_dependency = options.layer_dependency,
       .edge_weights = named_column(graph.edata(), "edge_weights", "edges", options.edge_weights),
       .node_ids = named_column(graph.ndata(), "node_ids", "nodes", options.node_ids),
       .parent_degrees = options.parent_degrees});
}

std::shared_ptr<const BlockPlan> plan_of(const Graph& graph, const at::Tensor& seeds,
                                         const BlockLoaderOptions& options,
                                         const std::shared_ptr<PipelineCounters>& counters) {
  check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  const at::Device device = detail::resolve_device(kBlockLoaderName, options.device);
  MEZZO_CHECK(graph.device().is_cpu() || graph.device() == device,
              "{}: expected device {}, as the graph's, or a graph on the CPU, got {}",
              kBlockLoaderName, graph.device().str(), device.str());
  MEZZO_CHECK(graph.device().is_cpu() || options.num_workers == 0,
              "{}: expected num_workers 0 with a graph on {}, where the caller draws, got {}",
              kBlockLoaderName, graph.device().str(), options.num_workers);
  Columns features =
      detail::chosen_columns(kBlockLoaderName, "features", graph.ndata(), options.features);
  Columns labels =
      detail::chosen_columns(kBlockLoaderName, "labels", graph.ndata(), options.labels);
  SeedOrder order(
      kBlockLoaderName, host_copy(seeds, graph), graph.num_nodes(),
      {.batch_size = options.batch_size,
       .shuffle = options.shuffle,
       .drop_last = options.drop_last,
       .seed = options.seed,
       .weights = options.seed_weights,
       .classes = host_copy(named_column(graph.ndata(), "balance_by", "nodes", options.balance_by),
                            graph)});
  std::optional<BlockSampler> sampler;
  std::optional<detail::LayerBlocks> layers;
  if (options.layer_sizes.empty()) {
    sampler.emplace(block_sampler(graph, options));
  } else {
    layers.emplace(layer_blocks(graph, options));
  }
  return std::make_shared<const BlockPlan>(BlockPlan{
      std::move(sampler), std::move(layers), std::move(order), std::move(features),
      std::move(labels), graph.device(), device, options.seed, options.prepare_backward, counters});
}

Batches<Batch>::MakeEpoch epochs_of(std::shared_ptr<const BlockPlan> plan) {
  return [plan = std::move(plan)](std::int64_t number) -> std::shared_ptr<const Epoch<Batch>> {
    return std::make_shared<const BlockEpoch>(plan, number);
  };
}

}  // namespace

const at::Tensor& Batch::features(const std::string& column) const {
  return column_of(feature_columns, "features", column);
}

const at::Tensor& Batch::labels(const std::string& column) const {
  return column_of(label_columns, "labels", column);
}

BlockLoader::BlockLoader(const Graph& graph, const at::Tensor& seeds, BlockLoaderOptions options)
    : BlockLoader(graph, seeds, options, std::make_shared<PipelineCounters>()) {}

BlockLoader::BlockLoader(const Graph& graph, const at::Tensor& seeds,
                         const BlockLoaderOptions& options,
                         const std::shared_ptr<PipelineCounters>& counters)
    : Batches(epochs_of(plan_of(graph, seeds, options, counters)),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}, counters) {}

}  // namespace mezzo
