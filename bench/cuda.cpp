// The workloads of docs/gpu.md, on one GPU: g-SpMM on graphs as large as Reddit and ogbn-products
// compared with libtorch's sparse products (cuSPARSE), dense products, GAT, GCN and CNN steps,
// neighbour sampling.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/App.hpp>
#include <fmt/format.h>

#include "mezzo/ops/ops.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "bench/cases/device_graphs.h"
#include "bench/cases/device_models.h"
#include "bench/cases/layers.h"
#include "bench/harness/operator_case.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
using mezzo::Topology;
using mezzo::amp::Precision;

std::vector<std::string> parts = {"spmm",  "linear", "gat", "losses",
                                  "heads", "cora",   "cnn", "sampling"};
bool dry_run = false;

void add_options(CLI::App& app) {
  app.add_option("--part", parts, "Which of the comparisons")
      ->delimiter(',')
      ->check(CLI::IsMember(parts))
      ->capture_default_str();
  app.add_flag("--dry-run", dry_run, "On the CPU, at tiny sizes: proves the program without a GPU");
}

bool is_selected(const std::string& part) {
  return !interrupted() && std::find(parts.begin(), parts.end(), part) != parts.end();
}

const MeasureOptions kTwoWarmUps{.warm_ups = 2};

/// Once in a dry run.
MeasureOptions repeated(std::int64_t repeats, std::int64_t warm_ups) {
  if (is_dry_run()) return {.repeats = 1, .warm_ups = 1};
  return {.repeats = repeats, .warm_ups = warm_ups};
}

// g-SpMM.

/// Every stride-th row of the sum of the neighbours' rows, in float64.
Expected sampled_sums(const mezzo::Adjacency& rows, const at::Tensor& x) {
  constexpr std::int64_t kRows = 256;
  const std::int64_t num_rows = rows.indptr.size(0) - 1;
  const std::int64_t stride = std::max<std::int64_t>(num_rows / kRows, 1);
  const at::Tensor starts = rows.indptr.cpu();
  const auto* start = starts.const_data_ptr<std::int64_t>();
  Tensors sums;
  for (std::int64_t row = 0; row < num_rows; row += stride) {
    const at::Tensor neighbors = rows.indices.slice(0, start[row], start[row + 1]).to(at::kLong);
    sums.push_back(x.index_select(0, neighbors).to(at::kDouble).sum(0));
  }
  return {at::stack(sums).to(at::kFloat), stride};
}

at::Tensor sparse_matrix(const mezzo::Adjacency& rows, std::int64_t columns, at::ScalarType dtype) {
  const at::Tensor ones = at::ones({rows.indices.size(0)}, rows.indices.options().dtype(dtype));
  return at::sparse_csr_tensor(rows.indptr.to(rows.indices.scalar_type()), rows.indices, ones,
                               {rows.indptr.size(0) - 1, columns},
                               ones.options().layout(at::kSparseCsr));
}

/// libtorch's products with the matrix and, backward, with its precomputed transpose.
std::function<Tensors()> sparse_products(const Topology& topology, const at::Tensor& x,
                                         const at::Tensor& grad, at::ScalarType dtype, Pass pass) {
  const at::Tensor rows = x.to(dtype), upstream = grad.to(dtype);
  const at::Tensor matrix = sparse_matrix(topology.csc(), topology.num_src(), dtype);
  if (pass == Pass::kForward) return [=]() -> Tensors { return {at::mm(matrix, rows)}; };
  const at::Tensor transposed = sparse_matrix(topology.csr(), topology.num_dst(), dtype);
  return [=]() -> Tensors { return {at::mm(matrix, rows), at::mm(transposed, upstream)}; };
}

