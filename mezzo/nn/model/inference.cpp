#include "mezzo/nn/model/inference.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/model/evaluation_mode.h"
#include "mezzo/sampling/gather.h"

namespace mezzo {
namespace {

constexpr auto kInferenceName = "inference";

at::Tensor rows_of_nodes(const at::Tensor& x, const at::Tensor& nodes) {
  if (x.layout() == at::kSparseCsr && x.is_cpu()) return gather_rows(x, nodes.cpu());
  return x.index_select(0, nodes.to(x.device()));
}

/// All edges into a range of nodes.
struct Part {
  Topology topology;
  at::Tensor src_nodes;  // int64 [num_src], the range first
  at::Tensor edge_rows;  // of the edges of the part, or undefined
};

/// Cuts a graph into parts.
class Parts {
 public:
  Parts(const Topology& graph, const at::Tensor& edge_rows)
      : graph_(graph.to(at::kCPU)),
        edge_rows_(by_destination(graph_, edge_rows)),
        in_degrees_(degrees(graph_.parent_in_degrees(), graph_.in_degrees())),
        out_degrees_(degrees(graph_.parent_out_degrees(), graph_.out_degrees())),
        places_(at::full({graph_.num_src()}, -1, graph_.id_dtype())) {}

  Part of(std::int64_t first, std::int64_t count) {
    return graph_.id_dtype() == at::kInt ? make<std::int32_t>(first, count)
                                         : make<std::int64_t>(first, count);
  }

 private:
  static at::Tensor degrees(const at::Tensor* of_parent, const at::Tensor& own) {
    return of_parent != nullptr ? of_parent->to(at::kLong) : own;
  }

  static at::Tensor by_destination(const Topology& graph, const at::Tensor& edge_rows) {
    const at::Tensor& edges = graph.csc().edge_ids;
    return edge_rows.defined() && edges.defined() ? edge_rows.index_select(0, edges) : edge_rows;
  }

  template <class Id>
  Part make(std::int64_t first, std::int64_t count);

  Topology graph_;
  at::Tensor edge_rows_;                 // in the order of the rows by destination
  at::Tensor in_degrees_, out_degrees_;  // int64, by node
  at::Tensor places_;  // by node: its index among the sources of the part, -1 between parts
};

template <class Id>
Part Parts::make(std::int64_t first, std::int64_t count) {
  const Adjacency& rows = graph_.csc();
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  const std::int64_t begin = indptr[first], num_edges = indptr[first + count] - begin;
  const Id* neighbours = rows.indices.const_data_ptr<Id>() + begin;
  Id* places = places_.mutable_data_ptr<Id>();
  at::Tensor indices = at::empty({num_edges}, rows.indices.options());
  Id* renumbered = indices.mutable_data_ptr<Id>();

  std::vector<std::int64_t> sources(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    sources[static_cast<std::size_t>(i)] = first + i;
    places[first + i] = static_cast<Id>(i);
  }
  for (std::int64_t e = 0; e < num_edges; ++e) {
    Id& place = places[neighbours[e]];
    if (place < 0) {
      place = static_cast<Id>(sources.size());
      sources.push_back(neighbours[e]);
    }
    renumbered[e] = place;
  }
  for (const std::int64_t node : sources) places[node] = -1;

  const auto num_src = static_cast<std::int64_t>(sources.size());
  at::Tensor nodes = at::empty({num_src}, at::kLong);
  std::copy(sources.begin(), sources.end(), nodes.mutable_data_ptr<std::int64_t>());
  const at::Tensor starts = rows.indptr.narrow(0, first, count + 1) - begin;
  const Topology topology =
      detail::topology_from_rows({starts, std::move(indices), {}}, num_src, count)
          .with_parent_degrees(in_degrees_.narrow(0, first, count),
                               out_degrees_.index_select(0, nodes));
  return {topology, nodes,
          edge_rows_.defined() ? edge_rows_.narrow(0, begin, num_edges) : at::Tensor()};
}

/// A range of nodes without edges, for layers that ignore them.
Part edgeless_part(std::int64_t first, std::int64_t count, at::ScalarType id_dtype) {
  const Adjacency rows{at::zeros({count + 1}, at::kLong), at::empty({0}, id_dtype), at::Tensor()};
  return {detail::topology_from_rows(rows, count, count), at::arange(first, first + count), {}};
}

/// The model whose layers run, and where.
struct Runner {
  nn::ModelImpl& model;
  at::Device device;
  std::optional<at::ScalarType> dtype;  // of the parameters
  at::Tensor edge_rows;                 // of the whole graph, or undefined

