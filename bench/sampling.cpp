// Neighbour sampling and renumbering on an R-MAT graph, compared with a bare loop of random reads
// and an implementation with hash maps; then a mini-batch epoch with prefetching.
#include "bench/cases/sampling.h"

#include <algorithm>
#include <iostream>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "mezzo/graph/transforms/transforms.h"

#include "bench/cases/hash_sampler.h"
#include "bench/cases/mini_batch.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

std::int64_t count_edges(const std::vector<HashHop>& hops) {
  std::int64_t edges = 0;
  for (const HashHop& hop : hops) edges += static_cast<std::int64_t>(hop.src.size());
  return edges;
}

/// Samples every batch with hash maps, `threads` batches at a time. Returns the number of edges.
std::int64_t sample_batches(const mezzo::Topology& topology, const at::Tensor& seeds,
                            const SamplingWork& work, std::int64_t threads) {
  const mezzo::Adjacency& csc = topology.csc();
  const Rows rows{csc.indptr.const_data_ptr<std::int64_t>(),
                  csc.indices.const_data_ptr<std::int32_t>()};
  const auto* first = seeds.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> edges(static_cast<std::size_t>(threads));
  {
    std::vector<std::jthread> workers;
    for (std::int64_t worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&, worker] {
        for (std::int64_t begin = worker * work.batch_size; begin < seeds.size(0);
             begin += threads * work.batch_size) {
          const std::int64_t end = std::min(seeds.size(0), begin + work.batch_size);
          const std::vector<std::int64_t> batch(first + begin, first + end);
          edges[static_cast<std::size_t>(worker)] += count_edges(
              sample_by_hash_map(rows, batch, work.fanouts, static_cast<std::uint64_t>(begin)));
        }
      });
    }
  }
  std::int64_t sum = 0;
  for (const std::int64_t part : edges) sum += part;
  return sum;
}

/// Adds the implementation with hash maps to `plan`.
Plan with_hash_maps(Plan plan, const mezzo::Graph& graph, const SamplingWork& work,
                    std::int64_t threads) {
  plan.make = [inner = plan.make, &graph, work, threads] {
    Comparison comparison = inner();
    const at::Tensor seeds = sampling_seeds(graph, work);
    std::vector<std::int64_t> counts = {1};
    if (threads > 1) counts.push_back(threads);
    for (const std::int64_t count : counts) {
      const auto run = [&graph, seeds, work, count]() -> Tensors {
        const std::int64_t edges = sample_batches(graph.topology(), seeds, work, count);
        return {at::full({1}, static_cast<double>(edges) * 1e-6, at::kFloat)};
      };
      comparison.candidates.push_back(
          {.name = count == 1 ? "hash maps, 1 thread" : fmt::format("hash maps, {} threads", count),
           .run = run});
    }
    return comparison;
  };
  return plan;
}

void run(Bench& bench) {
  constexpr std::int64_t kFeatures = 100, kClasses = 47;  // as ogbn-products
  mezzo::Graph graph = mezzo::rmat_graph(static_cast<int>(bench.scale), bench.edges);
  bench.begin(fmt::format("rmat{}", bench.scale), graph.num_nodes(), graph.num_edges());
  const std::int64_t threads = at::get_num_threads();
  for (const SamplingWork& work : {SamplingWork{.fanouts = {15, 10, 5}},
                                   SamplingWork{.fanouts = {25, 10}, .num_batches = 64}}) {
    const Outcome* outcome =
        bench.run(with_hash_maps(neighbor_sampling(graph, work, threads), graph, work, threads));
    if (outcome == nullptr) continue;
    std::cout << format_rates(*outcome) << '\n' << std::flush;
  }
  at::manual_seed(0);
  graph.ndata()["feat"] = at::randn({graph.num_nodes(), kFeatures});
  graph.ndata()["label"] = at::randint(kClasses, {graph.num_nodes()}, at::kLong);
  for (const std::int64_t width : bench.arguments.widths) {
    const Outcome* outcome = bench.run(pipelined_epoch(
        graph, {.num_batches = 8},
        {.hidden = width, .num_classes = kClasses, .precisions = bench.arguments.precisions}));
    if (outcome == nullptr) continue;
    std::cout << format_pipelining(*outcome) << '\n' << std::flush;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "sampling",
                      .description = "Neighbour sampling beside hash maps and bare reads, and a "
                                     "mini-batch epoch",
                      .widths = {256},
                      .width_help = "Hidden features of the mini-batch model",
                      .takes_graph = true,
                      .run = run},
                     argc, argv);
}
