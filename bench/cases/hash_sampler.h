#pragma once

#include <cstdint>
#include <vector>

namespace mezzo::bench {

/// A graph's rows by destination.
struct Rows {
  const std::int64_t* indptr = nullptr;
  const std::int32_t* indices = nullptr;
};

/// Edges of one hop, with local node ids.
struct HashHop {
  std::vector<std::int64_t> src, dst;
};

/// Samples and relabels a mini-batch the common way: 64-bit ids, a node-based hash map to local
/// ids, a hash set and a vector per row, a sequential generator. Does the work of BlockSampler:
/// `fanouts` (the seeds' hop last) distinct neighbours per node, destinations first, then new nodes
/// in the order drawn. Returns the hops, seeds' hop first.
std::vector<HashHop> sample_by_hash_map(const Rows& rows, const std::vector<std::int64_t>& seeds,
                                        const std::vector<std::int64_t>& fanouts,
                                        std::uint64_t seed);

}  // namespace mezzo::bench
