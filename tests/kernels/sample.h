#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "mezzo/kernels/sampling.h"

/// Graphs and samples for the tests of the uniform samplers.
namespace mezzo::test {

/// CSR rows of the given degrees; the neighbour of entry i is node i * 7 + 1.
template <class Id>
struct Rows {
  explicit Rows(const std::vector<std::int64_t>& degrees) : indptr(degrees.size() + 1) {
    std::partial_sum(degrees.begin(), degrees.end(), indptr.begin() + 1);
    for (std::int64_t i = 0; i < indptr.back(); ++i) indices.push_back(static_cast<Id>(i * 7 + 1));
  }
  kernels::NeighborRows<Id> view() const {
    return {indptr.data(), indices.data(), static_cast<std::int64_t>(indptr.size()) - 1, nullptr};
  }
  std::vector<std::int64_t> indptr;
  std::vector<Id> indices;
};

/// Memory for a sample of the neighbours of `nodes`; ids that are not sampled yet are -1.
template <class Id>
struct Sample {
  Sample(const Rows<Id>& rows, const std::vector<Id>& nodes, kernels::DrawCount fanout)
      : count(fanout), begins(nodes.size()), degrees(nodes.size()), offsets(nodes.size() + 1) {
    const std::int64_t max_degree =
        kernels::find_rows<Id>(rows.view(), nodes.data(), static_cast<std::int64_t>(nodes.size()),
                               count, {begins.data(), degrees.data(), offsets.data()});
    scratch.resize(static_cast<std::size_t>(kernels::uniform_scratch_words(count, max_degree)));
    entries.assign(static_cast<std::size_t>(offsets.back()), -1);
    neighbors = entries;
  }
  /// Arguments that sample the nodes [first, last).
  kernels::UniformDraws<Id> args(const Rows<Id>& rows, std::int64_t first, std::int64_t last,
                                 kernels::DrawKey key) {
    return {.rows = rows.view(),
            .ranges = {begins.data(), degrees.data(), offsets.data()},
            .first = first,
            .last = last,
            .count = count,
            .key = key,
            .scratch = scratch.data(),
            .entries = entries.data(),
            .neighbors = neighbors.data()};
  }

  kernels::DrawCount count;
  std::vector<std::int64_t> begins, degrees, offsets;
  std::vector<std::uint64_t> scratch;
  std::vector<Id> entries, neighbors;
};

}  // namespace mezzo::test
