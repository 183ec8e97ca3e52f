#include "mezzo/train/steps/loss.h"

#include <algorithm>
#include <cmath>

#include "mezzo/core/random.h"
#include "mezzo/data/dataset.h"

#include "support/tolerance.h"

namespace mezzo {
namespace {

constexpr std::int64_t kLossRows = 7, kLossColumns = 5;

/// Logits of both signs, and some far from 0.
at::Tensor some_logits() {
  at::Tensor logits = at::empty({kLossRows, kLossColumns});
  auto* value = logits.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    const double size = i % 6 == 0 ? 60 : 3;
    value[i] =
        static_cast<float>(size * (2 * random_uniform(5, 1, static_cast<std::uint64_t>(i)) - 1));
  }
  return logits;
}

/// A third of the entries is missing; row 2 has only one.
at::Tensor some_entries() {
  at::Tensor entries = at::empty({kLossRows, kLossColumns}, at::kByte);
  auto* entry = entries.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < entries.numel(); ++i) {
    const auto draw = random_below(3, 6, 1, static_cast<std::uint64_t>(i));
    entry[i] = draw == 2 ? kNoEntry : static_cast<std::uint8_t>(draw);
    if (i / kLossColumns == 2) entry[i] = i % kLossColumns == 1 ? 1 : kNoEntry;
  }
  return entries;
}

/// The definition: -log of the probability of the label under sigmoid(logit); 0 for no entry.
double entry_loss(double logit, std::uint8_t entry) {
  if (entry == kNoEntry) return 0;
  const double signed_logit = entry == 1 ? logit : -logit;
  return std::log1p(std::exp(-std::abs(signed_logit))) + std::max(-signed_logit, 0.0);
}

struct Sums {
  at::Tensor of_rows = at::zeros({kLossRows}, at::kDouble),
             terms = at::zeros({kLossRows}, at::kDouble);
};

Sums sums_of(const at::Tensor& logits, const at::Tensor& entries) {
  Sums sums;
  const auto* logit = logits.const_data_ptr<float>();
  const auto* entry = entries.const_data_ptr<std::uint8_t>();
  auto* sum = sums.of_rows.mutable_data_ptr<double>();
  auto* terms = sums.terms.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    sum[i / kLossColumns] += entry_loss(logit[i], entry[i]);
    terms[i / kLossColumns] += entry[i] == kNoEntry ? 0 : 1;
  }
  return sums;
}

// A term itself takes a few roundings.
constexpr double kRoundings = 8;

TEST(Loss, of_several_labels_is_the_mean_binary_cross_entropy_of_the_known_entries) {
  const at::Tensor logits = some_logits(), entries = some_entries();
  const Sums sums = sums_of(logits, entries);
  const at::Tensor mean = sums.of_rows.sum() / sums.terms.sum();
  EXPECT_TRUE(test::near(loss_of(logits, entries), mean,
                         test::sum_bound(mean, kLossRows * kLossColumns + kRoundings, at::kFloat)));
  EXPECT_TRUE(test::near(row_losses(logits, entries), sums.of_rows,
                         test::sum_bound(sums.of_rows, kLossColumns + kRoundings, at::kFloat)));
  EXPECT_TRUE(at::equal(terms_of_rows(entries).to(at::kDouble), sums.terms));
  EXPECT_EQ(count_terms(entries), sums.terms.sum().item<double>());
}

TEST(Loss, of_several_labels_is_computed_in_float32) {
  const at::Tensor logits = some_logits().to(at::kBFloat16), entries = some_entries();
  EXPECT_TRUE(at::equal(loss_of(logits, entries), loss_of(logits.to(at::kFloat), entries)));
  EXPECT_TRUE(at::equal(row_losses(logits, entries), row_losses(logits.to(at::kFloat), entries)));
}

