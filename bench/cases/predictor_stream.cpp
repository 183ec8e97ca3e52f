#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/table.h"
#include "mezzo/predict/predictor.h"

#include "bench/cases/predictors.h"

namespace mezzo::bench {
namespace {

/// How often each edge is there, or how often more than before.
using EdgeCounts = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

/// The sum of some changes.
struct Changes {
  std::int64_t num_nodes = 0;  ///< that are there after them
  EdgeCounts edges;
};

struct EdgeStream {
  std::int64_t num_changes = 0;
  std::vector<Changes> batches;
};

EdgeStream read_stream(const std::string& path, std::int64_t batch) {
  MEZZO_CHECK(batch > 0, "--batch: expected at least 1, got {}", batch);
  std::ifstream file(path);
  EdgeStream stream;
  std::int64_t num_nodes = 1;
  std::string sign;
  for (std::int64_t src = 0, dst = 0; file >> sign; ++stream.num_changes) {
    if (!(file >> src >> dst) || (sign != "+" && sign != "-") || std::min(src, dst) < 0) {
      detail::raise<IoError>("{}: expected + or - and two nodes in line {}", path,
                             stream.num_changes + 1);
    }
    if (stream.num_changes % batch == 0) stream.batches.emplace_back();
    num_nodes = std::max({num_nodes, src + 1, dst + 1});
    Changes& changes = stream.batches.back();
    changes.num_nodes = num_nodes;
    changes.edges[{src, dst}] += sign == "+" ? 1 : -1;
  }
  if (stream.num_changes == 0) detail::raise<IoError>("{}: expected changes, got none", path);
  return stream;
}

struct Ends {
  at::Tensor src, dst;
};

/// Each edge as often as it is there: `sign` 1, or as it is missing: -1.
Ends ends_of(const EdgeCounts& counts, std::int64_t sign) {
  std::vector<std::int64_t> src, dst;
  for (const auto& [edge, count] : counts) {
    for (std::int64_t i = 0; i < sign * count; ++i) {
      src.push_back(edge.first);
      dst.push_back(edge.second);
    }
  }
  return {at::tensor(src, at::kLong), at::tensor(dst, at::kLong)};
}

/// A resident Predictor that follows a stream.
class Follower {
 public:
  Follower(nn::Model model, amp::Precision precision, at::Tensor features)
      : model_(std::move(model)),
        precision_(precision),
        features_(std::move(features)),
        predictor_(fresh(/*resident=*/true)),
        rows_(predictor_.predict()) {}

  void apply(const Changes& changes) {
    const Ends less = ends_of(changes.edges, -1), more = ends_of(changes.edges, 1);
    const std::int64_t first = num_nodes_;
    num_nodes_ = changes.num_nodes;
    seconds_ += seconds_of([&] {
      if (num_nodes_ > first) predictor_.add_nodes(features_.narrow(0, first, num_nodes_ - first));
      if (less.src.numel() > 0) predictor_.remove_edges(less.src, less.dst);
      if (more.src.numel() > 0) predictor_.add_edges(more.src, more.dst);
      predictor_.refresh();
    });
    const at::Tensor before = std::exchange(rows_, predictor_.predict());
    const at::Tensor changed = words(rows_.narrow(0, 0, first)).ne(words(before)).any(1);
    changed_rows_ += changed.sum().item<std::int64_t>() + num_nodes_ - first;
    for (const auto& [edge, count] : changes.edges) {
      if ((edges_[edge] += count) == 0) edges_.erase(edge);
    }
  }

  /// Elements whose bits are not those of a new Predictor.
  std::int64_t faults() const {
    return differing_elements(rows_, fresh(/*resident=*/false).predict());
  }
  double seconds() const { return seconds_; }
  std::int64_t changed_rows() const { return changed_rows_; }
  std::int64_t num_nodes() const { return num_nodes_; }
  std::int64_t num_edges() const { return predictor_.num_edges(); }

 private:
  Predictor fresh(bool resident) const {
    const Ends ends = ends_of(edges_, 1);
    return Predictor(model_, Topology::from_coo(ends.src, ends.dst, num_nodes_, num_nodes_),
                     features_.narrow(0, 0, num_nodes_),
                     {.resident = resident, .precision = precision_});
  }

  nn::Model model_;
  amp::Precision precision_;
  at::Tensor features_;  ///< of all nodes that will be there
  std::int64_t num_nodes_ = 1, changed_rows_ = 0;
  EdgeCounts edges_;
  double seconds_ = 0;  ///< of updates and of their rows
  Predictor predictor_;
  at::Tensor rows_;  ///< its outputs
};

}  // namespace

void run_stream(Bench& bench, std::int64_t layers, const std::string& path, std::int64_t batch) {
  const EdgeStream stream = read_stream(path, batch);
  const std::int64_t width = bench.arguments.widths.front();
  const at::Tensor features = at::randn({stream.batches.back().num_nodes, width});
  const std::size_t tenth = std::max<std::size_t>(1, stream.batches.size() / 10);
  bench.begin();
  std::vector<std::vector<std::string>> rows = {{"model", "precision", "updates", "updates/s",
                                                 "changed rows an update", "nodes", "edges",
                                                 "comparisons", "differing elements"}};
  for (const nn::ModelKind kind : kPredictorKinds) {
    for (const amp::Precision precision : bench.arguments.precisions) {
      Follower follower(predictor_model(kind, width, layers), precision, features);
      std::int64_t faults = 0, comparisons = 0;
      for (std::size_t i = 0; i < stream.batches.size(); ++i) {
        if (interrupted()) return;
        follower.apply(stream.batches[i]);
        if ((i + 1) % tenth != 0 && i + 1 < stream.batches.size()) continue;
        faults += follower.faults();
        ++comparisons;
      }
      if (faults > 0) {
        detail::raise<LogicError>("{}: {} elements of {} in {} differ", path, faults,
                                  nn::to_string(kind), amp::to_string(precision));
      }
      const auto updates = static_cast<double>(stream.num_changes);
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision)),
                      std::to_string(stream.num_changes),
                      fmt::format("{:.0f}", updates / follower.seconds()),
                      fmt::format("{:.1f}", static_cast<double>(follower.changed_rows()) / updates),
                      std::to_string(follower.num_nodes()), std::to_string(follower.num_edges()),
                      std::to_string(comparisons), std::to_string(faults)});
    }
  }
  std::cout << format_table(rows, 2) << std::flush;
}

}  // namespace mezzo::bench
