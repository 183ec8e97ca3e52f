#include "bench/cases/sampling.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/huge_pages.h"
#include "mezzo/core/table.h"
#include "mezzo/sampling/blocks/block_loader.h"

namespace mezzo::bench {
namespace {

/// Options without degrees and gradient structures.
BlockLoaderOptions bare_options(const SamplingWork& work, std::int64_t workers) {
  return {.fanouts = work.fanouts,
          .batch_size = work.batch_size,
          .num_workers = workers,
          .parent_degrees = false,
          .prepare_backward = false};
}

/// Options with parent degrees and gradient structures.
BlockLoaderOptions options_with_degrees(const SamplingWork& work, std::int64_t workers) {
  return {.fanouts = work.fanouts,
          .batch_size = work.batch_size,
          .num_workers = workers,
          .parent_degrees = true};
}

/// Millions of edges, [1].
at::Tensor as_millions(std::int64_t edges) {
  return at::full({1}, static_cast<double>(edges) * 1e-6, at::kFloat);
}

std::int64_t sampled_edges(const Batch& batch) {
  std::int64_t edges = 0;
  for (const Block& block : batch.blocks) edges += block.num_edges();
  return edges;
}

/// One pass over the batches, which it discards.
std::int64_t sample_all(BlockLoader& loader) {
  std::int64_t edges = 0;
  for (const Batch& batch : loader) edges += sampled_edges(batch);
  return edges;
}

/// Reads `count` neighbours at random positions, and the table's item of each; keeps some dozen
/// reads in flight, as the sampler does.
std::uint64_t read_at_random(const std::int32_t* neighbors, std::uint64_t num_neighbors,
                             const std::int32_t* table, std::uint64_t count, std::uint64_t seed) {
  constexpr std::uint64_t kTogether = 64;
  std::uint64_t positions[kTogether], sum = 0, state = seed * 2 + 1;
  std::int32_t nodes[kTogether];
  for (std::uint64_t done = 0; done < count; done += kTogether) {
    for (std::uint64_t& position : positions) {
      state = state * 6364136223846793005 + 1442695040888963407;  // Knuth's MMIX generator
      position =
          static_cast<std::uint64_t>((static_cast<unsigned __int128>(state) * num_neighbors) >> 64);
      __builtin_prefetch(neighbors + position);
    }
    for (std::uint64_t i = 0; i < kTogether; ++i) {
      nodes[i] = neighbors[positions[i]];
      __builtin_prefetch(table + nodes[i]);
    }
    for (const std::int32_t node : nodes) sum += static_cast<std::uint64_t>(table[node]);
  }
  return sum;
}

/// Memory of the bare loop: the graph's neighbours and a table of all nodes, in huge pages.
struct BareReads {
  at::Tensor neighbors, table;

  explicit BareReads(const Topology& topology)
      : neighbors(in_huge_pages(topology.csc().indices)),
        table(in_huge_pages(at::ones({topology.num_src()}, at::kInt))) {}

  static at::Tensor in_huge_pages(const at::Tensor& values) {
    at::Tensor copy = at::empty(values.sizes(), at::kInt);
    advise_huge_pages(copy.mutable_data_ptr(), static_cast<std::size_t>(copy.nbytes()));
    return copy.copy_(values);
  }

