// Dense products: libtorch's as they are, but for float32 (float32_product.h) and 16-bit rows on
// the CPU. For the latter there are two ways, and which is faster depends on the machine
// (docs/decisions): libtorch's own 16-bit product, or blocks of rows widened to float32, multiplied
// there and rounded once.
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/blocked_product.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/float32_product.h"
#include "mezzo/message_passing/operators.h"
#include "mezzo/message_passing/sixteen_bits.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// The product in the operands' own dtype.
at::Tensor native_product(const at::Tensor& x, const at::Tensor& factor,
                          const OptionalTensor& bias) {
  if (x.scalar_type() == at::kFloat && x.is_cpu()) return float32_product(x, factor, bias);
  return bias ? at::addmm(*bias, x, factor) : at::mm(x, factor);
}

template <class F>
double seconds_of(F&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How much faster libtorch's own 16-bit product must be to be taken: the two round differently,
/// and a near tie must not fall one way today and the other way tomorrow. Machines seen are at 2,
/// 0.5 and, in float16, 1.
constexpr double kClearlyFaster = 1.25;

/// The two ways, in the words of MEZZO_LINEAR.
enum class LinearWay : std::uint8_t { kNative, kFloat32 };

struct NativeWay {
  static constexpr LinearWay kind = LinearWay::kNative;
  static constexpr std::string_view name = "native";
};
struct Float32Way {
  static constexpr LinearWay kind = LinearWay::kFloat32;
  static constexpr std::string_view name = "float32";
};
using LinearWays = TypeList<NativeWay, Float32Way>;

/// The classes of products that are measured apart: rows times a factor of many or of few columns
/// (scores of attention, few classes), and the gradient of a factor.
enum class ProductClass : std::uint8_t { kWide, kNarrow, kTransposed };

constexpr std::int64_t kNarrowColumns = 32;  ///< the first count that is wide

ProductClass class_of_columns(std::int64_t columns) {
  return columns < kNarrowColumns ? ProductClass::kNarrow : ProductClass::kWide;
}

/// Whether libtorch's own 16-bit product is faster than that through float32, on a product of a
/// layer's shape: some 20 milliseconds.
bool measure_native(at::ScalarType type, ProductClass kind) {
  const auto options = at::TensorOptions().dtype(type);
  const std::int64_t columns = kind == ProductClass::kNarrow ? 8 : 128;
  constexpr std::int64_t kRows = 2048;
  const at::Tensor x = at::ones({kRows, 256}, options);
  const at::Tensor w = at::ones({256, columns}, options);
  const at::Tensor gradient = at::ones({kRows, columns}, options);
  const auto run_native = [&] {
    kind == ProductClass::kTransposed ? at::mm(gradient.t(), x)
                                      : native_product(x, w, std::nullopt);
  };
  const auto run_blocked = [&] {
    kind == ProductClass::kTransposed ? blocked_transposed_product(gradient, x)
                                      : blocked_product(x, w, std::nullopt);
  };
  // In turn, many times: what disturbs the machine for some milliseconds must not decide. The
  // first round packs, allocates and starts threads. A reference kernel needs few rounds.
  constexpr int kRounds = 16, kRoundsIfHopeless = 3;
  constexpr double kHopeless = 4;
  double native = std::numeric_limits<double>::infinity(), blocked = native;
  for (int round = 0; round <= kRounds; ++round) {
    const double n = seconds_of(run_native), b = seconds_of(run_blocked);
    if (round == 0) continue;
    native = std::min(native, n);
    blocked = std::min(blocked, b);
    if (round >= kRoundsIfHopeless && native > kHopeless * blocked) break;
  }
  const bool is_native = native * kClearlyFaster < blocked;
  constexpr const char* kNames[] = {"wide", "narrow", "transposed"};
  log("dispatch",
      fmt::format("linear {}, {}: libtorch's 16-bit product {:.3f} ms, Mezzo's through float32 "
                  "{:.3f} ms: {}",
                  c10::toString(type), kNames[static_cast<int>(kind)], native * 1e3, blocked * 1e3,
                  is_native ? "libtorch's" : "Mezzo's"));
  return is_native;
}

/// measure_native(), once per dtype, class and process.
bool native_is_faster(at::ScalarType type, ProductClass kind) {
  static std::array<std::once_flag, 6> measured;
  static std::array<bool, 6> is_faster{};
  const std::size_t i = 2 * static_cast<std::size_t>(kind) + (type == at::kHalf ? 1 : 0);
  std::call_once(measured[i], [&] { is_faster[i] = measure_native(type, kind); });
  return is_faster[i];
}

/// Whether libtorch's own product is taken.
template <class Device>
bool goes_native(at::ScalarType type, ProductClass kind);

template <>
bool goes_native<OnCpu>(at::ScalarType type, ProductClass kind) {
  if (!is_16_bit(type)) return true;
  static const auto forced = parse_variable(LinearWays{}, "MEZZO_LINEAR");
  if (forced) return *forced == LinearWay::kNative;
  return native_is_faster(type, kind);
}

template <>
bool goes_native<OnCuda>(at::ScalarType /*type*/, ProductClass /*kind*/) {
  return true;
}

template <class Device>
at::Tensor linear_transposed_on(const at::Tensor& x, const at::Tensor& weight,
                                const OptionalTensor& bias, bool transposed) {
  // A backward may run inside a region, where libtorch would cast float32 rows to 16 bits.
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
  const bool native = goes_native<Device>(type, class_of_columns(factor.size(1)));
  const at::Tensor out =
      native ? native_product(rows, factor, bias) : blocked_product(rows, factor, bias);
  if (x.dim() == 2) return out;
  auto shape = x.sizes().vec();
  shape.back() = out.size(1);
  return out.view(shape);
}

template <class Device>
at::Tensor linear_on(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  return linear_transposed_on<Device>(x, weight, bias, true);
}

template <class Device>
at::Tensor transposed_product_on(const at::Tensor& a, const at::Tensor& b) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // as above
  MEZZO_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(0) &&
                  a.scalar_type() == b.scalar_type() && a.device() == b.device(),
              "_transposed_product: expected a [N, M] and b [N, K] of one dtype on one device, got "
              "{} {} on {} and {} {} on {}",
              c10::toString(a.scalar_type()), c10::str(a.sizes()), a.device().str(),
              c10::toString(b.scalar_type()), c10::str(b.sizes()), b.device().str());
  const bool native = goes_native<Device>(a.scalar_type(), ProductClass::kTransposed);
  return native ? native_product(a.t(), b, std::nullopt) : blocked_transposed_product(a, b);
}

}  // namespace

template <class Device>
void declare_linear(torch::Library& m) {
  m.impl("linear", &linear_on<Device>);
  m.impl("_linear", &linear_transposed_on<Device>);
  m.impl("_transposed_product", &transposed_product_on<Device>);
}

template void declare_linear<OnCpu>(torch::Library&);
template void declare_linear<OnCuda>(torch::Library&);

}  // namespace mezzo
