// Dense products: libtorch's, or on the CPU a blocked one that multiplies in float32 and rounds
// once (docs/decisions/0012-two-ways-of-16-bit-products.md and 0025-float32-products.md).
#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/kernels/processor.h"
#include "mezzo/ops/dense/blocked_product.h"
#include "mezzo/ops/dense/sparse_linear.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/batch_invariant.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::detail {
namespace {

at::Tensor libtorch_product(const at::Tensor& x, const at::Tensor& factor,
                            const OptionalTensor& bias) {
  return bias ? at::addmm(*bias, x, factor) : at::mm(x, factor);
}

enum class Product : std::uint8_t { kLibtorch, kBlocked };

/// The values of MEZZO_FLOAT32_LINEAR.
struct LibtorchProduct {
  static constexpr Product kind = Product::kLibtorch;
  static constexpr std::string_view name = "libtorch";
};
struct BlockedProduct {
  static constexpr Product kind = Product::kBlocked;
  static constexpr std::string_view name = "blocked";
};
/// The values of MEZZO_LINEAR, which is for 16 bits.
struct NativeProduct {
  static constexpr Product kind = Product::kLibtorch;
  static constexpr std::string_view name = "native";
};
struct ProductInFloat32 {
  static constexpr Product kind = Product::kBlocked;
  static constexpr std::string_view name = "float32";
};

/// With fewer multiplications libtorch's float32 product is faster.
constexpr std::int64_t kMinBlockedFloat32 = 1 << 22;
/// With fewer, Mezzo's product is done before libtorch has prepared its own of 16 bits.
constexpr std::int64_t kMinNative16Bits = 1 << 20;

/// Whether this processor has AVX-512 but libtorch's MKL, which uses it on Intel only, would not.
bool mkl_misses_avx512() {
  static const bool misses =
      at::hasMKL() && !kernels::is_intel() && kernels::missing_avx512().empty();
  return misses;
}

/// The product for rows of this dtype and for this number of multiplications. blocks_float32:
/// whether float32 rows take the blocked one unless a variable decides. Never measured, so that
/// equal processors give equal bits.
Product cpu_product(at::ScalarType type, std::int64_t multiplications, bool blocks_float32) {
  using Float32Names = TypeList<LibtorchProduct, BlockedProduct>;
  using SixteenBitNames = TypeList<NativeProduct, ProductInFloat32>;
  if (BatchInvariant::is_enabled() && type != at::kDouble) return Product::kBlocked;
  if (type == at::kFloat) {
    static const auto forced = parse_variable(Float32Names{}, "MEZZO_FLOAT32_LINEAR");
    if (forced) return *forced;
    return blocks_float32 ? Product::kBlocked : Product::kLibtorch;
  }
  if (!is_16_bit(type)) return Product::kLibtorch;
  static const auto forced = parse_variable(SixteenBitNames{}, "MEZZO_LINEAR");
  if (forced) return *forced;
  const bool fast = type == at::kBFloat16 ? kernels::has_fast_bfloat16_products()
                                          : kernels::has_fast_float16_products();
  return fast && multiplications >= kMinNative16Bits ? Product::kLibtorch : Product::kBlocked;
}

/// The product for this number of multiplications.
template <class Device>
Product product_for(at::ScalarType type, std::int64_t multiplications);

template <>
Product product_for<OnCpu>(at::ScalarType type, std::int64_t multiplications) {
  const bool blocks_float32 = mkl_misses_avx512() && multiplications >= kMinBlockedFloat32;
  return cpu_product(type, multiplications, blocks_float32);
}

template <>
Product product_for<OnCuda>(at::ScalarType /*type*/, std::int64_t /*multiplications*/) {
  return Product::kLibtorch;
}

template <class Device>
at::Tensor dense_product_on(const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias, bool transposed) {
  // Else libtorch would cast float32 rows to 16 bits if the backward runs inside a region.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType type = x.scalar_type();
  dtype_of("linear: dtype of x", type);
  MEZZO_CHECK(x.dim() >= 1 && weight.dim() == 2,
              "linear: expected x [..., in] and weight [out, in], got x {} and weight {}",
              c10::str(x.sizes()), c10::str(weight.sizes()));
  MEZZO_CHECK(weight.scalar_type() == type && (!bias || bias->scalar_type() == type),
              "linear: expected x, weight and bias of one dtype, got {}, {} and {}",
              c10::toString(type), c10::toString(weight.scalar_type()),
              bias ? c10::toString(bias->scalar_type()) : "none");
  MEZZO_CHECK(weight.device() == x.device() && (!bias || bias->device() == x.device()),
              "linear: expected x, weight and bias on one device, got {}, {} and {}",
              x.device().str(), weight.device().str(),
              bias ? bias->device().str() : std::string("none"));
  const at::Tensor rows = x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
  const at::Tensor factor = transposed ? weight.t() : weight;
  MEZZO_CHECK(rows.size(1) == factor.size(0), "linear: expected x [N, {}], got {}", factor.size(0),
              c10::str(x.sizes()));
  MEZZO_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == factor.size(1)),
              "linear: expected bias [{}], got {}", factor.size(1), c10::str(bias->sizes()));
  const auto product = product_for<Device>(type, rows.numel() * factor.size(1));
  const at::Tensor out = product == Product::kBlocked ? blocked_product(rows, factor, bias)
                                                      : libtorch_product(rows, factor, bias);
  if (x.dim() == 2) return out;
  auto shape = x.sizes().vec();
  shape.back() = out.size(1);
  return out.view(shape);
}

