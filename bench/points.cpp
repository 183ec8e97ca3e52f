// knn_graph on uniform points, compared with the k-d trees of scikit-learn and SciPy, which run as
// processes beside this one, and on few points with libtorch's distances of all pairs.
#include "mezzo/graph/points/points.h"

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/App.hpp>
#include <fmt/format.h>

#include "bench/harness/peer.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

std::int64_t num_points = 1'000'000, num_neighbors = 16;

Tensors distances_of(Peer& peer) {
  at::Tensor result = at::empty({num_points, num_neighbors});
  peer.ask("distances");
  peer.read(result.data_ptr(), result.nbytes());
  return {result};
}

Candidate peer_of(const std::string& library, const at::Tensor& points) {
  const char* const python = std::getenv("MEZZO_PYTHON");
  if (python == nullptr) {
    return {.name = library, .refusal = "MEZZO_PYTHON names no interpreter"};
  }
  const auto peer = std::make_shared<Peer>(
      python,
      std::vector<std::string>{MEZZO_BENCH_PEERS "/neighbors.py", library,
                               std::to_string(points.size(0)), std::to_string(points.size(1)),
                               std::to_string(num_neighbors),
                               std::to_string(at::get_num_threads())},
      points.const_data_ptr(), points.nbytes());
  if (peer->version().empty()) {
    return {.name = library, .refusal = fmt::format("{} cannot import it", python)};
  }
  return {.name = fmt::format("{} {}", library, peer->version()),
          .run =
              [peer] {
                peer->ask("find");
                return Tensors();
              },
          .arrange = [peer](const Tensors&) { return distances_of(*peer); }};
}

Candidate libtorch_pairs(const at::Tensor& points) {
  constexpr std::int64_t kMostPoints = 5'000;
  if (num_points > kMostPoints) {
    return {.name = "libtorch, all pairs", .refusal = "N^2 distances"};
  }
  return {.name = "libtorch, all pairs", .run = [points]() -> Tensors {
            const at::Tensor doubles = points.to(at::kDouble);
            at::Tensor distances = at::cdist(doubles, doubles, 2, /*compute_mode=*/2);
            distances.fill_diagonal_(std::numeric_limits<double>::infinity());
            return {std::get<0>(distances.topk(num_neighbors, 1, /*largest=*/false))};
          }};
}

Comparison make_comparison(std::int64_t dimensions) {
  const at::Tensor points = at::rand({num_points, dimensions});
  Comparison comparison;
  comparison.candidates = {libtorch_pairs(points), peer_of("sklearn", points),
                           peer_of("scipy", points)};
  comparison.candidates.push_back(
      {.name = "mezzo",
       .is_mezzo = true,
       .run = [points]() -> Tensors {
         return {mezzo::knn_graph(points, num_neighbors).topology().csc().indices};
       },
       .arrange = [points](const Tensors& results) -> Tensors {
         const at::Tensor doubles = points.to(at::kDouble);
         const at::Tensor neighbors = doubles.index_select(0, results[0]);
         return {
             (neighbors.view({num_points, num_neighbors, -1}) - doubles.unsqueeze(1)).norm(2, 2)};
       }});
  return comparison;
}

void add_options(CLI::App& app) {
  app.add_option("--points", num_points, "Number of points")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--neighbors", num_neighbors, "Neighbours of a point")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void run(Bench& bench) {
  bench.begin();
  for (const std::int64_t dimensions : bench.arguments.widths) {
    bench.run({.work = fmt::format("{} neighbours, {} points", num_neighbors, num_points),
               .width = dimensions,
               .bytes = num_points * (dimensions + num_neighbors) * 16,
               .make = [dimensions] { return make_comparison(dimensions); }});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {.name = "points",
       .description = "Nearest neighbours beside scikit-learn's and SciPy's k-d trees "
                      "(MEZZO_PYTHON: an interpreter that has them)",
       .widths = {3},
       .width_help = "Dimensions of a point",
       .add_options = add_options,
       .run = run},
      argc, argv);
}