Plan spmm(const Topology& topology, const std::string& graph, std::int64_t width, Pass pass,
          const std::vector<Precision>& precisions) {
  const auto make = [=] {
    // Numbers that all dtypes represent, so that only sums are rounded.
    const auto numbers = [&](std::int64_t rows) {
      return at::randint(-8, 9, {rows, width}, at::TensorOptions(at::kFloat).device(gpu())).div_(8);
    };
    const at::Tensor x = numbers(topology.num_src()), grad = numbers(topology.num_dst());
    OperatorCase sum(pass, {x}, grad);
    sum.expect(sampled_sums(topology.csc(), x));
    if (pass != Pass::kForward) sum.expect(sampled_sums(topology.csr(), grad));
    sum.add_mezzo(precisions, [topology](const Tensors& in) {
      return mezzo::gspmm(topology, mezzo::BinaryOp::kCopyLhs, mezzo::ReduceOp::kSum, in[0],
                          std::nullopt);
    });
    for (const Precision precision : precisions) {
      sum.add_handwritten(fmt::format("libtorch csr, {}", mezzo::amp::to_string(precision)),
                          sparse_products(topology, x, grad, storage_type(precision), pass), {}, {},
                          precision);
    }
    return sum.take();
  };
  return {
      .work = fmt::format("copy_u sum, {}{}", graph, suffix(pass)), .width = width, .make = make};
}

void run_spmm(Bench& bench) {
  for (const GraphSize& size : {kRedditLike, kProductsLike}) {
    const Topology topology = rmat_on_device(size);
    for (const std::int64_t width : bench.arguments.widths) {
      for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
        bench.run(spmm(topology, size.name, width, pass, bench.arguments.precisions), kTwoWarmUps);
      }
    }
  }
}

// Models.

/// The precisions of the options, and TF32 if float32 is one of them.
std::vector<Precision> with_tensor_float32(std::vector<Precision> precisions) {
  const auto float32 = std::find(precisions.begin(), precisions.end(), Precision::kFloat32);
  if (float32 != precisions.end()) precisions.insert(float32 + 1, Precision::kTensorFloat32);
  return precisions;
}

void run_gat(Bench& bench) {
  struct Heads {
    std::int64_t count, features;
  };
  const std::vector<Precision> precisions = with_tensor_float32(bench.arguments.precisions);
  for (const GraphSize& size : {kRedditSparse, kRedditLike}) {
    const Topology topology = rmat_on_device(size);
    for (const Heads heads : {Heads{1, 256}, Heads{2, 128}, Heads{2, 256}}) {
      bench.run(gat_step(topology, heads.count, heads.features, precisions), kTwoWarmUps);
    }
  }
}

void run_losses(Bench& bench) {
  constexpr std::int64_t kHidden = 256, kSteps = 20;
  const Topology topology = rmat_on_device(kRedditLike);
  for (const std::int64_t heads : {1, 2}) {
    std::cout << gat_losses(topology, heads, is_dry_run() ? 8 : kHidden, is_dry_run() ? 2 : kSteps,
                            bench.arguments.precisions)
              << std::endl;
  }
}

void run_heads(Bench& bench) {
  constexpr std::int64_t kHidden = 256, kMostHeads = 128;
  std::cout << largest_gat(rmat_on_device(kRedditLike), kHidden, is_dry_run() ? 4 : kMostHeads,
                           bench.arguments.precisions)
            << std::endl;
}

void run_linear(Bench& bench) {
  // Layers of the Reddit-like graph, and a product that is bound by arithmetic.
  for (const ProductSize& size :
       {ProductSize{kRedditLike.num_nodes, 602, 256}, ProductSize{kRedditLike.num_nodes, 512, 256},
        ProductSize{kRedditLike.num_nodes, 512, 41}, ProductSize{8192, 8192, 8192}}) {
    const ProductSize taken = is_dry_run() ? ProductSize{16, 8, 4} : size;
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(dense_product(taken, bench.arguments.precisions, pass, gpu()), repeated(5, 3));
    }
  }
}

void run_cnn(Bench& bench) {
  constexpr std::int64_t kBatch = 512, kEpoch = 60000;
  for (const std::int64_t batch : {kBatch, 4 * kBatch}) {
    bench.run(cnn_step(is_dry_run() ? 2 : batch), repeated(5, 4));
  }
  bench.run(is_dry_run() ? cnn_epoch(2, 4) : cnn_epoch(kBatch, kEpoch), {.warm_ups = 1});
}

