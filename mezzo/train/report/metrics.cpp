#include "mezzo/train/report/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/argument_checks.h"

namespace mezzo {
namespace {

/// The rows in the mask, int64 [n]. Checks shapes and dtypes.
at::Tensor rows_of(const char* op, const char* what, const at::Tensor& values,
                   std::int64_t dimensions, const at::Tensor& labels, const at::Tensor& mask) {
  MEZZO_CHECK(values.defined() && values.dim() == dimensions && values.is_floating_point(),
              "{}: expected {} of a floating dtype with {} dimensions, got {}", op, what,
              dimensions, detail::describe(values));
  const std::int64_t rows = values.size(0);
  MEZZO_CHECK(labels.defined() && labels.dim() == 1 && labels.size(0) == rows &&
                  labels.scalar_type() == at::kLong,
              "{}: expected labels int64 [{}], one a row of the {}, got {}", op, rows, what,
              detail::describe(labels));
  MEZZO_CHECK(
      mask.defined() && mask.dim() == 1 && mask.size(0) == rows && mask.scalar_type() == at::kBool,
      "{}: expected mask bool [{}], one a row of the {}, got {}", op, rows, what,
      detail::describe(mask));
  MEZZO_CHECK(labels.device() == values.device() && mask.device() == values.device(),
              "{}: expected labels and mask on {}, got {} and {}", op, values.device().str(),
              labels.device().str(), mask.device().str());
  const at::Tensor picked = mask.nonzero().squeeze(1);
  MEZZO_CHECK(picked.size(0) > 0, "{}: the mask has no nodes", op);
  return picked;
}

/// The same for multi-label data.
at::Tensor rows_of_entries(const char* op, const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& mask) {
  MEZZO_CHECK(logits.defined() && logits.dim() == 2 && logits.size(1) > 0 && labels.defined() &&
                  labels.scalar_type() == at::kByte && labels.sizes() == logits.sizes(),
              "{}: expected logits [N, C] and labels uint8 [N, C], got {} and {}", op,
              detail::describe(logits), detail::describe(labels));
  return rows_of(op, "logits", logits, 2, labels.select(1, 0).to(at::kLong), mask);
}

/// int32 [N]: the class of the largest logit, the first of equal ones; C if a logit is NaN.
at::Tensor predicted_classes(const at::Tensor& logits) {
  const at::Tensor numbers = logits.to(at::kFloat);
  // argmax treats NaN as the largest number and may return any of several equal ones.
  const at::Tensor ties = at::eq(numbers, numbers.amax(1, /*keepdim=*/true));
  const at::Tensor classes = at::arange(numbers.size(1), numbers.options().dtype(at::kInt));
  const at::Tensor none = at::full({}, numbers.size(1), classes.options());
  return at::where(ties, classes, none).amin(1);
}

}  // namespace

double accuracy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask) {
  const at::Tensor rows = rows_of("accuracy", "logits", logits, 2, labels, mask);
  MEZZO_CHECK(logits.size(1) > 0, "accuracy: the logits have no classes");
  const at::Tensor correct =
      predicted_classes(logits.detach().index_select(0, rows)).eq(labels.index_select(0, rows));
  return static_cast<double>(correct.sum().item<std::int64_t>()) /
         static_cast<double>(rows.size(0));
}

std::vector<double> accuracies(const at::Tensor& logits, const at::Tensor& labels,
                               const std::vector<at::Tensor>& masks) {
  const at::Tensor correct = predicted_classes(logits.detach()).eq(labels);
  std::vector<at::Tensor> counts;
  for (const at::Tensor& mask : masks) {
    counts.push_back(correct.logical_and(mask).sum());
    counts.push_back(mask.sum());
  }
  const at::Tensor counted = at::stack(counts).cpu();
  const auto* count = counted.const_data_ptr<std::int64_t>();
  std::vector<double> shares;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const auto nodes = static_cast<double>(count[2 * i + 1]);
    shares.push_back(nodes > 0 ? static_cast<double>(count[2 * i]) / nodes
                               : std::numeric_limits<double>::quiet_NaN());
  }
  return shares;
}

