#include "mezzo/ops/dense/float32_product.h"

#include <cstdint>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"
#include "mezzo/kernels/processor.h"
#include "mezzo/runtime/signal_guard.h"

namespace mezzo::detail {
namespace {

/// The values of MEZZO_FLOAT32_LINEAR.
enum class ProductLibrary : std::uint8_t { kLibtorch, kOneDnn };

struct LibtorchProduct {
  static constexpr ProductLibrary kind = ProductLibrary::kLibtorch;
  static constexpr std::string_view name = "libtorch";
};
struct OneDnnProduct {
  static constexpr ProductLibrary kind = ProductLibrary::kOneDnn;
  static constexpr std::string_view name = "onednn";
};
using ProductLibraries = TypeList<LibtorchProduct, OneDnnProduct>;

/// With fewer multiplications MKL is faster, because a call of oneDNN costs more.
constexpr std::int64_t kMinOneDnnWork = 1 << 22;

/// oneDNN's product, which libtorch registers for compiled graphs; nullopt if it is missing.
std::optional<c10::OperatorHandle> find_onednn() {
  return c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
}

/// Whether this processor has AVX-512 but libtorch's MKL, which uses it on Intel only, would not.
bool mkl_misses_avx512() {
  return at::globalContext().hasMKL() && !kernels::is_intel() && kernels::missing_avx512().empty();
}

/// oneDNN's product if the variable or the processor selects it.
std::optional<c10::OperatorHandle> select_onednn() {
  const auto forced = parse_variable(ProductLibraries{}, "MEZZO_FLOAT32_LINEAR");
  const auto onednn = at::globalContext().hasMKLDNN() ? find_onednn() : std::nullopt;
  MEZZO_CHECK(forced != ProductLibrary::kOneDnn || onednn,
              "MEZZO_FLOAT32_LINEAR: this libtorch has no product by oneDNN; set it to libtorch");
  const bool selected = forced ? *forced == ProductLibrary::kOneDnn : mkl_misses_avx512();
  log("dispatch",
      fmt::format("linear float32: the product of {}", selected && onednn ? "oneDNN" : "libtorch"));
  return selected ? onednn : std::nullopt;
}

/// oneDNN needs contiguous rows or columns; copies other views.
at::Tensor dense(const at::Tensor& t) {
  return t.is_non_overlapping_and_dense() ? t : t.contiguous();
}

at::Tensor onednn_product(const c10::OperatorHandle& op, const at::Tensor& x,
                          const at::Tensor& factor, const std::optional<at::Tensor>& bias) {
  // Boxed: the schema is stable, the C++ signature is internal to libtorch.
  torch::jit::Stack stack;
  const auto dense_bias = bias ? std::optional<at::Tensor>(bias->contiguous()) : std::nullopt;
  torch::jit::push(stack, dense(x), dense(factor).t(), dense_bias, "none",
                   c10::List<std::optional<at::Scalar>>(), c10::IValue());
  const at::AutoDispatchBelowAutograd below;
  const SignalGuard no_signal_handler;
  op.callBoxed(stack);
  return torch::jit::pop(stack).toTensor();
}

const std::optional<c10::OperatorHandle>& onednn() {
  static const auto onednn_or_none = select_onednn();
  return onednn_or_none;
}

/// oneDNN's product if it should run for these sizes, else null.
const c10::OperatorHandle* onednn_for(const at::Tensor& x, const at::Tensor& factor) {
  const bool selected = onednn() && x.size(0) * x.size(1) * factor.size(1) >= kMinOneDnnWork &&
                        at::globalContext().userEnabledMkldnn();
  return selected ? &*onednn() : nullptr;
}

}  // namespace

at::Tensor float32_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias) {
  if (const auto* onednn = onednn_for(x, factor)) return onednn_product(*onednn, x, factor, bias);
  return bias ? at::addmm(*bias, x, factor) : at::mm(x, factor);
}

}  // namespace mezzo::detail
