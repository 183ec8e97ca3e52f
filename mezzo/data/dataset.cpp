#include "mezzo/data/dataset.h"

#include <cmath>

#include <ATen/ATen.h>

#include "mezzo/data/checks/checks.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

/// Divides values[begin..end) by the sum of their magnitudes.
void normalize_range(float* values, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t k = begin; k < end; ++k) sum += std::abs(static_cast<double>(values[k]));
  if (sum == 0) return;
  for (std::int64_t k = begin; k < end; ++k) {
    values[k] = static_cast<float>(static_cast<double>(values[k]) / sum);
  }
}

}  // namespace

std::int64_t Dataset::num_edges() const {
  if (indices.defined()) return indices.numel();
  return src.defined() ? src.numel() : 0;
}

std::int64_t Dataset::num_features() const {
  return features.defined() ? features.size(1) : 0;
}

std::int64_t Dataset::num_edge_features() const {
  return edge_features.defined() ? edge_features.size(1) : 0;
}

std::int64_t Dataset::num_graphs() const {
  return graph_offsets.defined() ? graph_offsets.numel() - 1 : 1;
}

std::int64_t Dataset::count(TaskTarget of) const {
  switch (of) {
    case TaskTarget::kEdge:
    case TaskTarget::kLink:
      return num_edges();
    case TaskTarget::kGraph:
      return num_graphs();
    case TaskTarget::kNode:
      break;
  }
  return num_nodes;
}

std::int64_t Dataset::num_splits() const {
  return train_masks.defined() ? train_masks.size(1) : 0;
}

Task Dataset::task() const {
  return {.target = target, .labels = data::label_kind_of(labels)};
}

at::Tensor Dataset::has_label() const {
  return data::has_label(labels);
}

SplitMasks Dataset::split(std::int64_t index) const {
  MEZZO_CHECK(index >= 0 && index < num_splits(),
              "split: index {} is outside [0, {}) of data set {}", index, num_splits(), name);
  return {train_masks.select(1, index).contiguous(), val_masks.select(1, index).contiguous(),
          test_masks.select(1, index).contiguous()};
}

void Dataset::validate() const {
  data::check_edges(*this);
  data::check_targets(*this);
  data::check_features(*this);
  if (part) data::check_part(*this);
}

at::Tensor normalize_rows(const at::Tensor& features) {
  MEZZO_CHECK(features.defined() && features.dim() == 2 && features.is_cpu() &&
                  features.scalar_type() == at::kFloat &&
                  (features.layout() == at::kStrided || features.layout() == at::kSparseCsr),
              "normalize_rows: expected float32 [N, F] on the CPU, strided or sparse CSR, got {}",
              features.defined() ? data::shape_text(features) : "an undefined tensor");
  if (features.layout() == at::kStrided) {
    at::Tensor out = features.clone(at::MemoryFormat::Contiguous);
    auto* values = out.mutable_data_ptr<float>();
    const std::int64_t width = out.size(1);
    for (std::int64_t row = 0; row < out.size(0); ++row) {
      normalize_range(values, row * width, (row + 1) * width);
    }
    return out;
  }
  const at::Tensor starts = features.crow_indices().to(at::kLong).contiguous();
  const at::Tensor values = features.values().clone();
  const auto* start = starts.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < features.size(0); ++row) {
    normalize_range(values.mutable_data_ptr<float>(), start[row], start[row + 1]);
  }
  return at::_sparse_csr_tensor_unsafe(features.crow_indices(), features.col_indices(), values,
                                       features.sizes(), features.options());
}

}  // namespace mezzo
