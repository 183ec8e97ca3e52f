#include "mezzo/train/metrics.h"

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"

#include "support/npy_writer.h"
#include "support/special_numbers.h"

namespace mezzo {
namespace {

using test::kNaN;

at::Tensor bools(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong).to(at::kBool);
}

at::Tensor labels_of(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

/// The definition: pairs of a positive and a negative, ties count one half.
double pairs_won(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& mask) {
  double won = 0, pairs = 0;
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    for (std::int64_t j = 0; j < labels.size(0); ++j) {
      if (!mask[i].item<bool>() || !mask[j].item<bool>()) continue;
      if (labels[i].item<std::int64_t>() != 1 || labels[j].item<std::int64_t>() != 0) continue;
      const double a = scores[i].item<double>(), b = scores[j].item<double>();
      won += a > b ? 1 : a == b ? 0.5 : 0;
      pairs += 1;
    }
  }
  return won / pairs;
}

TEST(Accuracy, counts_the_masked_rows_only) {
  const at::Tensor logits = at::tensor({1.0, 2.0, 3.0, 0.0, 0.0, 5.0, 7.0, 1.0}).view({4, 2});
  const at::Tensor labels = labels_of({1, 0, 0, 1});
  EXPECT_EQ(accuracy(logits, labels, bools({1, 1, 1, 1})), 0.5);
  EXPECT_EQ(accuracy(logits, labels, bools({1, 1, 0, 0})), 1.0);
  EXPECT_EQ(accuracy(logits, labels, bools({0, 0, 1, 1})), 0.0);
}

TEST(Accuracy, the_lowest_class_wins_ties) {
  const at::Tensor logits = at::tensor({2.0, 2.0, 1.0, 3.0, 1.0, 3.0}).view({2, 3});
  EXPECT_EQ(accuracy(logits, labels_of({0, 0}), bools({1, 1})), 1.0);
  EXPECT_EQ(accuracy(logits, labels_of({1, 2}), bools({1, 1})), 0.0);
}

TEST(Accuracy, a_row_with_nan_is_wrong_whatever_its_label) {
  const at::Tensor logits = at::tensor({kNaN, 1.0, 1.0, kNaN}).view({2, 2});
  for (const std::int64_t label : {0, 1}) {
    EXPECT_EQ(accuracy(logits, labels_of({label, label}), bools({1, 1})), 0.0);
  }
}

TEST(Accuracy, reads_sixteen_bit_logits) {
  const at::Tensor logits = at::tensor({1.0, 2.0, 4.0, 3.0}).view({2, 2});
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
    EXPECT_EQ(accuracy(logits.to(dtype), labels_of({1, 0}), bools({1, 1})), 1.0);
  }
}

TEST(RocAuc, equals_the_share_of_won_pairs_with_and_without_ties) {
  for (const std::uint64_t levels : {2, 5, 1000000}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      std::vector<double> scores;
      std::vector<std::int64_t> labels, mask;
      for (std::uint64_t i = 0; i < 40; ++i) {
        scores.push_back(static_cast<double>(random_below(levels, seed, 1, i)));
        labels.push_back(static_cast<std::int64_t>(random_below(2, seed, 2, i)));
        mask.push_back(static_cast<std::int64_t>(random_below(4, seed, 3, i)) != 0 ? 1 : 0);
      }
      const at::Tensor s = at::tensor(scores, at::kDouble);
      // Sums of halves below 2^53 are exact, and both sides divide the same two numbers.
      EXPECT_EQ(roc_auc(s, labels_of(labels), bools(mask)),
                pairs_won(s, labels_of(labels), bools(mask)))
          << levels << " levels, seed " << seed;
    }
  }
}

TEST(RocAuc, knows_the_extremes) {
  const at::Tensor labels = labels_of({0, 0, 1, 1});
  const at::Tensor all = bools({1, 1, 1, 1});
  EXPECT_EQ(roc_auc(at::tensor({0.0, 1.0, 2.0, 3.0}), labels, all), 1.0);
  EXPECT_EQ(roc_auc(at::tensor({3.0, 2.0, 1.0, 0.0}), labels, all), 0.0);
  EXPECT_EQ(roc_auc(at::tensor({7.0, 7.0, 7.0, 7.0}), labels, all), 0.5);
}

TEST(RocAuc, refuses_what_has_no_area) {
  const at::Tensor scores = at::tensor({0.0, 1.0, 2.0});
  const at::Tensor all = bools({1, 1, 1});
  EXPECT_TRUE(test::throws<InvalidArgument>(
      [&] {
        roc_auc(scores, labels_of({1, 1, 1}), all);
      },
      {"both labels"}));
  EXPECT_TRUE(test::throws<InvalidArgument>(
      [&] {
        roc_auc(scores, labels_of({0, 1, 2}), all);
      },
      {"labels 0 and 1", "2"}));
  EXPECT_TRUE(test::throws<NumericError>(
      [&] {
        roc_auc(at::tensor({0.0, kNaN, 1.0}), labels_of({0, 1, 1}), all);
      },
      {"NaN"}));
}

TEST(Metrics, wrong_columns_are_refused) {
  const at::Tensor logits = at::zeros({3, 2});
  const at::Tensor labels = labels_of({0, 1, 0});
  const at::Tensor all = bools({1, 1, 1});
  struct Case {
    const char* part;
    at::Tensor logits, labels, mask;
  };
  const std::vector<Case> cases = {
      {"logits", at::zeros({3}), labels, all},
      {"logits", at::zeros({3, 2}, at::kLong), labels, all},
      {"logits", at::Tensor(), labels, all},
      {"labels", logits, labels_of({0, 1}), all},
      {"labels", logits, at::zeros({3}), all},
      {"mask", logits, labels, bools({1, 1})},
      {"mask", logits, labels, labels_of({1, 1, 1})},
      {"mask has no nodes", logits, labels, bools({0, 0, 0})},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(test::throws<InvalidArgument>([&] { accuracy(c.logits, c.labels, c.mask); },
                                              {"accuracy", c.part}));
  }
}

}  // namespace
}  // namespace mezzo
