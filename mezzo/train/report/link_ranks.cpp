#include "mezzo/train/report/link_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/ops/ops.h"

namespace mezzo {
namespace {

constexpr std::int64_t kScoresPerChunk = 1 << 24;

/// How many nodes are in front of the answer, and how many share its score, without itself.
struct Place {
  std::int64_t above = 0, equal = 0;

  double rank() const { return 1 + static_cast<double>(above) + static_cast<double>(equal) / 2; }
};

Place place_of(const float* scores, std::int64_t num_nodes, float answer) {
  if (std::isnan(answer)) return {.above = num_nodes - 1, .equal = 0};
  std::int64_t below = 0, equal = 0;
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    below += scores[node] < answer ? 1 : 0;
    equal += scores[node] == answer ? 1 : 0;
  }
  return {.above = num_nodes - below - equal, .equal = equal - 1};
}

void remove(Place& place, float score, float answer) {
  if (score == answer) {
    --place.equal;
  } else if (!(score < answer)) {
    --place.above;
  }
}

}  // namespace

LinkRanks link_ranks(const at::Tensor& queries, const at::Tensor& nodes, const at::Tensor& answers,
                     const KnownAnswers& known) {
  const std::int64_t count = queries.size(0), num_nodes = nodes.size(0);
  LinkRanks ranks{.raw = at::empty({count}, at::kDouble),
                  .filtered = at::empty({count}, at::kDouble)};
  auto *raw = ranks.raw.mutable_data_ptr<double>(),
       *filtered = ranks.filtered.mutable_data_ptr<double>();
  const auto *answer = answers.const_data_ptr<std::int64_t>(),
             *offset = known.offsets.const_data_ptr<std::int64_t>(),
             *others = known.nodes.const_data_ptr<std::int64_t>();
  const std::int64_t chunk = std::max<std::int64_t>(1, kScoresPerChunk / num_nodes);
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t rows = std::min(chunk, count - first);
    const at::Tensor scores =
        mezzo::linear(queries.narrow(0, first, rows), nodes).cpu().contiguous();
    const auto* score = scores.const_data_ptr<float>();
    at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float* const of_row = score + i * num_nodes;
        const std::int64_t query = first + i;
        const float own = of_row[answer[query]];
        Place place = place_of(of_row, num_nodes, own);
        raw[query] = place.rank();
        for (std::int64_t k = offset[query]; k < offset[query + 1]; ++k) {
          remove(place, of_row[others[k]], own);
        }
        filtered[query] = place.rank();
      }
    });
  }
  return ranks;
}

at::Tensor ranks_among(const at::Tensor& scores, const at::Tensor& others) {
  const at::Tensor own = scores.unsqueeze(1);
  const at::Tensor below = others.lt(own).sum(1), equal = others.eq(own).sum(1);
  return (1 + others.size(1) - below - equal.to(at::kDouble) / 2).cpu();
}

double hits_above(const at::Tensor& scores, const at::Tensor& others, std::int64_t count) {
  if (others.numel() < count) return 1;
  const at::Tensor least = std::get<0>(others.topk(count)).select(0, count - 1);
  return scores.gt(least).to(at::kDouble).mean().item<double>();
}

double mean_reciprocal_rank(const at::Tensor& ranks) {
  // at::sum splits by the number of threads, which changes the last bits.
  const auto* rank = ranks.const_data_ptr<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < ranks.numel(); ++i) sum += 1 / rank[i];
  return sum / static_cast<double>(ranks.numel());
}

double hits_at(const at::Tensor& ranks, double most) {
  return ranks.le(most).to(at::kDouble).mean().item<double>();
}

}  // namespace mezzo
