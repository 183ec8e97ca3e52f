#include "bench/cases/predictors.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>
#include <torch/utils.h>

#include "mezzo/graph/graph.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo::bench {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

at::Tensor words(const at::Tensor& numbers) {
  return numbers.contiguous().view(at::kInt);
}

std::int64_t differing_elements(const at::Tensor& a, const at::Tensor& b) {
  return words(a).ne(words(b)).sum().item<std::int64_t>();
}

Topology rmat_topology(std::int64_t nodes, std::int64_t edges) {
  int scale = 1;
  while ((std::int64_t{1} << scale) < nodes) ++scale;
  const Graph graph = rmat_graph(scale, edges);
  const auto scaled = [&](const at::Tensor& ids) {
    return at::div(ids.to(at::kLong) * nodes, std::int64_t{1} << scale, "floor");
  };
  return Topology::from_coo(scaled(graph.topology().src()), scaled(graph.topology().dst()), nodes,
                            nodes);
}

nn::Model predictor_model(nn::ModelKind kind, std::int64_t width, std::int64_t layers) {
  torch::manual_seed(0);
  const std::int64_t heads = kind == nn::ModelKind::kGat ? 4 : 1;
  return nn::Model(nn::ModelOptions{.kind = kind,
                                    .in_features = width,
                                    .hidden_features = std::max<std::int64_t>(1, width / heads),
                                    .out_features = width,
                                    .num_layers = layers,
                                    .num_heads = heads});
}

}  // namespace mezzo::bench
