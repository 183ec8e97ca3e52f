// Sums over so many edges that one float32 accumulator would lose digits.
#include <cmath>

#include "mezzo/graph/topology.h"
#include "mezzo/ops/ops.h"

#include "support/tensors.h"

namespace mezzo::test::long_rows_test {
namespace {

/// The maximum relative error of `got`.
double relative_error(const at::Tensor& got, double expected) {
  return (got.detach().to(at::kDouble) / expected - 1).abs().max().item<double>();
}

/// The relative error of a sum of `count` numbers of one sign with a few roundings each, summed
/// sequentially in blocks of about 1000; the block sums are then summed sequentially.
double sum_error(double count) {
  constexpr double kApart = 2048, kOfOne = 16, kRounding = 0x1p-24;
  return (kApart + count / 1024 + kOfOne) * kRounding;
}

constexpr std::int64_t kHeads[] = {1, 4, 16, 17};

TEST(LongRows, attention_keeps_its_digits_for_any_number_of_heads) {
  constexpr std::int64_t kEdges = 500'000;
  const at::Tensor ids = at::arange(kEdges, on_device(at::kLong));
  const Topology star = Topology::from_coo(ids, at::zeros_like(ids), kEdges, 1);
  for (const std::int64_t heads : kHeads) {
    SCOPED_TRACE(heads);
    // One exponential is 1, all others are 0.7.
    at::Tensor scores = at::full({kEdges, heads}, 1 + std::log(0.7), on_device(at::kFloat));
    scores[kEdges - 1].fill_(1);
    const at::Tensor z = at::full({kEdges, heads, 1}, 0.1, on_device(at::kFloat));
    const at::Tensor got =
        gat_attention(star, z, scores, at::zeros({1, heads}, on_device(at::kFloat)));
    // A quotient of two sums.
    EXPECT_LT(relative_error(got, static_cast<double>(0.1F)), 2 * sum_error(kEdges));
  }
}

TEST(LongRows, of_a_source_get_scores_gradients_that_keep_their_digits) {
  constexpr std::int64_t kNodes = 300'000;
  const at::Tensor ids = at::arange(kNodes, on_device(at::kLong));
  // Each destination has an edge from both sources.
  const Topology two = Topology::from_coo(at::cat({at::zeros_like(ids), at::ones_like(ids)}),
                                          at::cat({ids, ids}), 2, kNodes);
  const float gap = std::log(0.7F);
  const double share =
      std::exp(static_cast<double>(gap)) / (1 + std::exp(static_cast<double>(gap)));
  for (const std::int64_t heads : kHeads) {
    SCOPED_TRACE(heads);
    at::Tensor z = at::zeros({2, heads, 1}, on_device(at::kFloat));
    z[0].fill_(1);
    at::Tensor scores = at::full({2, heads}, 1, on_device(at::kFloat));
    scores[0].add_(gap);
    const at::Tensor sent = leaf(scores), rows = leaf(z);
    gat_attention(two, rows, sent, at::zeros({kNodes, heads}, on_device(at::kFloat)))
        .sum()
        .backward();
    const double expected = share * (1 - share) * kNodes;
    EXPECT_LT(relative_error(sent.grad()[0], expected), sum_error(kNodes));
    EXPECT_LT(relative_error(rows.grad()[0], share * kNodes), sum_error(kNodes));
  }
}

}  // namespace
}  // namespace mezzo::test::long_rows_test