at::Tensor confusion_matrix(const at::Tensor& logits, const at::Tensor& labels,
                            const at::Tensor& mask) {
  const at::Tensor rows = rows_of("confusion_matrix", "logits", logits, 2, labels, mask);
  const std::int64_t classes = logits.size(1);
  MEZZO_CHECK(classes > 0, "confusion_matrix: the logits have no classes");
  const at::Tensor predicted =
      predicted_classes(logits.detach().index_select(0, rows)).to(at::kCPU, at::kLong);
  const at::Tensor truth = labels.index_select(0, rows).cpu();
  const at::Tensor cells = (truth * (classes + 1) + predicted).contiguous();
  return at::bincount(cells, /*weights=*/{}, classes * (classes + 1))
      .view({classes, classes + 1})
      .slice(1, 0, classes)
      .contiguous();
}

namespace {

/// The targets with one score, best last.
struct Group {
  std::int64_t positives = 0, negatives = 0;
};

/// By ascending score. Checks the arguments of roc_auc() and average_precision().
std::vector<Group> groups_of(const char* op, const at::Tensor& scores, const at::Tensor& labels,
                             const at::Tensor& mask) {
  const at::Tensor rows = rows_of(op, "scores", scores, 1, labels, mask);
  const at::Tensor values =
      scores.detach().index_select(0, rows).to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor truth = labels.index_select(0, rows).to(at::kCPU).contiguous();
  const double* score = values.data_ptr<double>();
  const std::int64_t* label = truth.data_ptr<std::int64_t>();
  const auto count = static_cast<std::size_t>(rows.size(0));

  std::size_t positives = 0;
  for (std::size_t i = 0; i < count; ++i) {
    MEZZO_CHECK(label[i] == 0 || label[i] == 1, "{}: expected labels 0 and 1, got {}", op,
                label[i]);
    if (std::isnan(score[i])) detail::raise<NumericError>("{}: a score is NaN", op);
    positives += label[i] == 1 ? 1 : 0;
  }
  MEZZO_CHECK(positives > 0 && positives < count,
              "{}: expected nodes of both labels in the mask, got {} of label 1 and {} of label 0",
              op, positives, count - positives);

  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [score](std::size_t a, std::size_t b) { return score[a] < score[b]; });
  std::vector<Group> groups;
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0 || score[order[i]] != score[order[i - 1]]) groups.emplace_back();
    ++(label[order[i]] == 1 ? groups.back().positives : groups.back().negatives);
  }
  return groups;
}

}  // namespace

double roc_auc(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& mask) {
  double won = 0, negatives = 0, positives = 0;  // below the group
  for (const Group& group : groups_of("roc_auc", scores, labels, mask)) {
    const auto of_one = static_cast<double>(group.positives);
    const auto of_zero = static_cast<double>(group.negatives);
    won += of_one * (negatives + of_zero / 2);
    positives += of_one;
    negatives += of_zero;
  }
  return won / (positives * negatives);
}

double average_precision(const at::Tensor& scores, const at::Tensor& labels,
                         const at::Tensor& mask) {
  const std::vector<Group> groups = groups_of("average_precision", scores, labels, mask);
  double sum = 0, positives = 0, all = 0;  // from the best group on
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    positives += static_cast<double>(group->positives);
    all += static_cast<double>(group->positives + group->negatives);
    sum += static_cast<double>(group->positives) * positives / all;
  }
  return sum / positives;
}

namespace {

/// float64 [C]: 2 TP / (2 TP + FP + FN) of each class; NaN for one without all three.
at::Tensor f1_of_classes(const at::Tensor& is_one, const at::Tensor& predicted) {
  const at::Tensor right = is_one.logical_and(predicted).sum(0).to(at::kDouble);
  return 2 * right / (is_one.sum(0) + predicted.sum(0)).to(at::kDouble);
}

}  // namespace

