#include "bench/cases/layers.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/interaction_block.h"
#include "mezzo/ops/ops.h"

namespace mezzo::bench {
namespace {

constexpr double kSlope = 0.2;

std::int64_t heads_of(std::int64_t width) {
  constexpr std::int64_t kHeads = 4;
  return width % kHeads == 0 ? kHeads : 1;
}

/// GAT with a row of every tensor for each edge. in: input, weight, attention of both endpoints.
at::Tensor gathered_gat(const LibtorchGraph& torch, std::int64_t heads, const Tensors& in) {
  const at::Tensor rows = at::linear(in[0], in[1]).view({in[0].size(0), heads, -1});
  const at::Tensor sent = (rows * in[2]).sum(-1), received = (rows * in[3]).sum(-1);
  const at::Tensor logits = at::leaky_relu(
      sent.index_select(0, torch.src()) + received.index_select(0, torch.dst()), kSlope);
  return torch.gather_scatter(rows, torch.gather_softmax(logits).unsqueeze(-1));
}

/// GATv2 with a row of every tensor for each edge. in: input, weights of the sources and of the
/// destinations, attention.
at::Tensor gathered_gatv2(const LibtorchGraph& torch, std::int64_t heads, const Tensors& in) {
  const at::Tensor sent = at::linear(in[0], in[1]).view({in[0].size(0), heads, -1});
  const at::Tensor received = at::linear(in[0], in[2]).view({in[0].size(0), heads, -1});
  const at::Tensor hidden = at::leaky_relu(
      sent.index_select(0, torch.src()) + received.index_select(0, torch.dst()), kSlope);
  const at::Tensor logits = (hidden * in[3]).sum(-1);
  return torch.gather_scatter(sent, torch.gather_softmax(logits).unsqueeze(-1));
}

/// An attention layer in both implementations.
struct Layer {
  Tensors parameters;  ///< the first is the weight whose gradient is compared
  std::function<at::Tensor(const LibtorchGraph&, std::int64_t heads, const Tensors&)> gathered;
  std::function<at::Tensor(const Topology&, const at::Tensor&)> forward;
  /// Passes over the rows of the neighbours, forward and backward, and over the nodes' rows.
  std::int64_t edge_passes, back_edge_passes, row_passes, back_row_passes;
  std::int64_t copies, back_copies;  ///< of E x F that gathering has alive at once
};

/// Bytes moved forward: rows of the nodes four times (read and written by the product, read for the
/// scores, written by the sum), and for each edge the neighbour's row, its id and two numbers a
/// head by the sum. Backward: the gradients of the sum and of the attention meet a row of every
/// edge each; the product's two gradients read two tensors of rows each, and two are written.
Layer gat(std::int64_t width, std::int64_t heads) {
  nn::GATConv layer(nn::GATConvOptions{.in_features = width,
                                       .out_features = width / heads,
                                       .num_heads = heads,
                                       .negative_slope = kSlope,
                                       .bias = false,
                                       .allow_zero_in_degree = true});
  return {.parameters = {layer->fc->weight, layer->attn_l, layer->attn_r},
          .gathered = gathered_gat,
          .forward = [layer](const Topology& topology,
                             const at::Tensor& x) mutable { return layer(topology, x); },
          .edge_passes = 1,
          .back_edge_passes = 2,
          .row_passes = 4,
          .back_row_passes = 6,
          .copies = 2,
          .back_copies = 5};
}

/// As above, with two projections. Scores read a row per edge, their gradients one per edge and
/// endpoint. Rows of nodes: six times forward, ten backward.
Layer gatv2(std::int64_t width, std::int64_t heads) {
  nn::GATv2Conv layer(nn::GATv2ConvOptions{.in_features = width,
                                           .out_features = width / heads,
                                           .num_heads = heads,
                                           .negative_slope = kSlope,
                                           .bias = false,
                                           .allow_zero_in_degree = true});
  return {.parameters = {layer->fc_src->weight, layer->fc_dst->weight, layer->attn},
          .gathered = gathered_gatv2,
          .forward = [layer](const Topology& topology,
                             const at::Tensor& x) mutable { return layer(topology, x); },
          .edge_passes = 2,
          .back_edge_passes = 4,
          .row_passes = 6,
          .back_row_passes = 10,
          .copies = 3,
          .back_copies = 8};
}

Comparison make_layer(const Workload& load, std::int64_t width, Pass pass, const Layer& layer) {
  const std::int64_t heads = heads_of(width);
  const bool backward = pass == Pass::kForwardBackward;
  const at::Tensor x = at::randn({load.topology.num_src(), width});
  const at::Tensor gradient = at::randn({load.topology.num_dst(), heads, width / heads});
  const auto operands = [&layer](const at::Tensor& input) {
    Tensors all = {input};
    all.insert(all.end(), layer.parameters.begin(), layer.parameters.end());
    return all;
  };
  const auto guarded = [backward](Forward forward) -> Forward {
    if (backward) return forward;
    return [forward = std::move(forward)](const Tensors& in) {
      const at::NoGradGuard no_grad;
      return forward(in);
    };
  };
  const auto arrange = [](Tensors results) {
    results.resize(std::min<std::size_t>(results.size(), 3));
    return results;
  };
  const auto moved_bytes = [&](std::int64_t element) {
    const std::int64_t id_bytes = load.topology.id_dtype() == at::kInt ? 4 : 8;
    const std::int64_t edge = width * element + id_bytes + 2 * heads * kFloatBytes;
    const std::int64_t edge_passes = layer.edge_passes + (backward ? layer.back_edge_passes : 0);
    const std::int64_t row_passes = layer.row_passes + (backward ? layer.back_row_passes : 0);
    return edge_passes * load.topology.num_edges() * edge + row_passes * x.numel() * element;
  };

  Comparison comparison;
  comparison.rounding.steps = 8;             // operands, product, attention, its gradients, result
  comparison.rounding.has_jumps = backward;  // the leaky ReLU
  const std::int64_t rows_bytes = 4 * x.numel() * kFloatBytes;
  const std::int64_t messages_bytes = load.topology.num_edges() * width * kFloatBytes;
  const std::int64_t copies = backward ? layer.back_copies : layer.copies;
  comparison.candidates.push_back(
      {.name = "gather-scatter",
       .run = job(pass, operands(x), gradient,
                  guarded([torch = load.torch, heads, gathered = layer.gathered](const auto& in) {
                    return gathered(*torch, heads, in);
                  })),
       .arrange = arrange,
       .cost = {.run_bytes = copies * messages_bytes + rows_bytes}});
  for (const amp::Precision precision : load.precisions) {
    const at::ScalarType type = storage_type(precision);
    const Forward forward = [topology = load.topology, run = layer.forward,
                             precision](const Tensors& in) {
      const amp::PrecisionScope scope(precision, at::kCPU);
      return run(topology, in[0]);
    };
    comparison.candidates.push_back(
        {.name = "mezzo " + std::string(amp::to_string(precision)),
         .is_mezzo = true,
         .precision = precision,
         .run = job(pass, operands(x.to(type)), gradient.to(type), guarded(forward)),
         .arrange = arrange,
         .cost = {.run_bytes = rows_bytes, .moved_bytes = moved_bytes(element_bytes(precision))}});
  }
  return comparison;
}

/// make: called when the operands are needed.
Plan layer_plan(const char* name, const Workload& load, std::int64_t width, Pass pass,
                Layer (*make)(std::int64_t width, std::int64_t heads)) {
  const std::int64_t rows = load.topology.num_src() + load.topology.num_dst();
  const std::int64_t heads = heads_of(width);
  return {.work = fmt::format("{} layer, {} x {}{}", name, heads, width / heads, suffix(pass)),
          .width = width,
          .bytes = 5 * rows * width * kFloatBytes,
          .make = [=] { return make_layer(load, width, pass, make(width, heads)); }};
}

/// The new rows of nodes and edges.
using Interaction = std::function<Tensors(const at::Tensor& h, const at::Tensor& e)>;

/// With a row of every tensor for each edge.
Interaction concatenated(const std::shared_ptr<const LibtorchGraph>& torch,
                         nn::InteractionBlock layer) {
  return [torch, layer](const at::Tensor& h, const at::Tensor& e) mutable -> Tensors {
    const at::Tensor ends =
        at::cat({h.index_select(0, torch->src()), h.index_select(0, torch->dst()), e}, 1);
    const at::Tensor new_e = e + layer->edge_mlp->forward(ends);
    const at::Tensor received =
        at::zeros({h.size(0), e.size(1)}, new_e.options()).index_add(0, torch->dst(), new_e);
    return {h + layer->node_mlp->forward(at::cat({h, received}, 1)), new_e};
  };
}

Comparison make_interaction_block(const Workload& load, std::int64_t width, Pass pass) {
  const bool backward = pass == Pass::kForwardBackward;
  nn::InteractionBlock layer(width, width);
  const std::int64_t nodes = load.topology.num_src(), edges = load.topology.num_edges();
  const Tensors rows = {at::randn({nodes, width}), at::randn({edges, width})};
  const Tensors gradients = {at::randn({nodes, width}), at::randn({edges, width})};
  const auto run_in = [&](at::ScalarType type, const Interaction& forward) {
    Tensors inputs, upstream;
    for (const at::Tensor& one : rows) {
      inputs.push_back(one.to(type).detach().requires_grad_(backward));
    }
    for (const at::Tensor& one : gradients) upstream.push_back(one.to(type));
    return [=]() -> Tensors {
      const at::AutoGradMode record(backward);
      Tensors results = forward(inputs[0], inputs[1]);
      if (!backward) return results;
      Tensors all = inputs;
      const auto parameters = layer->parameters();
      all.insert(all.end(), parameters.begin(), parameters.end());
      const Tensors grads = torch::autograd::grad(results, all, upstream);
      results.insert(results.end(), {grads[0], grads[1]});
      return results;
    };
  };
  // A row of an edge is multiplied by two weights; the backward computes the first product and the
  // second again and has two gradients of each. Rows of nodes count as a sixteenth.
  const std::int64_t operations = 2 * edges * width * width * (backward ? 8 : 2);
  const std::int64_t edge_bytes = edges * width * kFloatBytes;
  Comparison comparison;
  comparison.rounding.steps = 16;
  comparison.rounding.has_jumps = backward;  // the relu
  comparison.candidates.push_back({.name = "concatenated",
                                   .run = run_in(at::kFloat, concatenated(load.torch, layer)),
                                   .cost = {.run_bytes = (backward ? 12 : 6) * edge_bytes}});
  for (const amp::Precision precision : load.precisions) {
    const Interaction forward = [topology = load.topology, layer, precision](
                                    const at::Tensor& h, const at::Tensor& e) mutable -> Tensors {
      const amp::PrecisionScope scope(precision, at::kCPU);
      auto [new_h, new_e] = layer(topology, h, e);
      return {new_h, new_e};
    };
    comparison.candidates.push_back(
        {.name = "mezzo " + std::string(amp::to_string(precision)),
         .is_mezzo = true,
         .precision = precision,
         .run = run_in(storage_type(precision), forward),
         .cost = {.run_bytes = (backward ? 3 : 2) * edge_bytes, .operations = operations}});
  }
  return comparison;
}

/// libtorch's product in a TF32 scope, backward too.
void add_tensor_float32(OperatorCase& product, std::function<Tensors()> run) {
  constexpr auto kPrecision = amp::Precision::kTensorFloat32;
  const auto scoped = [run = std::move(run)] {
    const amp::PrecisionScope scope(kPrecision, at::kCUDA);
    return run();
  };
  product.add_handwritten("libtorch tf32", scoped, product.cost(), {}, kPrecision);
}

Comparison make_dense_product(const ProductSize& size,
                              const std::vector<amp::Precision>& precisions, Pass pass,
                              at::Device device) {
  const auto random = [device](std::int64_t rows, std::int64_t columns) {
    return at::randn({rows, columns}, device);
  };
  const at::Tensor x = random(size.rows, size.in), weight = random(size.out, size.in);
  const at::Tensor gradient = random(size.rows, size.out);
  OperatorCase product(pass, {x, weight}, gradient, [size, pass](std::int64_t element) {
    // A multiplication and an addition for each number of a row and of the weight's columns; the
    // gradients are two products of the same size.
    const bool backward = pass == Pass::kForwardBackward;
    return Cost{.run_bytes = size.rows * (size.out + (backward ? size.in : 0)) * element,
                .operations = 2 * size.rows * size.in * size.out * (backward ? 3 : 1)};
  });
  const Forward libtorch = [](const Tensors& in) { return at::linear(in[0], in[1]); };
  product.define(libtorch);
  product.add_baselines("libtorch", precisions, [&](at::ScalarType) { return libtorch; });
  if (!device.is_cpu()) add_tensor_float32(product, job(pass, {x, weight}, gradient, libtorch));
  product.add_mezzo(precisions, [](const Tensors& in) { return mezzo::linear(in[0], in[1]); });
  return product.take();
}

}  // namespace

Plan gat_layer(const Workload& load, std::int64_t width, Pass pass) {
  return layer_plan("GAT", load, width, pass, gat);
}

Plan gatv2_layer(const Workload& load, std::int64_t width, Pass pass) {
  return layer_plan("GATv2", load, width, pass, gatv2);
}

Plan interaction_block(const Workload& load, std::int64_t width, Pass pass) {
  return {.work = "interaction block" + suffix(pass),
          .width = width,
          .bytes = 6 * load.topology.num_edges() * width * kFloatBytes,
          .make = [=] { return make_interaction_block(load, width, pass); }};
}

Plan dense_product(const ProductSize& size, const std::vector<amp::Precision>& precisions,
                   Pass pass, at::Device device) {
  const std::int64_t numbers = size.rows * (size.in + size.out) + size.in * size.out;
  const auto num_16_bit = std::count_if(precisions.begin(), precisions.end(),
                                        [](auto p) { return storage_type(p) != at::kFloat; });
  // The operands and results in float64, and two of every other type.
  const std::int64_t bytes = 2 * 8 + 4 + 4 + num_16_bit * (2 + 2);
  return {.work = fmt::format("linear {} x {} x {}{}", size.rows, size.in, size.out, suffix(pass)),
          .width = size.out,
          .bytes = device.is_cpu() ? numbers * bytes : 0,
          .make = [=] { return make_dense_product(size, precisions, pass, device); }};
}

}  // namespace mezzo::bench
