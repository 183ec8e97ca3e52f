#include "mezzo/train/report/metrics.h"

#include "mezzo/core/random.h"
#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"
#include "support/special_numbers.h"
#include "support/tolerance.h"

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

TEST(ConfusionMatrix, has_true_classes_as_rows) {
  const at::Tensor logits =
      at::tensor({2.0, 1.0, 1.0, 0.0, 5.0, 5.0, 0.0, 3.0, 1.0, kNaN, 0.0, 9.0, 9.0, 0.0, 0.0})
          .view({5, 3});
  const at::Tensor labels = labels_of({0, 2, 2, 1, 1}), mask = bools({1, 1, 1, 1, 0});
  const at::Tensor expected = at::tensor({1, 0, 0, 0, 0, 0, 0, 2, 0}, at::kLong).view({3, 3});
  EXPECT_TRUE(at::equal(confusion_matrix(logits, labels, mask), expected));
  EXPECT_THROW(confusion_matrix(logits, labels, bools({0, 0, 0, 0, 0})), InvalidArgument);
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

TEST(RocAuc, covers_the_extremes) {
  const at::Tensor labels = labels_of({0, 0, 1, 1});
  const at::Tensor all = bools({1, 1, 1, 1});
  EXPECT_EQ(roc_auc(at::tensor({0.0, 1.0, 2.0, 3.0}), labels, all), 1.0);
  EXPECT_EQ(roc_auc(at::tensor({3.0, 2.0, 1.0, 0.0}), labels, all), 0.0);
  EXPECT_EQ(roc_auc(at::tensor({7.0, 7.0, 7.0, 7.0}), labels, all), 0.5);
}

TEST(RocAuc, without_an_area_is_refused) {
  const at::Tensor scores = at::tensor({0.0, 1.0, 2.0});
  const at::Tensor all = bools({1, 1, 1});
  EXPECT_THROWS(InvalidArgument, "both labels", roc_auc(scores, labels_of({1, 1, 1}), all));
  EXPECT_THROWS(InvalidArgument, test::fragments("labels 0 and 1", "2"),
                roc_auc(scores, labels_of({0, 1, 2}), all));
  EXPECT_THROWS(NumericError, "NaN",
                roc_auc(at::tensor({0.0, kNaN, 1.0}), labels_of({0, 1, 1}), all));
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
    EXPECT_THROWS(InvalidArgument, test::fragments("accuracy", c.part),
                  accuracy(c.logits, c.labels, c.mask));
  }
}

/// Entries of 0, 1 and, for one in five, kNoEntry.
at::Tensor drawn_entries(std::int64_t rows, std::int64_t classes, std::uint64_t seed) {
  at::Tensor entries = at::empty({rows, classes}, at::kByte);
  auto* entry = entries.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < entries.numel(); ++i) {
    const auto draw = random_below(5, seed, 4, static_cast<std::uint64_t>(i));
    entry[i] = draw == 4 ? kNoEntry : static_cast<std::uint8_t>(draw % 2);
  }
  return entries;
}

/// Integers around 0, so that there are ties.
at::Tensor drawn_logits(std::int64_t rows, std::int64_t classes, std::uint64_t seed) {
  at::Tensor logits = at::empty({rows, classes});
  auto* logit = logits.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    logit[i] = static_cast<float>(random_below(9, seed, 5, static_cast<std::uint64_t>(i))) - 4;
  }
  return logits;
}

at::Tensor drawn_mask(std::int64_t rows, std::uint64_t seed) {
  std::vector<std::int64_t> mask;
  for (std::int64_t i = 0; i < rows; ++i) {
    mask.push_back(random_below(4, seed, 6, static_cast<std::uint64_t>(i)) != 0 ? 1 : 0);
  }
  return bools(mask);
}

TEST(MicroF1, is_the_harmonic_mean_of_precision_and_recall_over_all_known_entries) {
  constexpr std::int64_t kRows = 30, kColumns = 4;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const at::Tensor logits = drawn_logits(kRows, kColumns, seed);
    const at::Tensor entries = drawn_entries(kRows, kColumns, seed), mask = drawn_mask(kRows, seed);
    double right = 0, predicted = 0, positive = 0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const auto entry = entries[i][c].item<std::uint8_t>();
        if (!mask[i].item<bool>() || entry == kNoEntry) continue;
        const bool says = logits[i][c].item<float>() > 0;
        right += says && entry == 1 ? 1 : 0;
        predicted += says ? 1 : 0;
        positive += entry;
      }
    }
    const double precision = right / predicted, recall = right / positive;
    EXPECT_TRUE(test::near_number(micro_f1(logits, entries, mask),
                                  2 * precision * recall / (precision + recall), /*steps=*/8));
  }
}