TEST(Loss, a_missing_entry_has_no_gradient_whatever_its_logit) {
  const at::Tensor entries = some_entries();
  const at::Tensor missing = entries.eq(kNoEntry);
  at::Tensor logits = some_logits().masked_fill(missing, 1e30);
  logits.requires_grad_();
  loss_of(logits, entries).backward();
  const at::Tensor exact =
      logits.detach().to(at::kDouble).sigmoid() - entries.eq(1).to(at::kDouble);
  const at::Tensor expected =
      exact.masked_fill(missing, 0) / static_cast<double>(count_terms(entries));
  EXPECT_TRUE(test::near(
      logits.grad(), expected,
      test::sum_bound(at::full_like(expected, 1.0 / static_cast<double>(count_terms(entries))),
                      kRoundings, at::kFloat)));
  EXPECT_TRUE(at::equal(logits.grad().masked_select(missing),
                        at::zeros({missing.sum().item<std::int64_t>()})));
}

TEST(Loss, of_one_label_is_the_cross_entropy) {
  const at::Tensor logits = some_logits();
  const at::Tensor labels = at::remainder(at::arange(kLossRows), kLossColumns);
  EXPECT_TRUE(at::equal(loss_of(logits, labels), at::cross_entropy_loss(logits, labels)));
  EXPECT_TRUE(at::equal(row_losses(logits, labels),
                        at::cross_entropy_loss(logits, labels, {}, at::Reduction::None)));
  EXPECT_TRUE(at::equal(terms_of_rows(labels), at::ones({kLossRows})));
  EXPECT_EQ(count_terms(labels), kLossRows);
}

/// The definition, of the difference of a known number.
double error_loss(LossKind loss, double error) {
  const double size = std::abs(error);
  if (loss == LossKind::kL1) return size;
  if (loss == LossKind::kHuber) return size < 1 ? size * size / 2 : size - 0.5;
  return size * size;
}

TEST(Loss, of_numbers_is_the_mean_loss_of_the_known_ones) {
  const at::Tensor missing = some_entries().eq(kNoEntry);
  const at::Tensor outputs = some_logits(), numbers = outputs.roll(1).masked_fill(missing, NAN);
  for (const LossKind loss :
       {LossKind::kAutomatic, LossKind::kMse, LossKind::kL1, LossKind::kHuber}) {
    SCOPED_TRACE(name_of(LossKinds{}, loss));
    at::Tensor sums = at::zeros({kLossRows}, at::kDouble);
    for (std::int64_t i = 0; i < outputs.numel(); ++i) {
      if (missing.view(-1)[i].item<bool>()) continue;
      const double error = outputs.view(-1)[i].item<double>() - numbers.view(-1)[i].item<double>();
      sums[i / kLossColumns] += error_loss(loss, error);
    }
    const at::Tensor terms = missing.logical_not().sum(1);
    const at::Tensor mean = sums.sum() / terms.sum();
    EXPECT_TRUE(
        test::near(loss_of(outputs, numbers, loss), mean,
                   test::sum_bound(mean, kLossRows * kLossColumns + kRoundings, at::kFloat)));
    EXPECT_TRUE(test::near(row_losses(outputs, numbers, loss), sums,
                           test::sum_bound(sums, kLossColumns + kRoundings, at::kFloat)));
    EXPECT_TRUE(at::equal(terms_of_rows(numbers), terms.to(at::kFloat)));
    EXPECT_EQ(count_terms(numbers), terms.sum().item<std::int64_t>());
  }
}

TEST(Loss, an_unknown_number_has_no_gradient_whatever_the_output) {
  const at::Tensor missing = some_entries().eq(kNoEntry);
  at::Tensor outputs = some_logits().masked_fill(missing, 1e30);
  outputs.requires_grad_();
  loss_of(outputs, at::zeros_like(outputs).masked_fill(missing, NAN)).backward();
  EXPECT_TRUE(at::equal(outputs.grad().eq(0), missing));
  EXPECT_TRUE(at::isfinite(outputs.grad()).all().item<bool>());
}

}  // namespace
}  // namespace mezzo
