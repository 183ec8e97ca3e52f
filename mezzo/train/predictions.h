#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/task.h"
#include "mezzo/train/trained_model.h"

namespace mezzo::detail {

/// The numbers, or the classes and probabilities, of logits [M, C] on the CPU. Sets no other
/// members.
MEZZO_API Predictions predictions_of(const at::Tensor& logits, LabelKind labels);

}  // namespace mezzo::detail
