#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// The share of the nodes in `mask` whose largest logit is that of their label; the lowest class
/// wins ties, and a node with a NaN among its logits counts as wrong.
/// logits: floating [N, C]; labels: int64 [N]; mask: bool [N]; all on one device. Allocates [n, C];
/// synchronises. Throws InvalidArgument for other shapes and dtypes and for a mask without nodes.
MEZZO_API double accuracy(const at::Tensor& logits, const at::Tensor& labels,
                          const at::Tensor& mask);

/// accuracy() under each of `masks`, NaN under one without nodes; what it checks is not checked.
/// Allocates [N, C]; synchronises once.
MEZZO_API std::vector<double> accuracies(const at::Tensor& logits, const at::Tensor& labels,
                                         const std::vector<at::Tensor>& masks);

/// The area under the ROC curve of the nodes in `mask`: the probability that a node of label 1 has
/// a larger score than a node of label 0, ties counting one half (Mann-Whitney, by average ranks,
/// in float64 on the CPU; O(n log n)).
/// scores: floating [N]; labels: int64 [N], 0 or 1; mask: bool [N]; all on one device.
/// Synchronises. Throws InvalidArgument for other shapes, dtypes and labels and where a class is
/// missing, NumericError where a score is NaN.
MEZZO_API double roc_auc(const at::Tensor& scores, const at::Tensor& labels,
                         const at::Tensor& mask);

}  // namespace mezzo
