#include "mezzo/sampling/blocks/block_sampler.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/kernels/sampling.h"
#include "mezzo/sampling/blocks/device_sampling.h"
#include "mezzo/sampling/blocks/draw_hop.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo {
namespace {

using detail::DrawnEntries;
using detail::HopDraw;
using detail::kIdDtype;
using detail::SampledBatch;

HopDraw hop_draw(const DrawOptions& options, const BatchKey& key, std::int64_t hop_number) {
  const bool all = options.fanout == kAllNeighbors;
  const bool shared = options.draw == NeighborDraw::kLabor && options.layer_dependency;
  return {.count = {.fanout = all ? std::numeric_limits<std::int64_t>::max() : options.fanout,
                    .replace = options.replace},
          .key = {key.seed, detail::draw_stream(key, detail::DrawPurpose::kNeighbors,
                                                shared ? 0 : hop_number)}};
}

template <class T>
at::Tensor copy_of(const T* data, std::int64_t count, at::ScalarType dtype) {
  at::Tensor copy = at::empty({count}, dtype);
  if (count > 0) {
    std::memcpy(copy.mutable_data_ptr<T>(), data, static_cast<std::size_t>(count) * sizeof(T));
  }
  return copy;
}

/// values[nodes[i]]; both have the same id dtype.
at::Tensor gather_values(const at::Tensor& values, const at::Tensor& nodes) {
  if (!nodes.is_cpu()) return values.index_select(0, nodes);
  at::Tensor result = at::empty_like(nodes);
  detail::visit(detail::IdTypes{}, nodes.scalar_type(), [&]<class IdType>() {
    using Id = typename IdType::Type;
    kernels::gather<Id>(values.const_data_ptr<Id>(), nodes.const_data_ptr<Id>(), nodes.numel(),
                        result.mutable_data_ptr<Id>());
  });
  return result;
}

void check_draw(std::string_view operation, const DrawOptions& options, at::Device device) {
  MEZZO_CHECK(options.fanout >= 0 || options.fanout == kAllNeighbors,
              "{}: expected a fanout of at least 0, or -1 for all neighbours, got {}", operation,
              options.fanout);
  const bool labor = options.draw == NeighborDraw::kLabor;
  MEZZO_CHECK(
      !options.replace || (options.fanout >= 0 && options.fanout <= kLargestFanoutReplacing),
      "{}: expected a fanout in [0, 2^31) with replacement, got {}", operation, options.fanout);
  MEZZO_CHECK(!labor || !options.replace,
              "{}: expected replace = false with LABOR, which takes a neighbour at most once",
              operation);
  MEZZO_CHECK(labor || !options.layer_dependency,
              "{}: expected layer_dependency = false without LABOR", operation);
  MEZZO_CHECK(!labor || device.is_cpu(),
              "{}: expected a topology on the CPU for LABOR, which a GPU does not support, got one "
              "on {}",
              operation, device.str());
}

void check_on_cpu(std::string_view option, const at::Tensor& tensor, at::Device device) {
  MEZZO_CHECK(
      !tensor.defined() || device.is_cpu(),
      "{}: expected a topology on the CPU, because a GPU does not support them, got one on {}",
      option, device.str());
}

/// `weights` in edge-id order as float32 in the order of `rows`.
at::Tensor weights_in_row_order(const at::Tensor& weights, const Adjacency& rows) {
  const std::int64_t num_edges = rows.indices.numel();
  MEZZO_CHECK(weights.layout() == at::kStrided && weights.dim() == 1 &&
                  weights.size(0) == num_edges && at::isFloatingType(weights.scalar_type()) &&
                  weights.is_cpu(),
              "edge_weights: expected floating point numbers [{}] on the CPU, got {} on {}",
              num_edges, detail::describe(weights), weights.device().str());
  const at::Tensor by_edge = weights.detach().to(at::kFloat).contiguous();
  if (weights.scalar_type() == at::kDouble) {
    const at::Tensor underflows = by_edge.eq(0).logical_and_(weights.ne(0)).nonzero();
    MEZZO_CHECK(
        underflows.numel() == 0,
        "edge_weights: expected weights in the range of float32, got {}, which it rounds to 0, "
        "for edge {}",
        weights[underflows[0].item<std::int64_t>()].item<double>(),
        underflows[0].item<std::int64_t>());
  }
  const auto* weight = by_edge.const_data_ptr<float>();
  for (std::int64_t edge = 0; edge < num_edges; ++edge) {
    MEZZO_CHECK(std::isfinite(weight[edge]) && weight[edge] >= 0,
                "edge_weights: expected finite weights of at least 0, got {} for edge {}",
                weight[edge], edge);
  }
  // A copy: the caller may write to its own.
  return rows.edge_ids.defined() ? by_edge.index_select(0, rows.edge_ids) : by_edge.clone();
}

/// Assigns the first numbers of the batch to the seeds.
template <class Id>
void number_seeds(const at::Tensor& seeds, detail::NodeNumbers& numbers) {
  at::Tensor ids = seeds.to(kIdDtype<Id>, /*non_blocking=*/false, /*copy=*/true);
  auto* id = ids.mutable_data_ptr<Id>();
  numbers.add<Id>(id, ids.numel());
  if (numbers.size() == ids.numel()) return;
  const auto* first = numbers.nodes<Id>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    MEZZO_CHECK(id[i] == i, "sample: expected distinct seeds, got {} more than once", first[id[i]]);
  }
}

}  // namespace

