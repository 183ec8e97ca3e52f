// knn_graph on uniform points, compared with the k-d trees of scikit-learn and SciPy, which run as
// processes beside this one, and on few points with libtorch's distances of all pairs.
#include "mezzo/graph/points/points.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/App.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/core/error.h"

#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

std::int64_t num_points = 1'000'000, num_neighbors = 16;
std::string script = MEZZO_BENCH_PEERS "/neighbors.py";

/// A process of bench/peers/neighbors.py.
class Peer {
 public:
  Peer(const std::string& python, const std::string& library, const at::Tensor& points) {
    std::array<int, 2> to_peer = {}, from_peer = {};
    if (::pipe2(to_peer.data(), O_CLOEXEC) != 0 || ::pipe2(from_peer.data(), O_CLOEXEC) != 0) {
      throw mezzo::IoError("points: no pipe to a peer");
    }
    const std::vector<std::string> words = {python,
                                            script,
                                            library,
                                            std::to_string(points.size(0)),
                                            std::to_string(points.size(1)),
                                            std::to_string(num_neighbors),
                                            std::to_string(at::get_num_threads())};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to_peer[0], STDIN_FILENO);
      ::dup2(from_peer[1], STDOUT_FILENO);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(to_peer[0]);
    ::close(from_peer[1]);
    in_ = ::fdopen(to_peer[1], "w");
    out_ = ::fdopen(from_peer[0], "r");
    std::fwrite(points.const_data_ptr(), 4, static_cast<std::size_t>(points.numel()), in_);
    version = ask("");
  }
  ~Peer() {
    std::fclose(in_);
    std::fclose(out_);
    ::waitpid(process_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The line that answers `line`; empty if the process has ended.
  std::string ask(const std::string& line) {
    std::fputs(line.c_str(), in_);
    std::fflush(in_);
    std::array<char, 64> answer = {};
    if (std::fgets(answer.data(), answer.size(), out_) == nullptr) return "";
    return std::string(answer.data()).substr(0, std::string(answer.data()).find('\n'));
  }

  Tensors distances() {
    at::Tensor result = at::empty({num_points, num_neighbors});
    const auto count = static_cast<std::size_t>(result.numel());
    const bool complete =
        !ask("distances\n").empty() && std::fread(result.data_ptr(), 4, count, out_) == count;
    if (!complete) throw mezzo::IoError("neighbors.py ended");
    return {result};
  }

  std::string version;  ///< empty if it cannot run

 private:
  pid_t process_ = -1;
  std::FILE *in_ = nullptr, *out_ = nullptr;
};

Candidate peer_of(const std::string& library, const at::Tensor& points) {
  const char* const python = std::getenv("MEZZO_PYTHON");
  if (python == nullptr) {
    return {.name = library, .refusal = "MEZZO_PYTHON names no interpreter"};
  }
  const auto peer = std::make_shared<Peer>(python, library, points);
  if (peer->version.empty()) {
    return {.name = library, .refusal = fmt::format("{} cannot import it", python)};
  }
  return {.name = fmt::format("{} {}", library, peer->version),
          .run =
              [peer] {
                if (peer->ask("find\n").empty()) throw mezzo::IoError("neighbors.py ended");
                return Tensors();
              },
          .arrange = [peer](const Tensors&) { return peer->distances(); }};
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
  std::signal(SIGPIPE, SIG_IGN);
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