TEST(MicroF1, covers_the_extremes_and_counts_nan_as_wrong) {
  const at::Tensor entries = at::tensor({1, 0, 0, 1}, at::kByte).view({2, 2});
  const at::Tensor all = bools({1, 1});
  const auto score = [&](const std::vector<double>& logits) {
    return micro_f1(at::tensor(logits).view({2, 2}), entries, all);
  };
  EXPECT_EQ(score({1, 0, -1, 2}), 1.0) << "a logit of 0 predicts nothing";
  EXPECT_EQ(score({-1, 1, 1, -1}), 0.0);
  EXPECT_EQ(score({-1, -1, -1, -1}), 0.0);
  EXPECT_EQ(score({kNaN, -1, -1, 1}), 2.0 / 3) << "one right, one missed";
  EXPECT_EQ(score({1, kNaN, -1, 1}), 0.8) << "two right, one too many";
  EXPECT_EQ(micro_f1(-at::ones({2, 2}), at::zeros({2, 2}, at::kByte), all), 0.0);
}

TEST(MeanRocAuc, is_the_mean_of_the_shares_of_won_pairs_where_a_class_has_both) {
  constexpr std::int64_t kRows = 40, kColumns = 4;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const at::Tensor logits = drawn_logits(kRows, kColumns, seed);
    const at::Tensor entries = drawn_entries(kRows, kColumns, seed), mask = drawn_mask(kRows, seed);
    // One class without an entry of 0 in the mask: it does not count.
    entries.select(1, 2).masked_fill_(entries.select(1, 2).eq(0).logical_and(mask), 1);
    EXPECT_TRUE(at::equal(classes_with_roc_auc(entries, mask), bools({1, 1, 0, 1})));
    double sum = 0;
    for (const std::int64_t c : {0, 1, 3}) {
      const at::Tensor column = entries.select(1, c);
      sum += pairs_won(logits.select(1, c), column.to(at::kLong),
                       mask.logical_and(column.ne(kNoEntry)));
    }
    EXPECT_TRUE(test::near_number(mean_roc_auc(logits, entries, mask), sum / 3, /*steps=*/8));
  }
}

TEST(MeanRocAuc, without_a_class_that_has_both_is_refused) {
  const at::Tensor entries = at::tensor({1, 0, 1, 255}, at::kByte).view({2, 2});
  const at::Tensor all = bools({1, 1});
  EXPECT_FALSE(classes_with_roc_auc(entries, all).any().item<bool>());
  EXPECT_THROWS(InvalidArgument, test::fragments("mean_roc_auc", "no class"),
                mean_roc_auc(at::zeros({2, 2}), entries, all));
}

TEST(Metrics, wrong_columns_of_several_labels_are_refused) {
  const at::Tensor logits = at::zeros({3, 2}), entries = at::zeros({3, 2}, at::kByte);
  const at::Tensor all = bools({1, 1, 1});
  struct Case {
    const char* part;
    at::Tensor logits, labels, mask;
  };
  const std::vector<Case> cases = {
      {"logits", at::Tensor(), entries, all},
      {"logits", at::zeros({3, 3}), entries, all},
      {"logits", at::zeros({3, 2}, at::kLong), entries, all},
      {"labels uint8", logits, entries.to(at::kLong), all},
      {"labels uint8", logits, labels_of({0, 1, 0}), all},
      {"mask", logits, entries, bools({1, 1})},
      {"mask has no nodes", logits, entries, bools({0, 0, 0})},
  };
  for (const Case& c : cases) {
    EXPECT_THROWS(InvalidArgument, test::fragments("micro_f1", c.part),
                  micro_f1(c.logits, c.labels, c.mask));
    EXPECT_THROWS(InvalidArgument, test::fragments("mean_roc_auc", c.part),
                  mean_roc_auc(c.logits, c.labels, c.mask));
  }
}

