#pragma once

#include <cstdint>
#include <vector>

namespace mezzo::bench {

/// A graph's rows by destination.
struct Rows {
  const std::int64_t* indptr = nullptr;
  const std::int32_t* indices = nullptr;
};

/// Edges of one hop between nodes by their local numbers.
struct HashHop {
  std::vector<std::int64_t> src, dst;
};

/// A mini-batch of neighbours, drawn and renumbered as most systems do it: 64-bit ids, a node-based
/// hash map from ids to local numbers, a hash set for each row's distinct draws, a vector a row, a
/// sequential generator. The same work as BlockSampler's: `fanouts` (the seeds' hop last) distinct
/// neighbours per node, destinations first, then new nodes in the order drawn. Returns the hops,
/// seeds' hop first.
std::vector<HashHop> sample_by_hash_map(const Rows& rows, const std::vector<std::int64_t>& seeds,
                                        const std::vector<std::int64_t>& fanouts,
                                        std::uint64_t seed);

}  // namespace mezzo::bench