// Sampling.

at::Tensor millions(std::int64_t edges) {
  return at::full({1}, static_cast<double>(edges) * 1e-6, gpu());
}

/// Samples the batches of `seeds` on the GPU.
std::int64_t sample_on_gpu(const mezzo::BlockSampler& sampler, const at::Tensor& seeds,
                           std::int64_t batch_size, mezzo::Workspace& workspace) {
  std::int64_t edges = 0, number = 0;
  for (const at::Tensor& batch : seeds.split(batch_size)) {
    const mezzo::BatchKey key{.batch = number++};
    for (const mezzo::Block& block : sampler.sample(batch, key, workspace)) {
      edges += block.num_edges();
    }
  }
  return edges;
}

Plan neighbor_sampling_on_gpu(const Topology& topology, std::int64_t num_batches) {
  constexpr std::int64_t kBatch = 1024, kWorkers = 2;
  constexpr double kAnyError = 1e9;  // at most 0.1, because batches of other seeds differ in edges
  const std::vector<std::int64_t> fanouts = {15, 10, 5};
  const auto make = [=] {
    const at::Tensor seeds =
        at::randperm(topology.num_dst(), at::TensorOptions(at::kLong).device(gpu()))
            .slice(0, 0, num_batches * kBatch);
    const auto sampler = std::make_shared<mezzo::BlockSampler>(
        topology, mezzo::BlockSampler::Options{.fanouts = fanouts, .parent_degrees = false});
    const auto workspace = std::make_shared<mezzo::Workspace>();
    const auto loader =
        std::make_shared<mezzo::BlockLoader>(mezzo::Graph(topology.to(at::kCPU)), seeds.cpu(),
                                             mezzo::BlockLoaderOptions{.fanouts = fanouts,
                                                                       .batch_size = kBatch,
                                                                       .num_workers = kWorkers,
                                                                       .parent_degrees = false,
                                                                       .prepare_backward = false});
    const auto run_loader = [loader]() -> Tensors {
      std::int64_t edges = 0;
      for (const mezzo::Batch& batch : *loader) {
        for (const mezzo::Block& block : batch.blocks) edges += block.num_edges();
      }
      return {millions(edges)};
    };
    Comparison comparison;
    comparison.expected = {{run_loader().front()}};
    comparison.rounding.steps = kAnyError;
    comparison.candidates.push_back({.name = "two threads of the CPU", .run = run_loader});
    comparison.candidates.push_back(
        {.name = "GPU", .is_mezzo = true, .run = [=]() -> Tensors {
           return {millions(sample_on_gpu(*sampler, seeds, kBatch, *workspace))};
         }});
    return comparison;
  };
  return {.work = "neighbour sampling [15, 10, 5], F batches of 1024",
          .width = num_batches,
          .make = make};
}

void run(Bench& bench) {
  if (dry_run) measure_on_cpu();
  bench.device = gpu();
  if (is_selected("cora")) {
    bench.run(cora_step({Precision::kFloat32, Precision::kFloat16}),
              repeated(200, 6));  // a captured step runs eagerly three times first
  }
  if (is_selected("cnn")) run_cnn(bench);
  if (is_selected("linear")) run_linear(bench);
  if (is_selected("gat")) run_gat(bench);
  if (is_selected("losses")) run_losses(bench);
  if (is_selected("heads")) run_heads(bench);
  if (is_selected("sampling")) {
    bench.run(neighbor_sampling_on_gpu(rmat_on_device(kProductsLike), 32), kTwoWarmUps);
  }
  if (is_selected("spmm")) run_spmm(bench);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "cuda",
                      .description = "Kernels, steps and sampling on one GPU",
                      .widths = {16, 32, 64, 128, 256, 602},
                      .width_help = "Features of a node of the sums",
                      .add_options = add_options,
                      .run = run},
                     argc, argv);
}
