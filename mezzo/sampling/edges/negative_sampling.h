#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/batch_key.h"

namespace mezzo {

namespace detail {
class EdgeLookup;
}

/// How the destinations of negative edges are drawn.
enum class NegativeDistribution : std::uint8_t {
  kUniform,  ///< every node alike
  kDegree,   ///< in proportion to (edges into it)^0.75, as word2vec draws words
};

/// The most pairs that one call draws.
inline constexpr std::int64_t kMostNegatives = std::int64_t{1} << 31;

/// Which node pairs count as negative.
struct NegativeOptions {
  NegativeDistribution distribution = NegativeDistribution::kUniform;
  bool exclude_edges = true;   ///< no pair that the graph joins by an edge from src to dst
  bool exclude_loops = false;  ///< no pair of a node with itself
};

/// Pairs of nodes: int64 each, on the CPU.
struct NodePairs {
  at::Tensor src, dst;
};

/// Draws pairs of nodes for link prediction. Immutable, for several threads at once. A draw that
/// must not be taken is drawn anew; after 64 tries the allowed pairs are listed, so that the result
/// is distributed as said however few are allowed. Draws are independent: a pair may come twice.
/// pairs() lists them once: O(N + E) time, 8 bytes a source.
class MEZZO_API NegativeSampler {
 public:
  /// topology: on the CPU. Copies the edges as int64 where they are excluded: O(E). Throws
  /// InvalidArgument for a topology that is elsewhere, and for kDegree without an edge.
  explicit NegativeSampler(const Topology& topology, NegativeOptions options = {});

  /// The library's own: with the topology's edges, which several may share, where they are
  /// excluded.
  NegativeSampler(const Topology& topology, NegativeOptions options,
                  std::shared_ptr<const detail::EdgeLookup> edges);

  /// `count` (in [0, kMostNegatives]) pairs: [count] each. Sources are uniform, destinations after
  /// the distribution, given that the pair is allowed. Throws InvalidArgument where no pair is.
  NodePairs pairs(std::int64_t count, const BatchKey& key) const;

  /// `num_negatives` (>= 0) destinations for each of `sources` (integers [n] in [0, num_src)):
  /// int64 [n, num_negatives], at most kMostNegatives in all. Throws InvalidArgument for more, and
  /// one that names a source without an allowed destination.
  at::Tensor destinations(const at::Tensor& sources, std::int64_t num_negatives,
                          const BatchKey& key) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// `count` pairs of nodes without an edge from the first to the second; see NegativeSampler.
/// Equal for equal seeds.
MEZZO_API NodePairs negative_edges(const Topology& topology, std::int64_t count,
                                   NegativeOptions options = {}, std::uint64_t seed = 0);

}  // namespace mezzo