  /// Converts x to the input dtype of the first layer, on the device.
  at::Tensor in_model_dtype(const at::Tensor& x) const {
    const at::Tensor rows = x.to(device);
    return !dtype || at::autocast::is_autocast_enabled(device.type()) ? rows : rows.to(*dtype);
  }

  at::Tensor in_batches(const Topology& graph, const at::Tensor& x, std::int64_t batch_size) const {
    const std::int64_t num_nodes = graph.num_dst();
    std::optional<Parts> parts;
    if (model.options.kind != nn::ModelKind::kMlp) parts.emplace(graph, edge_rows);
    at::Tensor h = x;
    for (std::int64_t index = 0; index < model.num_layers(); ++index) {
      at::Tensor outputs;
      for (std::int64_t first = 0; first < num_nodes; first += batch_size) {
        const std::int64_t count = std::min(batch_size, num_nodes - first);
        const Part part =
            parts ? parts->of(first, count) : edgeless_part(first, count, graph.id_dtype());
        at::Tensor rows = rows_of_nodes(h, part.src_nodes);
        rows = index == 0 ? in_model_dtype(rows) : rows.to(device);
        const at::Tensor of_edges =
            part.edge_rows.defined() ? part.edge_rows.to(device) : part.edge_rows;
        const at::Tensor part_outputs =
            model.forward_layer(index, part.topology.to(device), rows, of_edges);
        if (!outputs.defined()) {
          std::vector<std::int64_t> shape = part_outputs.sizes().vec();
          shape[0] = num_nodes;
          outputs = at::empty(shape, part_outputs.options().device(at::kCPU));
        }
        outputs.narrow(0, first, count).copy_(part_outputs);
      }
      h = std::move(outputs);
    }
    return h;
  }
};

/// Checks what does not depend on the kind of model. Returns the device.
at::Device check_arguments(const Topology& graph, const InferenceOptions& options) {
  MEZZO_CHECK(options.batch_size >= 1, "{}: expected a batch_size of at least 1, got {}",
              kInferenceName, options.batch_size);
  MEZZO_CHECK(graph.num_src() == graph.num_dst(),
              "{}: expected a graph of one set of nodes, got {} sources and {} destinations",
              kInferenceName, graph.num_src(), graph.num_dst());
  return detail::resolve_device(kInferenceName, options.device);
}

/// The dtype of the first parameter; nullopt without parameters.
std::optional<at::ScalarType> dtype_of(const torch::nn::Module& module, at::Device device) {
  const std::vector<at::Tensor> parameters = module.parameters();
  if (parameters.empty()) return std::nullopt;
  const at::Tensor& parameter = parameters.front();
  MEZZO_CHECK(parameter.device() == device,
              "{}: expected the model on the device of the options, {}, got it on {}",
              kInferenceName, device.str(), parameter.device().str());
  return parameter.scalar_type();
}

}  // namespace

at::Tensor inference(nn::Model model, const Topology& graph, const at::Tensor& x,
                     InferenceOptions options) {
  MEZZO_CHECK(!model.is_empty(), "{}: expected a model, got none", kInferenceName);
  const at::Device device = check_arguments(graph, options);
  const nn::ModelKind kind = model->options.kind;
  const bool any_width = nn::is_own(kind) && x.defined() && x.dim() == 2;
  nn::detail::check_rows(kInferenceName, x, graph.num_dst(),
                         any_width ? x.size(1) : model->options.in_features);
  const at::Tensor& edge_rows = options.edge_rows;
  const bool takes_rows = nn::takes_edge_weights(kind) || nn::takes_edge_features(kind);
  const std::int64_t dimensions = nn::takes_edge_features(kind) ? 2 : 1;
  MEZZO_CHECK(
      !edge_rows.defined() || (takes_rows && edge_rows.is_cpu() && edge_rows.dim() == dimensions &&
                               edge_rows.size(0) == graph.num_edges()),
      "{}: expected edge_rows [{}] on the CPU, of a model that takes edge weights, or "
      "features [{}, F], got {}",
      kInferenceName, graph.num_edges(), graph.num_edges(), nn::detail::describe(edge_rows));
  const Runner runner{
      .model = *model, .device = device, .dtype = dtype_of(*model, device), .edge_rows = edge_rows};
  const at::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*model);
  if (graph.num_dst() <= options.batch_size || nn::needs_whole_graph(kind)) {
    const at::Tensor moved = edge_rows.defined() ? edge_rows.to(device) : edge_rows;
    return model->forward_layers({graph.to(device), moved}, runner.in_model_dtype(x)).to(at::kCPU);
  }
  return runner.in_batches(graph, x, options.batch_size);
}

}  // namespace mezzo
