#include "mezzo/sampling/blocks/block_loader.h"

#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/sampling/blocks/layer_blocks.h"
#include "mezzo/sampling/loader_support.h"

namespace mezzo {
namespace {

constexpr std::string_view kBlockLoaderName = "BlockLoader";

const at::Tensor& column_of(const Columns& columns, std::string_view option,
                            const std::string& name) {
  const auto column = columns.find(name);
  if (column != columns.end()) return column->second;
  std::vector<std::string_view> names;
  for (const auto& [known, rows] : columns) names.push_back(known);
  detail::raise<InvalidArgument>(
      "Batch::{}: expected a column that the loader gathers ({}: {}), got '{}'", option, option,
      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), name);
}

/// The column that the option names; undefined if the option is empty.
at::Tensor named_column(const Frame& frame, std::string_view option, std::string_view rows,
                        const std::string& name) {
  if (name.empty()) return {};
  MEZZO_CHECK(frame.contains(name), "{}: expected {} to name a column of the {} ({}), got '{}'",
              kBlockLoaderName, option, rows, fmt::join(frame.names(), ", "), name);
  return frame.at(name);
}

void move(Batch& batch, at::Device device) {
  for (Block& block : batch.blocks) block = block.to(device);
  batch.input_nodes = batch.input_nodes.to(device);
  batch.output_nodes = batch.output_nodes.to(device);
  if (batch.output_counts.defined()) batch.output_counts = batch.output_counts.to(device);
  for (Columns* columns : {&batch.feature_columns, &batch.label_columns}) {
    for (auto& [name, column] : *columns) column = column.to(device);
  }
}

/// The inputs of a loader's batches. Immutable.
struct BlockPlan {
  std::optional<BlockSampler> sampler;        ///< with fanouts
  std::optional<detail::LayerBlocks> layers;  ///< with layer_sizes
  detail::SeedOrder order;
  Columns features, labels;
  at::Device graph_device, device;
  std::uint64_t seed;
  bool prepare_backward;

  Blocks sample(const at::Tensor& nodes, const BatchKey& key, Workspace& workspace) const {
    return layers ? layers->sample(nodes, key, workspace) : sampler->sample(nodes, key, workspace);
  }

  Batch make(const detail::EpochSeeds& seeds, const BatchKey& key, Workspace& workspace,
             PipelineStatistics& statistics) const {
    detail::Stopwatch watch;
    Batch batch;
    batch.index = key.batch;
    batch.output_nodes = seeds.batch(key.batch).to(graph_device);
    batch.output_counts = seeds.counts(key.batch);
    batch.blocks = sample(batch.output_nodes, key, workspace);
    batch.input_nodes = batch.blocks.front().src_nodes();
    for (const Block& block : batch.blocks) statistics.sampled_edges += block.num_edges();
    statistics.sampled_nodes = batch.input_nodes.numel();
    statistics.sample_seconds = watch.lap();
    batch.feature_columns = detail::gather_columns(features, batch.input_nodes, device);
    batch.label_columns = detail::gather_columns(labels, batch.output_nodes, device);
    statistics.gather_seconds = watch.lap();
    move(batch, device);
    for (const Block& block : batch.blocks) {
      detail::prepare_rows(block.topology(), prepare_backward);
    }
    statistics.transfer_seconds = watch.lap();
    return batch;
  }
};

/// `ids` on the CPU, which orders the seeds, if they are on the graph's device.
at::Tensor host_copy(const at::Tensor& ids, const Graph& graph) {
  return ids.defined() && ids.device() == graph.device() ? ids.cpu() : ids;
}

detail::LayerBlocks layer_blocks(const Graph& graph, const BlockLoaderOptions& options) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU for layer_sizes, got {}",
              kBlockLoaderName, graph.device().str());
  MEZZO_CHECK(options.fanouts.empty(), "{}: expected fanouts or layer_sizes, got both",
              kBlockLoaderName);
  const bool draws_otherwise = options.draw != NeighborDraw::kNeighbor || options.replace ||
                               options.layer_dependency || !options.edge_weights.empty() ||
                               !options.node_ids.empty();
  MEZZO_CHECK(!draws_otherwise,
              "{}: expected the defaults of draw, replace, layer_dependency, edge_weights and "
              "node_ids with layer_sizes, got another value",
              kBlockLoaderName);
  return detail::LayerBlocks(graph.topology(), options.layer_sizes, options.parent_degrees);
}

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

BlockPlan block_plan(const Graph& graph, const at::Tensor& seeds,
                     const BlockLoaderOptions& options) {
  detail::check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  const at::Device device = detail::resolve_device(kBlockLoaderName, options.device);
  MEZZO_CHECK(graph.device().is_cpu() || graph.device() == device,
              "{}: expected device {}, as the graph's, or a graph on the CPU, got {}",
              kBlockLoaderName, graph.device().str(), device.str());
  MEZZO_CHECK(graph.device().is_cpu() || options.num_workers == 0,
              "{}: expected num_workers 0 with a graph on {}, got {}", kBlockLoaderName,
              graph.device().str(), options.num_workers);
  Columns features =
      detail::select_columns(kBlockLoaderName, "features", graph.ndata(), options.features);
  Columns labels =
      detail::select_columns(kBlockLoaderName, "labels", graph.ndata(), options.labels);
  detail::SeedOrder order(
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
  return {std::move(sampler),      std::move(layers), std::move(order), std::move(features),
          std::move(labels),       graph.device(),    device,           options.seed,
          options.prepare_backward};
}

}  // namespace

const at::Tensor& Batch::features(const std::string& column) const {
  return column_of(feature_columns, "features", column);
}

const at::Tensor& Batch::labels(const std::string& column) const {
  return column_of(label_columns, "labels", column);
}

BlockLoader::BlockLoader(const Graph& graph, const at::Tensor& seeds, BlockLoaderOptions options)
    : Batches(detail::seed_epochs<Batch>(block_plan(graph, seeds, options)),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