double macro_f1(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask) {
  if (labels.defined() && labels.dim() == 2) {
    const at::Tensor rows = rows_of_entries("macro_f1", logits, labels, mask);
    const at::Tensor entries = labels.index_select(0, rows), known = entries.ne(kNoEntry);
    const at::Tensor numbers = logits.detach().index_select(0, rows);
    const at::Tensor broken_zero = numbers.isnan().logical_and(entries.eq(0));
    const at::Tensor predicted = numbers.gt(0).logical_or(broken_zero).logical_and(known);
    return f1_of_classes(entries.eq(1), predicted).nanmean().nan_to_num().item<double>();
  }
  const at::Tensor rows = rows_of("macro_f1", "logits", logits, 2, labels, mask);
  MEZZO_CHECK(logits.size(1) > 0, "macro_f1: the logits have no classes");
  const at::Tensor classes = at::arange(logits.size(1), labels.options());
  const at::Tensor predicted = predicted_classes(logits.detach().index_select(0, rows));
  return f1_of_classes(labels.index_select(0, rows).unsqueeze(1).eq(classes),
                       predicted.unsqueeze(1).eq(classes))
      .nanmean()
      .item<double>();
}

double micro_f1(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask) {
  const at::Tensor rows = rows_of_entries("micro_f1", logits, labels, mask);
  const at::Tensor numbers = logits.detach().index_select(0, rows);
  const at::Tensor entries = labels.index_select(0, rows);
  const at::Tensor is_one = entries.eq(1), is_zero = entries.eq(0);
  const at::Tensor broken = numbers.isnan();
  const at::Tensor predicted = numbers.gt(0);  // not where it is NaN
  const at::Tensor right = is_one.logical_and(predicted);
  const at::Tensor wrong =
      is_one.logical_xor(right).logical_or(is_zero.logical_and(predicted.logical_or(broken)));
  const double twice_right = 2 * static_cast<double>(right.sum().item<std::int64_t>());
  const double all = twice_right + static_cast<double>(wrong.sum().item<std::int64_t>());
  return all > 0 ? twice_right / all : 0;
}

namespace {

/// The rows in the mask. errors, labels: float64 [n, C], 0 where a label is unknown; known: bool
/// [n, C]; count: int64 [C], the known labels of each column.
struct Errors {
  at::Tensor errors, labels, known, count;
};

Errors errors_of(const char* op, const at::Tensor& outputs, const at::Tensor& labels,
                 const at::Tensor& mask) {
  MEZZO_CHECK(outputs.defined() && outputs.dim() == 2 && labels.defined() &&
                  labels.is_floating_point() && labels.sizes() == outputs.sizes(),
              "{}: expected outputs [N, C] and labels float32 [N, C], got {} and {}", op,
              detail::describe(outputs), detail::describe(labels));
  const at::Tensor ids = at::zeros({labels.size(0)}, labels.options().dtype(at::kLong));
  const at::Tensor rows = rows_of(op, "outputs", outputs, 2, ids, mask);
  const at::Tensor truth = labels.index_select(0, rows).to(at::kDouble);
  const at::Tensor unknown = truth.isnan();
  const at::Tensor errors = outputs.detach().index_select(0, rows).to(at::kDouble) - truth;
  const at::Tensor known = unknown.logical_not();
  MEZZO_CHECK(known.any().item<bool>(), "{}: no number in the mask is known", op);
  return {.errors = errors.masked_fill(unknown, 0),
          .labels = truth.masked_fill(unknown, 0),
          .known = known,
          .count = known.sum(0)};
}

/// The mean over the columns with a known number.
double mean_of_columns(const at::Tensor& values, const at::Tensor& count) {
  return values.masked_select(count.gt(0)).mean().item<double>();
}

}  // namespace

double r2_score(const at::Tensor& outputs, const at::Tensor& labels, const at::Tensor& mask) {
  const Errors of = errors_of("r2_score", outputs, labels, mask);
  const at::Tensor mean = of.labels.sum(0) / of.count;
  const at::Tensor left = of.errors.square().sum(0);
  const at::Tensor spread =
      (of.labels - mean).masked_fill(of.known.logical_not(), 0).square().sum(0);
  const at::Tensor of_constant = at::where(left.eq(0), 1, 0 * left);  // NaN stays
  return mean_of_columns(at::where(spread.gt(0), 1 - left / spread, of_constant), of.count);
}

