#include "mezzo/train/steps/loss.h"

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

namespace mezzo {
namespace {

/// bool [n, C]: the terms of labels with columns.
at::Tensor has_term(const at::Tensor& labels) {
  return labels.is_floating_point() ? labels.isnan().logical_not_() : labels.ne(kNoEntry);
}

at::Tensor error_losses(const at::Tensor& outputs, const at::Tensor& numbers, LossKind loss) {
  switch (loss) {
    case LossKind::kL1:
      return at::l1_loss(outputs, numbers, at::Reduction::None);
    case LossKind::kHuber:
      return at::huber_loss(outputs, numbers, at::Reduction::None);
    case LossKind::kAutomatic:
    case LossKind::kMargin:
    case LossKind::kMse:
      break;
  }
  return at::mse_loss(outputs, numbers, at::Reduction::None);
}

/// The terms, float32 [n, C]; 0 for missing ones.
at::Tensor column_losses(const at::Tensor& logits, const at::Tensor& labels,
                         const at::Tensor& has_term, LossKind loss) {
  const at::Tensor outputs = logits.to(at::kFloat);
  if (!labels.is_floating_point()) {
    const at::Tensor losses = at::binary_cross_entropy_with_logits(
        outputs, labels.eq(1).to(at::kFloat), {}, {}, at::Reduction::None);
    return losses.masked_fill(has_term.logical_not(), 0);
  }
  // A NaN would reach the gradient even where its loss does not count.
  return error_losses(outputs, at::where(has_term, labels, outputs.detach()), loss);
}

}  // namespace

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels, LossKind loss) {
  if (labels.dim() == 1) return at::cross_entropy_loss(logits.to(at::kFloat), labels);
  if (loss == LossKind::kMargin) {
    const auto scores = logits.to(at::kFloat).chunk(2);
    return at::relu(1 - scores[0] + scores[1]).mean();
  }
  const at::Tensor terms = has_term(labels);
  return column_losses(logits, labels, terms, loss).sum() / terms.sum();
}

at::Tensor row_losses(const at::Tensor& logits, const at::Tensor& labels, LossKind loss) {
  if (labels.dim() == 2) return column_losses(logits, labels, has_term(labels), loss).sum(1);
  return at::cross_entropy_loss(logits.to(at::kFloat), labels, {}, at::Reduction::None);
}

at::Tensor terms_of_rows(const at::Tensor& labels) {
  if (labels.dim() == 2) return has_term(labels).sum(1).to(at::kFloat);
  return at::ones({labels.size(0)}, labels.options().dtype(at::kFloat));
}

std::int64_t count_terms(const at::Tensor& labels) {
  return labels.dim() == 2 ? has_term(labels).sum().item<std::int64_t>() : labels.size(0);
}

}  // namespace mezzo