NeighborSource::NeighborSource(const Topology& topology, NeighborType type,
                               const at::Tensor& edge_weights, const at::Tensor& node_ids)
    : topology_(topology), type_(type) {
  check_on_cpu("edge_weights", edge_weights, topology.device());
  check_on_cpu("node_ids", node_ids, topology.device());
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "sampling: expected a topology of one set of nodes, got {} sources and {} "
              "destinations",
              topology.num_src(), topology.num_dst());
  const c10::InferenceMode no_inference(false);
  const Adjacency& built = rows();
  if (edge_weights.defined()) weights_ = weights_in_row_order(edge_weights, built);
  if (!node_ids.defined()) return;
  MEZZO_CHECK(node_ids.is_cpu() && node_ids.scalar_type() == at::kLong && node_ids.dim() == 1 &&
                  node_ids.size(0) == num_nodes(),
              "node_ids: expected int64 [{}] on the CPU, got {} on {}", num_nodes(),
              detail::describe(node_ids), node_ids.device().str());
  node_ids_ = node_ids.contiguous();
}

const Adjacency& NeighborSource::rows() const {
  return type_ == NeighborType::kIn ? topology_.csc() : topology_.csr();
}

DrawnNeighbors NeighborSource::draw(const at::Tensor& nodes, const DrawOptions& options,
                                    const BatchKey& key, std::int64_t hop,
                                    Workspace& workspace) const {
  const at::Device device = topology_.device();
  check_draw("draw", options, device);
  MEZZO_CHECK(options.type == type_, "draw: expected the type of the source");
  MEZZO_CHECK(hop >= 0 && hop < 256, "draw: expected a hop in [0, 256), got {}", hop);
  const c10::InferenceMode no_inference(false);
  const at::Tensor node_ids = detail::check_vector("draw", "nodes", nodes);
  MEZZO_CHECK(node_ids.device() == device, "draw: expected nodes on {}, got {}", device.str(),
              node_ids.device().str());
  const at::Tensor& edge_ids = rows().edge_ids;
  const HopDraw draw = hop_draw(options, key, hop);
  if (!device.is_cpu()) {
    at::Tensor row_lengths;
    const DrawnEntries drawn = detail::draw_on_device(detail::cuda_sampling_kernels(), rows(),
                                                      node_ids, draw, row_lengths);
    return {drawn.offsets, drawn.neighbors,
            edge_ids.defined() ? edge_ids.index_select(0, drawn.entries) : drawn.entries,
            at::Tensor()};
  }
  DrawnNeighbors result;
  detail::visit(detail::IdTypes{}, topology_.id_dtype(), [&]<class IdType>() {
    using Id = typename IdType::Type;
    const at::Tensor list = node_ids.to(IdType::kind);
    DrawnEntries drawn =
        detail::draw_hop<Id>(*this, list.const_data_ptr<Id>(), list.numel(),
                             options.draw == NeighborDraw::kLabor, draw, workspace.state());
    if (edge_ids.defined()) {
      auto* edges = drawn.entries.mutable_data_ptr<Id>();
      kernels::gather<Id>(edge_ids.const_data_ptr<Id>(), edges, drawn.entries.numel(), edges);
    }
    result = {drawn.offsets, drawn.neighbors, drawn.entries, drawn.weights};
  });
  return result;
}

BlockSampler::BlockSampler(const Topology& topology, Options options)
    : options_(std::move(options)),
      source_(topology, NeighborType::kIn, options_.edge_weights, options_.node_ids) {
  MEZZO_CHECK(!options_.fanouts.empty() && options_.fanouts.size() <= 256,
              "fanouts: expected 1 to 256 of them, got {}", options_.fanouts.size());
  for (std::int64_t layer = 0; layer < num_hops(); ++layer) {
    check_draw("BlockSampler", draw_options(layer), topology.device());
  }
  options_.edge_weights.reset();  // the source has its own copy
  options_.node_ids.reset();
  const c10::InferenceMode no_inference(false);
  if (!options_.parent_degrees) return;
  const at::Tensor* parent_in = topology.parent_in_degrees();
  const at::Tensor* parent_out = topology.parent_out_degrees();
  const auto as_ids = [&](const at::Tensor& degrees) {
    return degrees.to(topology.id_dtype()).contiguous();
  };
  out_degrees_ = as_ids(parent_out != nullptr ? *parent_out : topology.out_degrees());
  if (parent_in != nullptr) in_degrees_ = as_ids(*parent_in);
}