double mean_absolute_error(const at::Tensor& outputs, const at::Tensor& labels,
                           const at::Tensor& mask) {
  const Errors of = errors_of("mean_absolute_error", outputs, labels, mask);
  return mean_of_columns(of.errors.abs().sum(0) / of.count, of.count);
}

double root_mean_squared_error(const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& mask) {
  const Errors of = errors_of("root_mean_squared_error", outputs, labels, mask);
  return mean_of_columns((of.errors.square().sum(0) / of.count).sqrt(), of.count);
}

double score_of(Metric metric, const at::Tensor& outputs, const at::Tensor& labels,
                const at::Tensor& mask) {
  const bool of_columns = labels.dim() == 2;
  const auto of_two = [&] { return outputs.select(1, 1) - outputs.select(1, 0); };
  switch (metric) {
    case Metric::kAccuracy:
      return accuracy(outputs, labels, mask);
    case Metric::kMicroF1:
      return micro_f1(outputs, labels, mask);
    case Metric::kMacroF1:
      return macro_f1(outputs, labels, mask);
    case Metric::kR2:
      return r2_score(outputs, labels, mask);
    case Metric::kMae:
      return mean_absolute_error(outputs, labels, mask);
    case Metric::kRmse:
      return root_mean_squared_error(outputs, labels, mask);
    case Metric::kRocAuc:
      return of_columns ? mean_roc_auc(outputs, labels, mask) : roc_auc(of_two(), labels, mask);
    case Metric::kAveragePrecision:
      return of_columns ? mean_average_precision(outputs, labels, mask)
                        : average_precision(of_two(), labels, mask);
    case Metric::kMrr:
    case Metric::kHitsAt10:
    case Metric::kRawMrr:
    case Metric::kRawHitsAt10:
      break;
  }
  detail::raise<InvalidArgument>("score_of: {} is of the ranks of links", metric_name(metric));
}

bool is_defined(Metric metric, const at::Tensor& labels, const at::Tensor& mask) {
  if (is_of_numbers(metric)) {
    return labels.isnan().logical_not_().any(1).logical_and_(mask).any().item<bool>();
  }
  if (!needs_both_labels(metric)) return mask.any().item<bool>();
  if (labels.dim() == 2) return classes_with_roc_auc(labels, mask).any().item<bool>();
  const at::Tensor masked = labels.masked_select(mask);
  return masked.numel() > 0 && at::ne(masked, masked[0]).any().item<bool>();
}

at::Tensor classes_with_roc_auc(const at::Tensor& labels, const at::Tensor& mask) {
  const at::Tensor rows = mask.unsqueeze(1);
  const auto have = [&](std::int64_t entry) { return labels.eq(entry).logical_and_(rows).any(0); };
  return have(1).logical_and_(have(0)).cpu();
}

namespace {

/// The mean of of_class(scores, labels, mask) over the classes with entries of both 0 and 1.
template <class OfClass>
double mean_over_classes(const char* op, const at::Tensor& logits, const at::Tensor& labels,
                         const at::Tensor& mask, const OfClass& of_class) {
  const at::Tensor rows = rows_of_entries(op, logits, labels, mask);
  const at::Tensor defined = classes_with_roc_auc(labels, mask).nonzero().squeeze(1);
  const std::int64_t count = defined.size(0);
  MEZZO_CHECK(count > 0, "{}: no class has entries of both 0 and 1 in the mask", op);
  const auto* const classes = defined.const_data_ptr<std::int64_t>();
  const at::Tensor numbers = logits.detach().index_select(0, rows).cpu();
  const at::Tensor entries = labels.index_select(0, rows).cpu();
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor column = entries.select(1, classes[i]);
    sum += of_class(numbers.select(1, classes[i]), column.to(at::kLong), column.ne(kNoEntry));
  }
  return sum / static_cast<double>(count);
}

}  // namespace

double mean_roc_auc(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask) {
  return mean_over_classes("mean_roc_auc", logits, labels, mask, roc_auc);
}

double mean_average_precision(const at::Tensor& logits, const at::Tensor& labels,
                              const at::Tensor& mask) {
  return mean_over_classes("mean_average_precision", logits, labels, mask, average_precision);
}

}  // namespace mezzo
