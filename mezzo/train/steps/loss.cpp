#include "mezzo/train/steps/loss.h"

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

namespace mezzo {
namespace {

/// Binary cross entropy, float32 [n, C]; 0 for missing entries.
at::Tensor entry_losses(const at::Tensor& logits, const at::Tensor& entries) {
  const at::Tensor losses = at::binary_cross_entropy_with_logits(
      logits.to(at::kFloat), entries.eq(1).to(at::kFloat), {}, {}, at::Reduction::None);
  return losses.masked_fill(entries.eq(kNoEntry), 0);
}

}  // namespace

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels) {
  if (labels.dim() == 1) return at::cross_entropy_loss(logits.to(at::kFloat), labels);
  return entry_losses(logits, labels).sum() / labels.ne(kNoEntry).sum();
}

at::Tensor row_losses(const at::Tensor& logits, const at::Tensor& labels) {
  if (labels.dim() == 2) return entry_losses(logits, labels).sum(1);
  return at::cross_entropy_loss(logits.to(at::kFloat), labels, {}, at::Reduction::None);
}

at::Tensor terms_of_rows(const at::Tensor& labels) {
  if (labels.dim() == 2) return labels.ne(kNoEntry).sum(1).to(at::kFloat);
  return at::ones({labels.size(0)}, labels.options().dtype(at::kFloat));
}

std::int64_t count_terms(const at::Tensor& labels) {
  return labels.dim() == 2 ? labels.ne(kNoEntry).sum().item<std::int64_t>() : labels.size(0);
}

}  // namespace mezzo
