#include "mezzo/amp/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include "mezzo/amp/autocast/cpu_policy_region.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"
#include "mezzo/kernels/backend.h"

namespace mezzo::amp {
namespace {

struct Float32Name {
  static constexpr Precision kind = Precision::kFloat32;
  static constexpr std::string_view name = "fp32";
  static constexpr std::string_view long_name = "float32";
};
struct TensorFloat32Name {
  static constexpr Precision kind = Precision::kTensorFloat32;
  static constexpr std::string_view name = "tf32";
};
struct BFloat16Name {
  static constexpr Precision kind = Precision::kBFloat16;
  static constexpr std::string_view name = "bf16";
  static constexpr std::string_view long_name = "bfloat16";
};
struct Float16Name {
  static constexpr Precision kind = Precision::kFloat16;
  static constexpr std::string_view name = "fp16";
  static constexpr std::string_view long_name = "float16";
};
using Names = TypeList<Float32Name, TensorFloat32Name, BFloat16Name, Float16Name>;
static_assert(Names::size == kPrecisions.size());

using at::Float32Backend;
using at::Float32Op;

/// The value of one entry; kNONE if it equals the inherited value. libtorch reports only the
/// effective value, and an inheriting entry must be restored as inheriting.
at::Float32Precision entry(Float32Backend backend, Float32Op op) {
  const at::Float32Precision effective = at::globalContext().float32Precision(backend, op);
  const at::Float32Precision inherited =
      at::globalContext().float32Precision(backend, Float32Op::ALL);
  return effective == inherited ? at::Float32Precision::NONE : effective;
}

/// libtorch's older switch, or nothing if it contradicts the newer entries: reading it then throws,
/// so the caller's contradictory setting is not changed.
template <class Read>
auto older_switch(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

Precision fastest_precision(c10::Device device) {
  if (device.is_cuda()) {
    // libtorch's name for compute capability 8.0 and above.
    const bool has_bfloat16 = at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8();
    return has_bfloat16 ? Precision::kBFloat16 : Precision::kFloat32;
  }
  const bool has_vectors = device.is_cpu() && kernels::cpu_backend().name != "scalar";
  return has_vectors ? Precision::kBFloat16 : Precision::kFloat32;
}

std::string_view to_string(Precision precision) {
  return name_of(Names{}, precision);
}

Precision parse_precision(std::string_view text) {
  return parse(Names{}, "precision", text);
}

/// Turns TF32 on or off for CUDA until destroyed. Sets both of libtorch's families of switches, so
/// that they agree.
class PrecisionScope::TensorFloat32 {
 public:
  explicit TensorFloat32(bool on)
      : on_(on),
        matmul_(entry(Float32Backend::CUDA, Float32Op::MATMUL)),
        conv_(entry(Float32Backend::CUDA, Float32Op::CONV)),
        rnn_(entry(Float32Backend::CUDA, Float32Op::RNN)),
        cpu_matmul_(entry(Float32Backend::MKLDNN, Float32Op::MATMUL)),
        older_matmul_(older_switch([] { return at::globalContext().allowTF32CuBLAS(); })),
        older_cudnn_(older_switch([] { return at::globalContext().allowTF32CuDNN(); })),
        older_precision_(
            older_switch([] { return at::globalContext().float32MatmulPrecision(); })) {
    at::Context& context = at::globalContext();
    // A switch that is already right is not written: "medium" would change to "high".
    if (older_matmul_ == !on) context.setAllowTF32CuBLAS(on);
    if (older_cudnn_ == !on) context.setAllowTF32CuDNN(on);
    const auto precision = on ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
    set_entries(precision, precision, precision);
  }

  ~TensorFloat32() {
    at::Context& context = at::globalContext();
    if (older_matmul_ == !on_) context.setAllowTF32CuBLAS(!on_);
    if (older_cudnn_ == !on_) context.setAllowTF32CuDNN(!on_);
    if (!on_ && older_precision_ == at::Float32MatmulPrecision::MEDIUM) {
      context.setFloat32MatmulPrecision("medium");  // changes the CPU's entry, too
      context.setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL, cpu_matmul_);
    }
    set_entries(matmul_, conv_, rnn_);
  }

  TensorFloat32(const TensorFloat32&) = delete;
  TensorFloat32& operator=(const TensorFloat32&) = delete;

 private:
  static void set_entries(at::Float32Precision matmul, at::Float32Precision conv,
                          at::Float32Precision rnn) {
    at::Context& context = at::globalContext();
    context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, matmul);
    context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, conv);
    context.setFloat32Precision(Float32Backend::CUDA, Float32Op::RNN, rnn);
  }

  bool on_;
  at::Float32Precision matmul_, conv_, rnn_, cpu_matmul_;
  std::optional<bool> older_matmul_, older_cudnn_;
  std::optional<at::Float32MatmulPrecision> older_precision_;
};

PrecisionScope::PrecisionScope(Precision precision, c10::Device device,
                               const PrecisionOptions& options) {
  if (precision == Precision::kBFloat16 || precision == Precision::kFloat16) {
    autocast_.emplace(device.type(), precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf);
    if (device.is_cpu()) {
      cpu_policy_ = std::make_unique<CpuPolicyRegion>(options.cpu_policy);
    } else if (device.is_cuda()) {
      float32_reductions_.emplace();
    }
    return;
  }
  if (at::autocast::is_autocast_available(device.type())) {
    autocast_.emplace(device.type(), kDisabled);
  }
  const bool tensor_float32 = precision == Precision::kTensorFloat32;
  if (device.is_cuda()) {
    tensor_float32_ = std::make_unique<TensorFloat32>(tensor_float32);
  } else if (tensor_float32) {
    TORCH_WARN_ONCE("mezzo: precision tf32 exists on cuda only; on ", device.type(),
                    " it is float32");
  }
}

PrecisionScope::~PrecisionScope() = default;

void PrecisionScope::backward(const at::Tensor& loss) {
  cpu_policy_.reset();
  autocast_.reset();
  loss.backward();
}

}  // namespace mezzo::amp
