#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// For each of n queries the other nodes that are right answers: nodes[offsets[i]] to
/// nodes[offsets[i + 1] - 1], without duplicates and without the answer that is ranked. Both int64
/// on the CPU.
struct KnownAnswers {
  at::Tensor offsets, nodes;
};

/// The ranks of n answers, float64 [n] on the CPU: 1 is the best; equal scores share the mean of
/// their ranks.
struct LinkRanks {
  at::Tensor raw;       ///< among all nodes
  at::Tensor filtered;  ///< among all nodes without the known answers
};

/// Ranks node answers[i] by its dot product with queries[i]. A NaN counts as above every other
/// score, and the NaN of the answer as the last of all. queries: float32 [n, F]; nodes: float32
/// [N, F], on the same device; answers: int64 [n] in [0, N), on the CPU. Multiplies in chunks of at
/// most 64 MB of scores by linear(). Checks nothing. The same ranks for any number of threads,
/// except as linear().
MEZZO_API LinkRanks link_ranks(const at::Tensor& queries, const at::Tensor& nodes,
                               const at::Tensor& answers, const KnownAnswers& known);

/// The ranks of n scores, each among the K others in its row: float64 [n] on the CPU. NaN as in
/// link_ranks(). scores: floating [n]; others: floating [n, K]; on one device. Checks nothing;
/// synchronises.
MEZZO_API at::Tensor ranks_among(const at::Tensor& scores, const at::Tensor& others);

/// The share of `scores` above the `count`-th largest of `others`, 1 if there are fewer: hits@count
/// of OGB. A NaN counts as above every number in `others`, and as above nothing in `scores`. Both
/// floating [n] and [m], n > 0. Synchronises.
MEZZO_API double hits_above(const at::Tensor& scores, const at::Tensor& others, std::int64_t count);

/// The mean of 1 / rank. ranks: float64 [n] on the CPU, contiguous, n > 0.
MEZZO_API double mean_reciprocal_rank(const at::Tensor& ranks);
/// The share of the ranks up to `most`.
MEZZO_API double hits_at(const at::Tensor& ranks, double most);

}  // namespace mezzo