/// The definition: at each positive the share of positives among the targets with at least its
/// score.
double mean_precision(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& mask) {
  double sum = 0, positives = 0;
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    if (!mask[i].item<bool>() || labels[i].item<std::int64_t>() != 1) continue;
    double right = 0, all = 0;
    for (std::int64_t j = 0; j < labels.size(0); ++j) {
      if (!mask[j].item<bool>() || scores[j].item<double>() < scores[i].item<double>()) continue;
      right += static_cast<double>(labels[j].item<std::int64_t>());
      all += 1;
    }
    sum += right / all;
    positives += 1;
  }
  return sum / positives;
}

TEST(AveragePrecision, is_the_mean_precision_at_the_positives) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const at::Tensor scores = drawn_logits(50, 1, seed).squeeze(1), mask = drawn_mask(50, seed);
    const at::Tensor labels = drawn_mask(50, seed + 9).to(at::kLong);
    EXPECT_TRUE(test::near_number(average_precision(scores, labels, mask),
                                  mean_precision(scores, labels, mask), /*steps=*/50));
    const at::Tensor entries = drawn_entries(50, 2, seed);
    double sum = 0;
    for (const std::int64_t c : {0, 1}) {
      const at::Tensor column = entries.select(1, c);
      sum += mean_precision(scores, column.to(at::kLong), mask.logical_and(column.ne(kNoEntry)));
    }
    const at::Tensor both = at::stack({scores, scores}, 1);
    EXPECT_TRUE(test::near_number(score_of(Metric::kAveragePrecision, both, entries, mask), sum / 2,
                                  /*steps=*/50));
  }
}

TEST(AveragePrecision, covers_the_extremes) {
  const at::Tensor labels = labels_of({0, 0, 1, 1}), all = bools({1, 1, 1, 1});
  EXPECT_EQ(average_precision(at::tensor({0.0, 1.0, 2.0, 3.0}), labels, all), 1.0);
  EXPECT_EQ(average_precision(at::tensor({3.0, 2.0, 1.0, 0.0}), labels, all), (1.0 / 3 + 0.5) / 2);
  EXPECT_EQ(average_precision(at::zeros({4}), labels, all), 0.5);
  EXPECT_THROWS(InvalidArgument, "both labels",
                average_precision(at::zeros({4}), at::ones_like(labels), all));
  EXPECT_THROWS(NumericError, "NaN", average_precision(at::full({4}, kNaN), labels, all));
}

/// The definition, of predictions of one class; -1: none.
double mean_f1(const std::vector<std::int64_t>& truth, const std::vector<std::int64_t>& predicted,
               std::int64_t classes) {
  double sum = 0, count = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    double right = 0, either = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      right += truth[i] == c && predicted[i] == c ? 1 : 0;
      either += (truth[i] == c ? 1 : 0) + (predicted[i] == c ? 1 : 0);
    }
    if (either == 0) continue;
    sum += 2 * right / either;
    count += 1;
  }
  return sum / count;
}

TEST(MacroF1, is_the_mean_over_the_classes_that_occur) {
  const at::Tensor logits =
      at::tensor({5.0, 5.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, kNaN, 9.0, 0.0, 0.0, 0.0, 3.0, 3.0, 0.0})
          .view({4, 4});
  const at::Tensor all = bools({1, 1, 1, 1});
  const std::vector<std::int64_t> predicted = {0, 2, -1, 1};  // ties: the lowest class
  for (const std::vector<std::int64_t>& truth :
       {std::vector<std::int64_t>{0, 2, 1, 1}, {1, 0, 0, 2}, {0, 2, 2, 1}}) {
    EXPECT_TRUE(test::near_number(macro_f1(logits, labels_of(truth), all),
                                  mean_f1(truth, predicted, 4), /*steps=*/8));
  }
  EXPECT_EQ(macro_f1(logits, labels_of({0, 3, 3, 3}), bools({1, 0, 0, 0})), 1.0);
  EXPECT_THROWS(InvalidArgument, "macro_f1", macro_f1(logits, labels_of({0}), all));
}

TEST(MacroF1, of_several_labels_is_the_mean_over_the_columns) {
  // Column 0: one right, one missed by NaN; 1: one too many by NaN; 2: nothing; 3: unknown.
  const at::Tensor logits = at::tensor({1.0, kNaN, -1.0, 1.0, kNaN, 1.0, -1.0, -1.0}).view({2, 4});
  const at::Tensor entries = at::tensor({1, 0, 0, 255, 1, 1, 0, 255}, at::kByte).view({2, 4});
  EXPECT_EQ(macro_f1(logits, entries, bools({1, 1})), 2.0 / 3);
  EXPECT_EQ(macro_f1(-at::ones({2, 2}), at::zeros({2, 2}, at::kByte), bools({1, 1})), 0.0);
}

