#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"

namespace mezzo {

/// The share of the nodes in `mask` whose label has the largest logit; the lowest class wins ties,
/// and a node with a NaN among its logits counts as wrong. logits: floating [N, C]; labels: int64
/// [N]; mask: bool [N]; all on one device. Allocates [n, C]; synchronises. Throws InvalidArgument
/// for other shapes and dtypes and for a mask without nodes.
MEZZO_API double accuracy(const at::Tensor& logits, const at::Tensor& labels,
                          const at::Tensor& mask);

/// accuracy() under each of `masks`, NaN for a mask without nodes. Does not check its arguments.
/// Allocates [N, C]; synchronises once.
MEZZO_API std::vector<double> accuracies(const at::Tensor& logits, const at::Tensor& labels,
                                         const std::vector<at::Tensor>& masks);

/// int64 [C, C] on the CPU: how many of the nodes in `mask` have the label of the row and were
/// predicted as the class of the column, as accuracy() predicts; without nodes with a NaN among
/// their logits. Arguments, memory and errors as of accuracy().
MEZZO_API at::Tensor confusion_matrix(const at::Tensor& logits, const at::Tensor& labels,
                                      const at::Tensor& mask);

/// The area under the ROC curve of the nodes in `mask`: the probability that a node of label 1 has
/// a larger score than a node of label 0, ties counting one half (Mann-Whitney, by average ranks,
/// in float64 on the CPU; O(n log n)).
/// scores: floating [N]; labels: int64 [N], 0 or 1; mask: bool [N]; all on one device.
/// Synchronises. Throws InvalidArgument for other shapes, dtypes and labels and if a class is
/// missing, NumericError if a score is NaN.
MEZZO_API double roc_auc(const at::Tensor& scores, const at::Tensor& labels,
                         const at::Tensor& mask);

/// The mean of the precision over the positives, each at its own score: the sum over the distinct
/// scores, from the largest, of precision times the recall that they add. Arguments, memory and
/// errors as of roc_auc().
MEZZO_API double average_precision(const at::Tensor& scores, const at::Tensor& labels,
                                   const at::Tensor& mask);

/// The mean of the F1 score over the classes that are a label or a prediction in the mask; a NaN
/// counts as wrong. Of labels int64 [N], predicted as in accuracy(), or uint8 [N, C], as in
/// micro_f1(); 0 if no entry is 1 and none is predicted. Arguments and errors as of these.
/// Allocates [n, C].
MEZZO_API double macro_f1(const at::Tensor& logits, const at::Tensor& labels,
                          const at::Tensor& mask);

// For multi-label data. logits: floating [N, C]; labels: uint8 [N, C] of 0, 1 and kNoEntry, which
// does not count; mask: bool [N]; all on one device. All synchronise, and throw InvalidArgument for
// other shapes and dtypes and for a mask without nodes.

/// The micro-averaged F1 score: 2 TP / (2 TP + FP + FN) over the entries of all classes. A class is
/// predicted if its logit is above 0. 0 if no entry is 1 and none is predicted. A NaN counts as
/// wrong. Allocates [n, C].
MEZZO_API double micro_f1(const at::Tensor& logits, const at::Tensor& labels,
                          const at::Tensor& mask);

/// The mean of roc_auc() over the classes that have entries of both 0 and 1, as in OGB.
/// O(C n log n). Throws InvalidArgument also if there is no such class, NumericError if a logit
/// that counts is NaN.
MEZZO_API double mean_roc_auc(const at::Tensor& logits, const at::Tensor& labels,
                              const at::Tensor& mask);

/// The same of average_precision().
MEZZO_API double mean_average_precision(const at::Tensor& logits, const at::Tensor& labels,
                                        const at::Tensor& mask);

// For numbers. outputs: floating [N, C]; labels: float32 [N, C], NaN if unknown; mask: bool [N];
// all on one device. Computed in float64; a metric of several columns is the mean over them. All
// synchronise, and throw InvalidArgument for other shapes and dtypes and if no number in the mask
// is known. NaN if an output that counts is.

/// 1 - (sum of squared errors) / (sum of squared distances from the mean of the column): 1 is
/// perfect, 0 is what the mean reaches. Of a column of equal numbers: 1 if all errors are 0, else
/// 0, as in scikit-learn.
MEZZO_API double r2_score(const at::Tensor& outputs, const at::Tensor& labels,
                          const at::Tensor& mask);
/// The mean magnitude of the errors.
MEZZO_API double mean_absolute_error(const at::Tensor& outputs, const at::Tensor& labels,
                                     const at::Tensor& mask);
/// The root of the mean squared error.
MEZZO_API double root_mean_squared_error(const at::Tensor& outputs, const at::Tensor& labels,
                                         const at::Tensor& mask);

/// The metric of the nodes in the mask. ROC AUC and average precision of int64 labels take the
/// difference of the two logits. Throws as the functions above, if not is_defined(), and
/// InvalidArgument if the metric is_of_ranks().
MEZZO_API double score_of(Metric metric, const at::Tensor& outputs, const at::Tensor& labels,
                          const at::Tensor& mask);
/// Whether the metric needs targets of label 1 and of label 0.
constexpr bool needs_both_labels(Metric metric) {
  return metric == Metric::kRocAuc || metric == Metric::kAveragePrecision;
}
/// Whether the nodes in the mask have a score: there is one and, if it needs_both_labels(), one of
/// each (of multi-label data: in some column; of numbers: some are known). Synchronises.
MEZZO_API bool is_defined(Metric metric, const at::Tensor& labels, const at::Tensor& mask);

/// bool [C], on the CPU: the classes that count in mean_roc_auc() of the same labels and mask.
/// Checks nothing.
MEZZO_API at::Tensor classes_with_roc_auc(const at::Tensor& labels, const at::Tensor& mask);

}  // namespace mezzo