DrawOptions BlockSampler::draw_options(std::int64_t layer) const {
  return {.draw = options_.draw,
          .fanout = options_.fanouts[static_cast<std::size_t>(layer)],
          .replace = options_.replace,
          .layer_dependency = options_.layer_dependency};
}

Blocks BlockSampler::sample(const at::Tensor& seeds) const {
  const auto seed = at::empty({}, at::kLong).random_().item<std::int64_t>();
  return sample(seeds, {.seed = static_cast<std::uint64_t>(seed)});
}

Blocks BlockSampler::sample(const at::Tensor& seeds, const BatchKey& key) const {
  Workspace workspace;
  return sample(seeds, key, workspace);
}

Blocks BlockSampler::sample(const at::Tensor& seeds, const BatchKey& key,
                            Workspace& workspace) const {
  const at::Device device = source_.topology().device();
  const at::Tensor seed_ids = detail::check_vector("sample", "seeds", seeds);
  MEZZO_CHECK(seed_ids.is_cpu() || seed_ids.device() == device,
              "sample: expected seeds on {}, got {}",
              device.is_cpu() ? "the CPU" : "the CPU or " + device.str(), seed_ids.device().str());
  detail::check_range("sample", "seeds", seed_ids, source_.num_nodes());
  const c10::InferenceMode no_inference(false);
  if (!device.is_cpu()) {
    std::vector<HopDraw> hops;
    for (std::int64_t hop = 0; hop < num_hops(); ++hop) {
      hops.push_back(hop_draw(draw_options(num_hops() - 1 - hop), key, hop));
    }
    return blocks_of(detail::sample_on_device(detail::cuda_sampling_kernels(), source_.rows(),
                                              seed_ids, hops, workspace));
  }
  SampledBatch batch;
  detail::visit(detail::IdTypes{}, source_.topology().id_dtype(), [&]<class Id>() {
    batch = sample_as<typename Id::Type>(seed_ids, key, workspace);
  });
  return blocks_of(batch);
}

template <class Id>
SampledBatch BlockSampler::sample_as(const at::Tensor& seeds, const BatchKey& key,
                                     Workspace& workspace) const {
  Workspace::State& state = workspace.state();
  detail::NodeNumbers& numbers = state.numbers;
  numbers.begin(source_.num_nodes());
  number_seeds<Id>(seeds, numbers);
  SampledBatch batch;
  for (std::int64_t hop = 0; hop < num_hops(); ++hop) {
    const std::int64_t num_dst = numbers.size();
    const DrawOptions options = draw_options(num_hops() - 1 - hop);
    DrawnEntries drawn = detail::draw_hop<Id>(source_, numbers.nodes<Id>(), num_dst,
                                              options.draw == NeighborDraw::kLabor,
                                              hop_draw(options, key, hop), state);
    numbers.add<Id>(drawn.neighbors.mutable_data_ptr<Id>(), drawn.neighbors.numel());
    batch.layers.push_back({std::move(drawn), num_dst, numbers.size()});
  }
  batch.nodes = copy_of(numbers.nodes<Id>(), numbers.size(), kIdDtype<Id>);
  if (options_.parent_degrees && !in_degrees_.defined()) {
    batch.row_lengths =
        copy_of(state.degrees.data<std::int64_t>(), batch.layers.back().num_dst, at::kLong);
  }
  return batch;
}

Blocks BlockSampler::blocks_of(const SampledBatch& batch) const {
  at::Tensor in_degrees, out_degrees;
  if (options_.parent_degrees) {
    const at::Tensor receivers = batch.nodes.narrow(0, 0, batch.layers.back().num_dst);
    in_degrees = in_degrees_.defined() ? gather_values(in_degrees_, receivers)
                                       : batch.row_lengths.to(batch.nodes.scalar_type());
    out_degrees = gather_values(out_degrees_, batch.nodes);
  }
  Blocks blocks;
  blocks.reserve(batch.layers.size());
  for (auto layer = batch.layers.rbegin(); layer != batch.layers.rend(); ++layer) {
    const DrawnEntries& drawn = layer->drawn;
    Topology topology = detail::topology_from_rows({drawn.offsets, drawn.neighbors, at::Tensor()},
                                                   layer->num_src, layer->num_dst);
    if (options_.parent_degrees) {
      topology = topology.with_parent_degrees(in_degrees.narrow(0, 0, layer->num_dst),
                                              out_degrees.narrow(0, 0, layer->num_src));
    }
    blocks.push_back(Block(std::move(topology), batch.nodes.narrow(0, 0, layer->num_src),
                           drawn.entries, source_.rows().edge_ids));
    if (drawn.weights.defined()) blocks.back().edata()["edge_weights"] = drawn.weights;
  }
  return blocks;
}

}  // namespace mezzo
