#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

/// The training loss, for both kinds of labels:
///   int64 [n] in [0, C): the cross entropy of each row, one term a row; uint8 [n, C], multi-label:
///   the binary cross entropy of sigmoid(logit) with 0 or 1, one term per entry; kNoEntry is no
///   term.
/// logits: floating [n, C], on the device of the labels. All compute in float32, with a gradient,
/// and check nothing.
namespace mezzo {

/// The mean of all terms, float32, one element; NaN without terms. Allocates [n, C]. Does not
/// synchronise.
MEZZO_API at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels);

/// The sum of the terms of each row, float32 [n]. Allocates [n, C]. Does not synchronise.
MEZZO_API at::Tensor row_losses(const at::Tensor& logits, const at::Tensor& labels);

/// How many terms each row has, float32 [n]. Does not synchronise.
MEZZO_API at::Tensor terms_of_rows(const at::Tensor& labels);

/// How many terms all rows have. Synchronises for multi-label ones.
MEZZO_API std::int64_t count_terms(const at::Tensor& labels);

}  // namespace mezzo
