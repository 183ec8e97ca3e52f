#include "mezzo/amp/autocast/cpu_policy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/amp/autocast/cpu_policy_region.h"
#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

struct ConvolutionName {
  static constexpr OpClass kind = OpClass::kConvolution;
  static constexpr std::string_view name = "convolution";
};
struct MatrixProductName {
  static constexpr OpClass kind = OpClass::kMatrixProduct;
  static constexpr std::string_view name = "matrix product";
};
struct AttentionName {
  static constexpr OpClass kind = OpClass::kAttention;
  static constexpr std::string_view name = "attention";
};
using ClassNames = TypeList<ConvolutionName, MatrixProductName, AttentionName>;
static_assert(ClassNames::size == kOpClasses.size());

/// The value of MEZZO_CPU_POLICY.
enum class Setting : std::uint8_t { kMeasure, kSixteenBit, kFloat32 };

struct MeasureName {
  static constexpr Setting kind = Setting::kMeasure;
  static constexpr std::string_view name = "measure";
};
struct SixteenBitName {
  static constexpr Setting kind = Setting::kSixteenBit;
  static constexpr std::string_view name = "16bit";
};
struct Float32Name {
  static constexpr Setting kind = Setting::kFloat32;
  static constexpr std::string_view name = "float32";
};
using SettingNames = TypeList<MeasureName, SixteenBitName, Float32Name>;

/// Cached MEZZO_CPU_POLICY: reading the environment in every operator is too slow.
std::atomic<Setting> policy_setting{Setting::kMeasure};

void read_setting() {
  policy_setting = parse_variable(SettingNames{}, "MEZZO_CPU_POLICY").value_or(Setting::kMeasure);
}

/// One small operator of a class: forward and backward take one or two milliseconds in float32.
struct Sample {
  at::Tensor input;   // 16-bit activation, as the previous layer returns under autocast
  at::Tensor weight;  // float32 leaf; undefined if the class has no weight
  std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight)> run;
};

Sample sample_of(OpClass op_class, at::ScalarType dtype) {
  const auto activation = [&](at::IntArrayRef shape) {
    return at::full(shape, 0.5, at::TensorOptions().dtype(dtype)).requires_grad_();
  };
  const auto weight = [](at::IntArrayRef shape) { return at::full(shape, 0.01).requires_grad_(); };
  switch (op_class) {
    case OpClass::kConvolution:
      return {activation({2, 64, 14, 14}), weight({64, 64, 3, 3}),
              [](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, {}, 1, 1); }};
    case OpClass::kMatrixProduct:
      return {activation({64, 512}), weight({256, 512}),
              [](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); }};
    case OpClass::kAttention:
      break;
  }
  return {activation({2, 4, 128, 64}), {}, [](const at::Tensor& x, const at::Tensor&) {
            return at::scaled_dot_product_attention(x, x, x);
          }};
}

/// Time of forward and backward in a region of `dtype`.
double seconds(const Sample& sample, bool float32) {
  const auto start = std::chrono::steady_clock::now();
  const at::ScalarType dtype = sample.input.scalar_type();
  const at::ScalarType arithmetic = float32 ? at::kFloat : dtype;
  std::vector<at::Tensor> leaves = {sample.input};
  at::Tensor weight;
  if (sample.weight.defined()) {
    leaves.push_back(sample.weight);
    weight = sample.weight.to(arithmetic);
  }
  const at::Tensor out = sample.run(sample.input.to(arithmetic), weight).to(dtype);
  torch::autograd::grad({out}, leaves, {at::ones_like(out)});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

CpuPolicyChoice measure(OpClass op_class, at::ScalarType dtype) {
  // The minimum over many rounds is robust to noise from other programs. Reference kernels are tens
  // of times slower; three rounds are enough for them.
  constexpr int kRounds = 10, kRoundsIfHopeless = 3;
  constexpr double kBudget = 0.03, kHopeless = 4;

  const at::RecordFunctionGuard unrecorded(/*is_enabled=*/false);
  const Sample sample = sample_of(op_class, dtype);
  CpuPolicyChoice choice{op_class, dtype};
  choice.measured = true;
  choice.float32_seconds = choice.sixteen_bit_seconds = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int round = 1; round <= kRounds || spent < kBudget; ++round) {
    const double float32 = seconds(sample, true), sixteen_bit = seconds(sample, false);
    spent += float32 + sixteen_bit;
    choice.float32_seconds = std::min(choice.float32_seconds, float32);
    choice.sixteen_bit_seconds = std::min(choice.sixteen_bit_seconds, sixteen_bit);
    const bool hopeless = choice.sixteen_bit_seconds > kHopeless * choice.float32_seconds;
    if (hopeless && round >= kRoundsIfHopeless) break;
  }
  choice.float32 = choice.sixteen_bit_seconds * kCpuPolicyGain > choice.float32_seconds;
  return choice;
}

/// The thread-local state of a new thread: no regions, no_grad and inference modes, hooks or
/// transforms. Measure on the calling thread, since OpenMP slows down a second thread team.
at::ThreadLocalState state_of_a_new_thread() {
  return std::async(std::launch::async, [] { return at::ThreadLocalState(); }).get();
}

