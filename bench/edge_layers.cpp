// GINEConv, EGATConv and PNAConv, forward and backward, beside PyG's and DGL's, which run as
// processes beside this one. tests/ compare the values; each library draws numbers of its own here.
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/App.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/precision.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/edge_attention_layers.h"
#include "mezzo/nn/conv/pna_conv.h"

#include "bench/harness/operator_case.h"
#include "bench/harness/peer.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
using mezzo::Topology;
namespace nn = mezzo::nn;

constexpr std::int64_t kHeads = 4;
std::int64_t num_nodes = 131'072, num_edges = 2'097'152;

/// A layer as a function of the rows of nodes and edges.
struct Layer {
  std::string name, peer;  ///< of its class, of edge_layers.py
  std::vector<at::Tensor> parameters;
  std::function<Tensors(const at::Tensor& x, const at::Tensor& e)> run;
};

std::vector<Layer> layers(const Topology& graph, std::int64_t width) {
  nn::GINEConv gine(nn::GINEConvOptions{}, torch::nn::Linear(width, width));
  nn::EGATConv egat(width, width, width / kHeads, width / kHeads, {.num_heads = kHeads});
  using enum nn::PnaAggregator;
  using enum nn::PnaScaler;
  const double delta = graph.in_degrees().to(at::kDouble).log1p().mean().item<double>();
  nn::PNAConv pna(width, width,
                  {.aggregators = {kMean, kMax, kMin, kStd},
                   .scalers = {kIdentity, kAmplification, kAttenuation},
                   .delta = delta});
  return {
      {"GINEConv", "gine", gine->parameters(),
       [graph, gine](const auto& x, const auto& e) mutable -> Tensors {
         return {gine(graph, x, e)};
       }},
      {"EGATConv", "egat", egat->parameters(),
       [graph, egat](const auto& x, const auto& e) mutable -> Tensors {
         const auto [nodes, edges] = egat(graph, x, e);
         return {nodes, edges};
       }},
      {"PNAConv", "pna", pna->parameters(),
       [graph, pna](const auto& x, const auto&) mutable -> Tensors { return {pna(graph, x)}; }}};
}

Candidate peer_of(const std::string& library, const Layer& layer, std::int64_t width) {
  const char* const python = std::getenv("MEZZO_PYTHON");
  if (python == nullptr) {
    return {.name = library, .refusal = "MEZZO_PYTHON names no interpreter"};
  }
  std::vector<std::string> words = {MEZZO_BENCH_PEERS "/edge_layers.py", library, layer.peer};
  for (const std::int64_t number :
       {num_nodes, num_edges, width, kHeads, std::int64_t{at::get_num_threads()}}) {
    words.push_back(std::to_string(number));
  }
  const auto peer = std::make_shared<Peer>(python, words);
  if (peer->version().empty()) {
    return {.name = library, .refusal = fmt::format("{} cannot run it", python)};
  }
  return {.name = fmt::format("{} {}", library, peer->version()), .run = [peer] {
            peer->ask("run");
            return Tensors();
          }};
}

Candidate mezzo_in(mezzo::amp::Precision precision, const Topology& graph, const Layer& layer,
                   std::int64_t width) {
  const at::ScalarType type = storage_type(precision);
  const auto drawn = [&](std::int64_t rows) {
    return at::randn({rows, width}).to(type).set_requires_grad(true);
  };
  const at::Tensor x = drawn(graph.num_src()), e = drawn(graph.num_edges());
  Tensors gradients;
  {
    const at::NoGradGuard no_grad;
    const mezzo::amp::PrecisionScope scope(precision, at::kCPU);
    for (const at::Tensor& one : layer.run(x, e)) gradients.push_back(at::randn_like(one));
  }
  const auto run = [=, run_layer = layer.run, parameters = layer.parameters] {
    Tensors results;
    {
      const mezzo::amp::PrecisionScope scope(precision, at::kCPU);
      results = run_layer(x, e);
    }
    torch::autograd::backward(results, gradients);
    x.mutable_grad().reset();
    e.mutable_grad().reset();
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    return Tensors();
  };
  return {.name = "mezzo " + std::string(mezzo::amp::to_string(precision)),
          .is_mezzo = true,
          .precision = precision,
          .run = run};
}

void run(Bench& bench) {
  bench.begin();
  const at::Tensor loops = at::arange(num_nodes);
  const auto ends = [&] { return at::cat({at::randint(num_nodes, {num_edges}), loops}); };
  const at::Tensor src = ends(), dst = ends();
  const Topology graph = Topology::from_coo(src, dst, num_nodes, num_nodes);
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Layer& layer : layers(graph, width)) {
      bench.run({.work = layer.name + ", forward+backward",
                 .width = width,
                 .bytes = 8 * graph.num_edges() * width,
                 .make = [&] {
                   Comparison comparison;
                   for (const auto precision : bench.arguments.precisions) {
                     comparison.candidates.push_back(mezzo_in(precision, graph, layer, width));
                   }
                   for (const char* library : {"pyg", "dgl"}) {
                     comparison.candidates.push_back(peer_of(library, layer, width));
                   }
                   return comparison;
                 }});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto add_options = [](CLI::App& app) {
    app.add_option("--nodes", num_nodes, "Number of nodes")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--edges", num_edges, "Number of random edges; each node also gets a loop")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  };
  return run_program(
      {.name = "edge_layers",
       .description = "Layers with edge features beside PyG's and DGL's (MEZZO_PYTHON: an "
                      "interpreter that has them)",
       .widths = {64},
       .width_help = "Features of a node and of an edge, in 4 heads",
       .add_options = add_options,
       .run = run},
      argc, argv);
}