TEST(Metrics, fit_their_tasks) {
  constexpr Task kOne{TaskTarget::kNode, LabelKind::kClass};
  constexpr Task kSeveral{TaskTarget::kGraph, LabelKind::kMultiLabel};
  constexpr Task kOfNumbers{TaskTarget::kEdge, LabelKind::kNumbers};
  detail::for_each(Metrics{}, [&]<class T>() {
    const bool link = fits(T::kind, LinkTask::kind, 1), one = fits(T::kind, kOne, 3);
    EXPECT_EQ(fits(T::kind, kOfNumbers, 2), is_of_numbers(T::kind)) << T::name;
    EXPECT_EQ(fits(T::kind, kOne, 2), one || needs_both_labels(T::kind)) << T::name;
    EXPECT_EQ(link, fits(T::kind, kSeveral, 4) || is_of_ranks(T::kind)) << T::name;
  });
  EXPECT_FALSE(fits(Metric::kMrr, kSeveral, 2));
  EXPECT_FALSE(fits(Metric::kAccuracy, LinkTask::kind, 1));
  EXPECT_THROWS(
      InvalidArgument, "hits@10",
      score_of(Metric::kHitsAt10, at::zeros({2, 1}), at::zeros({2, 1}, at::kByte), bools({1, 1})));
}

/// Column 0: numbers 1 to 4, errors 1, 1, -1, 3; column 1: two known numbers, errors 0 and 2.
const at::Tensor kNumbers = at::tensor({1.0, 7.0, 2.0, kNaN, 3.0, 9.0, 4.0, kNaN}).view({4, 2});
const at::Tensor kGuesses = at::tensor({2.0, 7.0, 3.0, 0.0, 2.0, 11.0, 7.0, kNaN}).view({4, 2});

TEST(Regression, metrics_are_means_over_the_columns_of_their_known_numbers) {
  const at::Tensor numbers = kNumbers.to(at::kFloat), all = bools({1, 1, 1, 1});
  // Squared distances from the mean: 5 and 2.
  EXPECT_EQ(r2_score(kGuesses, numbers, all), ((1 - 12.0 / 5) + (1 - 4.0 / 2)) / 2);
  EXPECT_EQ(mean_absolute_error(kGuesses, numbers, all), (6.0 / 4 + 2.0 / 2) / 2);
  EXPECT_EQ(root_mean_squared_error(kGuesses, numbers, all), (std::sqrt(3.0) + std::sqrt(2.0)) / 2);
  // The second column has no known number here.
  EXPECT_EQ(mean_absolute_error(kGuesses, numbers, bools({0, 1, 0, 1})), 2);
}

TEST(Regression, r2_of_equal_numbers_is_one_only_without_errors) {
  const at::Tensor numbers = at::full({3, 1}, 2.0F), all = bools({1, 1, 1});
  EXPECT_EQ(r2_score(numbers, numbers, all), 1);
  EXPECT_EQ(r2_score(numbers + 1, numbers, all), 0);
}

TEST(Regression, an_output_that_is_nan_makes_the_metric_nan) {
  const at::Tensor numbers = at::ones({2, 1}), outputs = at::tensor({1.0, kNaN}).view({2, 1});
  for (const Metric metric : {Metric::kR2, Metric::kMae, Metric::kRmse}) {
    EXPECT_TRUE(std::isnan(score_of(metric, outputs, numbers, bools({1, 1}))));
    EXPECT_FALSE(std::isnan(score_of(metric, outputs, numbers, bools({1, 0}))));
  }
}

TEST(Regression, metrics_refuse_other_labels_and_masks_without_known_numbers) {
  const at::Tensor all = bools({1, 1, 1, 1});
  EXPECT_THROWS(InvalidArgument, "labels",
                mean_absolute_error(kGuesses, kNumbers.to(at::kLong), all));
  EXPECT_THROWS(InvalidArgument, "[N, C]", r2_score(kGuesses, kNumbers.narrow(1, 0, 1), all));
  const at::Tensor unknown = at::full({4, 2}, kNaN);
  EXPECT_THROWS(InvalidArgument, "no number", r2_score(kGuesses, unknown, all));
  EXPECT_FALSE(is_defined(Metric::kR2, unknown, all));
  EXPECT_TRUE(is_defined(Metric::kR2, kNumbers, all));
}

}  // namespace
}  // namespace mezzo
