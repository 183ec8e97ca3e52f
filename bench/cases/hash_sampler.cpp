#include "bench/cases/hash_sampler.h"

#include <random>
#include <unordered_map>
#include <unordered_set>

namespace mezzo::bench {
namespace {

/// Samples entries of a row: all if it is short, else `fanout` distinct ones (Floyd's algorithm).
std::vector<std::int64_t> draw_entries(std::int64_t begin, std::int64_t degree, std::int64_t fanout,
                                       std::mt19937_64& generator) {
  std::vector<std::int64_t> entries;
  if (degree <= fanout) {
    for (std::int64_t i = 0; i < degree; ++i) entries.push_back(begin + i);
    return entries;
  }
  std::unordered_set<std::int64_t> chosen;
  for (std::int64_t last = degree - fanout; last < degree; ++last) {
    const auto drawn =
        static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(last + 1));
    const std::int64_t entry = chosen.count(drawn) > 0 ? last : drawn;
    chosen.insert(entry);
    entries.push_back(begin + entry);
  }
  return entries;
}

}  // namespace

std::vector<HashHop> sample_by_hash_map(const Rows& rows, const std::vector<std::int64_t>& seeds,
                                        const std::vector<std::int64_t>& fanouts,
                                        std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::unordered_map<std::int64_t, std::int64_t> local;
  std::vector<std::int64_t> nodes;
  const auto number_of = [&](std::int64_t node) {
    const auto [position, is_new] = local.emplace(node, static_cast<std::int64_t>(nodes.size()));
    if (is_new) nodes.push_back(node);
    return position->second;
  };
  for (const std::int64_t node : seeds) number_of(node);

  std::vector<HashHop> hops;
  for (auto fanout = fanouts.rbegin(); fanout != fanouts.rend(); ++fanout) {
    HashHop hop;
    const std::size_t num_dst = nodes.size();
    for (std::size_t dst = 0; dst < num_dst; ++dst) {
      const std::int64_t begin = rows.indptr[nodes[dst]];
      const std::int64_t degree = rows.indptr[nodes[dst] + 1] - begin;
      for (const std::int64_t entry : draw_entries(begin, degree, *fanout, generator)) {
        hop.src.push_back(number_of(rows.indices[entry]));
        hop.dst.push_back(static_cast<std::int64_t>(dst));
      }
    }
    hops.push_back(std::move(hop));
  }
  return hops;
}

}  // namespace mezzo::bench