  void run(std::int64_t edges, std::int64_t threads) const {
    std::vector<std::jthread> workers;
    for (std::int64_t i = 0; i < threads; ++i) {
      workers.emplace_back([this, edges, threads, i] {
        const std::uint64_t sum = read_at_random(
            neighbors.const_data_ptr<std::int32_t>(), static_cast<std::uint64_t>(neighbors.numel()),
            table.const_data_ptr<std::int32_t>(), static_cast<std::uint64_t>(edges / threads),
            static_cast<std::uint64_t>(i));
        asm volatile("" : : "r"(sum));  // keeps the reads
      });
    }
  }
};

std::vector<std::int64_t> thread_counts(std::int64_t threads) {
  if (threads == 1) return {1};
  return {1, threads};
}

std::string threads_text(std::int64_t threads) {
  return threads == 1 ? "1 thread" : fmt::format("{} threads", threads);
}

Comparison make_sampling(const Graph& graph, const SamplingWork& work, std::int64_t threads) {
  const at::Tensor seeds = sampling_seeds(graph, work);
  Comparison comparison;
  std::int64_t edges = 0;
  for (const std::int64_t count : thread_counts(threads)) {
    const auto add = [&](const std::string& name, BlockLoaderOptions options) {
      const auto loader = std::make_shared<BlockLoader>(graph, seeds, std::move(options));
      if (edges == 0) {
        edges = sample_all(*loader);
        comparison.expected = {{as_millions(edges)}};
      }
      const auto run = [loader]() -> Tensors {
        loader->start_at(0);  // the same draws in every round
        return {as_millions(sample_all(*loader))};
      };
      comparison.candidates.push_back({.name = name + threads_text(count),
                                       .is_mezzo = true,
                                       .run = run,
                                       .cost = {.items = edges}});
    };
    add("mezzo, ", bare_options(work, count));
    add("mezzo, with degrees, ", options_with_degrees(work, count));
  }
  const auto bare = std::make_shared<const BareReads>(graph.topology());
  for (const std::int64_t count : thread_counts(threads)) {
    const auto run = [bare, edges, count]() -> Tensors {
      bare->run(edges, count);
      return {as_millions(edges)};
    };
    comparison.candidates.push_back(
        {.name = "bare reads, " + threads_text(count), .run = run, .cost = {.items = edges}});
  }
  return comparison;
}

}  // namespace

std::string text_of(const SamplingWork& work) {
  return fmt::format("[{}], batch {}", fmt::join(work.fanouts, ","), work.batch_size);
}

at::Tensor sampling_seeds(const Graph& graph, const SamplingWork& work) {
  const std::int64_t nodes = graph.num_nodes(), batch_size = std::min(nodes, work.batch_size);
  const std::int64_t num_seeds =
      std::min(nodes, batch_size * std::max<std::int64_t>(work.num_batches, 1));
  // A stride coprime to any power of two visits the nodes of an R-MAT graph evenly.
  const at::Tensor order = at::arange(num_seeds, at::kLong);
  constexpr std::int64_t kStride = 7919;
  return graph.num_nodes() % kStride == 0 ? order
                                          : at::remainder(order * kStride, graph.num_nodes());
}

Plan neighbor_sampling(const Graph& graph, const SamplingWork& work, std::int64_t threads) {
  return {.work = "neighbour sampling " + text_of(work),
          .bytes = graph.num_edges() * 4 + graph.num_nodes() * 4 * (threads + 2),
          .make = [&graph, work, threads] { return make_sampling(graph, work, threads); }};
}

std::string format_rates(const Outcome& outcome) {
  const auto rate = [&outcome](double milliseconds) {
    const auto edges = static_cast<double>(outcome.measurements.front().cost.items);
    return 1e-6 * edges / (1e-3 * milliseconds);
  };
  std::vector<std::vector<std::string>> rows = {
      {"candidate", "M edges/s", "median", "of bare reads"}};
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.skipped.empty()) continue;
    std::string share = "-";
    const std::string threads = measured.name.substr(measured.name.rfind(", "));
    for (const Measurement& bare : outcome.measurements) {
      if (bare.name != "bare reads" + threads || !bare.skipped.empty()) continue;
      share = fmt::format("{:.0f} %", 100 * bare.minimum() / measured.minimum());
    }
    rows.push_back({measured.name, fmt::format("{:.1f}", rate(measured.minimum())),
                    fmt::format("{:.1f}", rate(measured.median())), share});
  }
  return format_table(rows, 1);
}

}  // namespace mezzo::bench
