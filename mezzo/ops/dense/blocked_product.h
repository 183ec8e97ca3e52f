#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/dense.h"

namespace mezzo::detail {

/// x [N, K] times factor [K, M], plus bias [M] if given, all float32 or all of one 16-bit dtype:
/// summed in float32, rounded once. CPU, any strides. The bits depend on the sizes, not on threads.
/// Allocates the product, the factor in float32 and up to 0.8 MiB a thread.
MEZZO_API at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                                     const std::optional<at::Tensor>& bias);

/// a^T b [M, K] in the dtype of a [N, M] and b [N, K], as blocked_product(). Rows are summed
/// in groups that depend on the sizes only; threads share the groups and the longer side of the
/// result. Allocates a float32 M x K sum for each group (at most 64 MiB if several) and up to
/// 1.2 MiB a thread.
MEZZO_API at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b);

/// Whether Mezzo's kernels rather than libtorch's multiply a CPU block of this dtype, with this
/// number of multiplications, in one thread (linear.cpp).
bool multiplies_blocks(at::ScalarType type, std::int64_t multiplications);

/// float32 numbers of one thread.
class Scratch {
 public:
  explicit Scratch(std::int64_t count);
  float* numbers() const { return static_cast<float*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

/// A range of rows or of columns.
struct Range {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// A factor [K, M] and a bias [M] in float32, for many products, each of one thread.
class PackedFactor {
 public:
  /// Of one dtype, float32 or 16 bits, any strides. Columns must be packed before they are used.
  PackedFactor(const at::Tensor& factor, const std::optional<at::Tensor>& bias);

  std::int64_t depth() const { return depth_; }
  std::int64_t columns() const { return columns_; }
  /// The range must begin at a multiple of kDensePadding.
  void pack(Range columns) const;
  /// out = x times the columns, plus the bias; x: [N, K] of the factor's dtype. scratch:
  /// rows_product_scratch() numbers.
  void multiply(const kernels::DenseRows& x, Range columns, void* out, std::int64_t out_stride,
                float* scratch) const;

 private:
  bool transposed_;  ///< the rows of factor_ are the columns of the factor
  at::Tensor factor_;
  std::int64_t depth_, columns_;
  DType dtype_;
  Scratch panels_, bias_;
  bool has_bias_;
};

}  // namespace mezzo::detail
