#include "mezzo/ops/dense/block_products.h"

#include <ATen/ATen.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/ops/arguments.h"

namespace mezzo::detail {
namespace {

at::Tensor tensor_of_rows(const BlockRows& block, at::ScalarType type) {
  return at::from_blob(block.data, {block.rows, block.columns}, type);
}

kernels::DenseRows dense_rows(const BlockRows& block) {
  return {block.data, block.rows, block.columns, block.columns};
}

}  // namespace

BlockFactor::BlockFactor(const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                         bool transposed, std::int64_t block_rows)
    : factor_(transposed ? weight.t() : weight), bias_(bias) {
  if (!multiplies_blocks(weight.scalar_type(), block_rows * weight.numel())) return;
  packed_.emplace(factor_, bias_);
  packed_->pack({0, packed_->columns()});
}

std::int64_t BlockFactor::scratch_numbers() const {
  return packed_ ? kernels::rows_product_scratch(packed_->columns()) : 0;
}

void BlockFactor::multiply(const BlockRows& x, const BlockRows& out, float* scratch) const {
  if (packed_) {
    packed_->multiply(dense_rows(x), {0, packed_->columns()}, out.data, out.columns, scratch);
    return;
  }
  const at::Tensor rows = tensor_of_rows(x, factor_.scalar_type());
  at::Tensor product = tensor_of_rows(out, factor_.scalar_type());
  if (bias_) {
    at::addmm_out(product, *bias_, rows, factor_);
  } else {
    at::mm_out(product, rows, factor_);
  }
}

TransposedBlocks::TransposedBlocks(at::ScalarType type, std::int64_t block_rows,
                                   std::int64_t length)
    : type_(type),
      length_(length),
      by_kernels_(multiplies_blocks(type, block_rows * length * length)) {}

std::int64_t TransposedBlocks::scratch_numbers() const {
  return by_kernels_ ? kernels::transposed_product_scratch(length_, length_) : 0;
}

void TransposedBlocks::add(const BlockRows& a, const BlockRows& b, void* sums,
                           float* scratch) const {
  if (by_kernels_) {
    kernels::cpu_backend().run(
        kernels::TransposedProductArgs{.dtype = dtype_of("_transposed_product", type_),
                                       .a = dense_rows(a),
                                       .b = dense_rows(b),
                                       .sum = static_cast<float*>(sums),
                                       .sum_stride = b.columns,
                                       .add = true,
                                       .scratch = scratch});
    return;
  }
  const at::Tensor left = tensor_of_rows(a, type_).t(), right = tensor_of_rows(b, type_);
  const at::ScalarType wide = accumulator_of(type_);
  at::Tensor total = at::from_blob(sums, {a.columns, b.columns}, wide);
  if (wide == type_) {
    total.addmm_(left, right);
  } else {
    total.add_(at::mm(left, right));
  }
}

}  // namespace mezzo::detail
