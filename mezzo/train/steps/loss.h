#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/train/options/options.h"

/// The training loss, by the dtype of the labels:
///   int64 [n] in [0, C): the cross entropy of each row, one term a row;
///   uint8 [n, C]: the binary cross entropy of sigmoid(logit) with 0 or 1, one term an entry;
///   kNoEntry is no term;
///   (kMargin: rows i and n / 2 + i are a link and its negative pair, and are one term)
///   float32 [n, C]: a loss of the errors of numbers, one term a number; NaN is no term.
/// logits: floating [n, C], on the device of the labels. All compute in float32, with a gradient,
/// and check nothing. loss: of numbers, or kMargin; kAutomatic for others. row_losses and the
/// counts are not for kMargin.
namespace mezzo {

/// The mean of all terms, float32, one element; NaN without terms. Allocates [n, C]. Does not
/// synchronise.
MEZZO_API at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels,
                             LossKind loss = LossKind::kAutomatic);

/// The sum of the terms of each row, float32 [n]. Allocates [n, C]. Does not synchronise.
MEZZO_API at::Tensor row_losses(const at::Tensor& logits, const at::Tensor& labels,
                                LossKind loss = LossKind::kAutomatic);

/// How many terms each row has, float32 [n]. Does not synchronise.
MEZZO_API at::Tensor terms_of_rows(const at::Tensor& labels);

/// How many terms all rows have. Synchronises for labels of several columns.
MEZZO_API std::int64_t count_terms(const at::Tensor& labels);

}  // namespace mezzo