template <class Device>
at::Tensor transposed_product_on(const at::Tensor& a, const at::Tensor& b) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  MEZZO_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(0) &&
                  a.scalar_type() == b.scalar_type() && a.device() == b.device(),
              "_transposed_product: expected a [N, M] and b [N, K] of one dtype on one device, got "
              "{} {} on {} and {} {} on {}",
              c10::toString(a.scalar_type()), c10::str(a.sizes()), a.device().str(),
              c10::toString(b.scalar_type()), c10::str(b.sizes()), b.device().str());
  const auto product = product_for<Device>(a.scalar_type(), a.numel() * b.size(1));
  return product == Product::kBlocked ? blocked_transposed_product(a, b)
                                      : libtorch_product(a.t(), b, std::nullopt);
}

struct LinearInputs {
  at::Tensor x, weight;
  OptionalTensor bias;

  static constexpr auto fields() {
    using A = LinearInputs;
    return std::tuple(Field{"x", &A::x}, Field{"weight", &A::weight}, Field{"bias", &A::bias});
  }
};

struct DenseProduct : LinearInputs {
  bool transposed = true;

  static constexpr auto name = "_linear";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    return std::tuple_cat(LinearInputs::fields(),
                          std::tuple(Field{"transposed", &DenseProduct::transposed}));
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return dense_product_on<Device>(x, weight, bias, transposed);
  }
  Result meta() const { return shape_of(x, x.dim() - 1, weight.sym_size(transposed ? 0 : 1)); }
};

struct TransposedProduct {
  at::Tensor a, b;

  static constexpr auto name = "_transposed_product";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    return std::tuple(Field{"a", &TransposedProduct::a}, Field{"b", &TransposedProduct::b});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return transposed_product_on<Device>(a, b);
  }
  Result meta() const { return meta_tensor({a.sym_size(1), b.sym_size(1)}, a.scalar_type()); }
};

struct Linear : LinearInputs {
  static constexpr auto name = "linear";
  static constexpr bool is_repeatable = true;
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return dense_product_on<Device>(x, weight, bias, /*transposed=*/true);
  }
  Result meta() const { return shape_of(x, x.dim() - 1, weight.sym_size(0)); }

  void lower(at::DeviceType device) {
    x = lowered(x, device);
    weight = lowered(weight, device);
    if (bias) bias = lowered(*bias, device);
  }

  static at::Tensor forward(Saved<Linear>& saved) {
    auto& [x, weight, bias] = static_cast<LinearInputs&>(saved.op);
    const at::Tensor out = dense_product(x, weight, bias, /*transposed=*/true);
    if (!saved.needs_grad.contains("weight")) x.reset();
    if (!saved.needs_grad.contains("x")) weight.reset();
    bias.reset();
    return out;
  }

  static Linear backward(const Saved<Linear>& saved, const at::Tensor& grad) {
    const at::Tensor &x = saved.op.x, &weight = saved.op.weight;
    Linear gradients;
    if (weight.defined()) gradients.x = dense_product(grad, weight, std::nullopt, false);
    // Not reshape(-1, n), which libtorch cannot infer for rows without elements.
    const auto as_rows = [](const at::Tensor& t) {
      return t.dim() == 1 ? t.unsqueeze(0) : t.flatten(0, -2);
    };
    const at::Tensor rows = as_rows(grad);
    if (x.defined()) gradients.weight = transposed_product(rows, as_rows(x));
    // libtorch's sum accumulates in float32 and rounds once.
    if (saved.needs_grad.contains("bias")) gradients.bias = rows.sum(0);
    return gradients;
  }
};

const Registration<Linear, DenseProduct, TransposedProduct> kLinearRegistration;

}  // namespace

at::Tensor dense_product(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                         bool transposed) {
  return dispatch(DenseProduct{{x, weight, bias}, transposed});
}

at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b) {
  return dispatch(TransposedProduct{a, b});
}

bool multiplies_blocks(at::ScalarType type, std::int64_t multiplications) {
  // A block's float32 product is small: MKL packs the weight each time.
  const bool blocks_float32 = kernels::missing_avx2().empty();
  return cpu_product(type, multiplications, blocks_float32) == Product::kBlocked;
}

}  // namespace mezzo::detail

namespace mezzo {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  detail::check_defined("linear", "x", x);
  detail::check_strided("linear", "weight", weight);
  MEZZO_CHECK(x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1),
              "linear: expected x [N, in] and weight [out, in], got x {} and weight {}",
              detail::describe(x), detail::describe(weight));
  MEZZO_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
              "linear: expected bias [{}], got {}", weight.size(0), c10::str(bias.sizes()));
  const std::optional<at::Tensor> optional_bias =
      bias.defined() ? std::optional(bias) : std::nullopt;
  detail::check_strided("linear", "bias", optional_bias);
  if (x.layout() == at::kSparseCsr) return detail::sparse_linear(x, weight, optional_bias);
  MEZZO_CHECK(x.layout() == at::kStrided, "linear: expected x strided or sparse CSR, got {}",
              c10::str(x.layout()));
  return detail::dispatch(detail::Linear{{x, weight, optional_bias}});
}

}  // namespace mezzo
