#include "mezzo/ops/float32_product.h"

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

namespace mezzo {

namespace {

/// Whose product is taken, in the words of MEZZO_FLOAT32_LINEAR.
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

/// Of fewer products of numbers than these MKL's takes less time than a call of oneDNN.
constexpr std::int64_t kWorthACall = 1 << 22;

/// oneDNN's product as libtorch registers it, for its compiled graphs; nullopt where it has none.
std::optional<c10::OperatorHandle> find_onednn() {
  return c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
}

/// Whether libtorch's products are MKL's, which takes vectors of 512 bits on Intel's processors
/// only, and this is another's that has them.
bool vectors_lie_idle() {
  return at::globalContext().hasMKL() && !is_intel() && missing_avx512().empty();
}

/// oneDNN's product where it is the one to take, by the variable or the processor.
std::optional<c10::OperatorHandle> chosen_onednn() {
  const auto forced = parse_variable(ProductLibraries{}, "MEZZO_FLOAT32_LINEAR");
  const bool has = at::globalContext().hasMKLDNN();
  const auto found = has ? find_onednn() : std::nullopt;
  MEZZO_CHECK(forced != ProductLibrary::kOneDnn || found,
              "MEZZO_FLOAT32_LINEAR: this libtorch has no product by oneDNN; set it to libtorch");
  const bool take = forced ? *forced == ProductLibrary::kOneDnn : vectors_lie_idle();
  log("dispatch",
      fmt::format("linear float32: the product of {}", take && found ? "oneDNN" : "libtorch"));
  return take ? found : std::nullopt;
}

/// oneDNN reads rows or columns that lie one after another; a view into wider rows is copied.
at::Tensor dense(const at::Tensor& t) {
  return t.is_non_overlapping_and_dense() ? t : t.contiguous();
}

at::Tensor onednn_product(const c10::OperatorHandle& op, const at::Tensor& x,
                          const at::Tensor& factor, const std::optional<at::Tensor>& bias) {
  // Boxed, for the schema is stable and the C++ signature is libtorch's own affair.
  torch::jit::Stack stack;
  const auto packed = bias ? std::optional<at::Tensor>(bias->contiguous()) : std::nullopt;
  torch::jit::push(stack, dense(x), dense(factor).t(), packed, "none",
                   c10::List<std::optional<at::Scalar>>(), c10::IValue());
  const at::AutoDispatchBelowAutograd below;
  const SignalGuard no_signal_handler;
  op.callBoxed(stack);
  return torch::jit::pop(stack).toTensor();
}

const std::optional<c10::OperatorHandle>& onednn() {
  static const auto chosen = chosen_onednn();
  return chosen;
}

/// oneDNN's product where it is the one to take for these sizes; null else.
const c10::OperatorHandle* onednn_for(const at::Tensor& x, const at::Tensor& factor) {
  const bool take = onednn() && x.size(0) * x.size(1) * factor.size(1) >= kWorthACall &&
                    at::globalContext().userEnabledMkldnn();
  return take ? &*onednn() : nullptr;
}

}  // namespace

at::Tensor float32_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias) {
  if (const auto* onednn = onednn_for(x, factor)) return onednn_product(*onednn, x, factor, bias);
  return bias ? at::addmm(*bias, x, factor) : at::mm(x, factor);
}

}  // namespace mezzo