/// Measurements of this process.
class Measurements {
 public:
  const CpuPolicyChoice& get(OpClass op_class, at::ScalarType dtype) {
    Entry& entry = entries_[index(op_class, dtype)];
    if (entry.done.load(std::memory_order_acquire)) return entry.choice;
    const std::lock_guard lock(mutex_);
    if (entry.done.load(std::memory_order_relaxed)) return entry.choice;
    const at::ThreadLocalStateGuard clean(state_of_a_new_thread());
    entry.choice = measure(op_class, dtype);
    mezzo::detail::log("dispatch", "cpu policy: " + to_string(entry.choice));
    entry.done.store(true, std::memory_order_release);
    return entry.choice;
  }

  std::vector<CpuPolicyChoice> all() const {
    std::vector<CpuPolicyChoice> choices;
    for (const Entry& entry : entries_) {
      if (entry.done.load(std::memory_order_acquire)) choices.push_back(entry.choice);
    }
    return choices;
  }

 private:
  struct Entry {
    CpuPolicyChoice choice;
    std::atomic<bool> done{false};
  };

  static std::size_t index(OpClass op_class, at::ScalarType dtype) {
    return static_cast<std::size_t>(op_class) + (dtype == at::kHalf ? kOpClasses.size() : 0);
  }

  std::mutex mutex_;  // concurrent measurements would slow each other
  std::array<Entry, 2 * kOpClasses.size()> entries_;
};

Measurements& measurements() {
  static Measurements all;
  return all;
}

/// Nesting depth of the calling thread's autocast regions, including libtorch's own.
int nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

/// Nesting depth inside the region of the current policy; 0 if this thread opened none, e.g. if it
/// copied its state from another thread.
thread_local int region_nesting = 0;

}  // namespace

std::string_view to_string(OpClass op_class) {
  return name_of(ClassNames{}, op_class);
}

std::string to_string(const CpuPolicyChoice& choice) {
  const std::string_view decision = choice.float32 ? "float32" : "16 bits";
  if (!choice.measured) {
    return fmt::format("{} {}: {} by MEZZO_CPU_POLICY", to_string(choice.op_class),
                       c10::toString(choice.dtype), decision);
  }
  return fmt::format("{} {}: 16 bits {:.2f} ms, float32 {:.2f} ms: {}", to_string(choice.op_class),
                     c10::toString(choice.dtype), choice.sixteen_bit_seconds * 1e3,
                     choice.float32_seconds * 1e3, decision);
}

CpuPolicyChoice cpu_policy_choice(OpClass op_class, c10::ScalarType dtype) {
  MEZZO_CHECK(is_16_bit(dtype), "cpu_policy_choice: expected dtype BFloat16 or Half, got {}",
              c10::toString(dtype));
  read_setting();
  if (policy_setting == Setting::kMeasure) return measurements().get(op_class, dtype);
  CpuPolicyChoice choice{op_class, dtype};
  choice.float32 = policy_setting == Setting::kFloat32;
  return choice;
}

std::vector<CpuPolicyChoice> cpu_policy_report() {
  return measurements().all();
}

CpuPolicyRegion::CpuPolicyRegion(CpuPolicy policy)
    : thread_(std::this_thread::get_id()),
      previous_included_(c10::impl::tls_is_dispatch_key_included(kCpuPolicyKey)),
      previous_nesting_(region_nesting) {
  if (policy == CpuPolicy::kMeasure) read_setting();
  c10::impl::tls_set_dispatch_key_included(kCpuPolicyKey, policy == CpuPolicy::kMeasure);
  region_nesting = nesting();
}

CpuPolicyRegion::~CpuPolicyRegion() {
  if (std::this_thread::get_id() != thread_) return;  // ~Autocast warns
  c10::impl::tls_set_dispatch_key_included(kCpuPolicyKey, previous_included_);
  region_nesting = previous_nesting_;
}

CpuPolicy current_cpu_policy() {
  const bool included = c10::impl::tls_is_dispatch_key_included(kCpuPolicyKey);
  return included && nesting() <= region_nesting ? CpuPolicy::kMeasure : CpuPolicy::kOff;
}

std::optional<c10::ScalarType> region_dtype() {
  if (!at::autocast::is_autocast_enabled(at::kCPU) || nesting() > region_nesting) {
    return std::nullopt;
  }
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  return is_16_bit(dtype) ? std::optional(dtype) : std::nullopt;  // else within KeepFloat32
}

std::optional<c10::ScalarType> float32_output_dtype(OpClass op_class) {
  const std::optional<c10::ScalarType> dtype = region_dtype();
  if (!dtype) return std::nullopt;
  const Setting current = policy_setting;
  const bool float32 = current == Setting::kMeasure ? measurements().get(op_class, *dtype).float32
                                                    : current == Setting::kFloat32;
  return float32 ? dtype : std::nullopt;
}

}  // namespace mezzo::amp
