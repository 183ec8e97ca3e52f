#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <c10/core/Device.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// In which precision a model trains.
enum class Precision : std::uint8_t {
  kFloat32,        ///< "fp32": float32
  kTensorFloat32,  ///< "tf32": float32 storage; CUDA products round their inputs to 11 bits
  kBFloat16,       ///< "bf16": autocast to bfloat16; float32's range, needs no loss scaling
  kFloat16,        ///< "fp16": autocast to float16; needs a GradScaler
};

/// Every precision, in the order of the enumeration.
inline constexpr std::array kPrecisions = {Precision::kFloat32, Precision::kTensorFloat32,
                                           Precision::kBFloat16, Precision::kFloat16};

/// "fp32", "tf32", "bf16" or "fp16".
MEZZO_API std::string_view to_string(Precision precision);

/// The precision called `text`. Throws InvalidArgument that lists the choices.
MEZZO_API Precision parse_precision(std::string_view text);

class CpuPolicyRegion;

/// Options of PrecisionScope.
struct PrecisionOptions {
  /// What 16-bit precisions do with libtorch's operators on the CPU.
  CpuPolicy cpu_policy = CpuPolicy::kMeasure;
};

/// Makes the rest of a scope run in one precision on one device:
///
/// - kBFloat16, kFloat16: an Autocast region of that dtype. On the CPU convolutions, matrix
///   products and attention compute in float32 there, each class where a measurement finds it
///   slower in 16 bits (cpu_policy.h), and round their results to 16 bits: every dtype is
///   Autocast's, so a loss in float16 needs its GradScaler all the same. What they save for the
///   backward is then float32. cpu_policy = CpuPolicy::kOff makes the scope Autocast alone; an
///   Autocast region inside the scope is PyTorch's in any case;
/// - kTensorFloat32: no autocast; on CUDA, matrix products, convolutions and recurrent layers may
///   use TF32. Elsewhere there is no TF32: the scope is float32 and warns of it once per process;
/// - kFloat32: no autocast, also inside an enabled region. libtorch's TF32 switches stay as they
///   are (its own default: off for matrix products, on for cuDNN convolutions; on inside an
///   enclosing kTensorFloat32 scope).
///
/// The end of the scope, also by an exception, restores what was. Autocast is per thread and a
/// backward outside the scope uses the saved 16-bit tensors; the TF32 switches are per process, and
/// a backward uses TF32 only while they are on: keep it inside the scope for kTensorFloat32, and
/// open such scopes on one thread only.
class MEZZO_API PrecisionScope {
 public:
  /// Throws InvalidArgument where `device` has no autocast and `precision` is a 16-bit one, and for
  /// a MEZZO_CPU_POLICY that is none. Does not synchronise. The first operator of a class measures
  /// it, about 40 ms once per process.
  PrecisionScope(Precision precision, c10::Device device, const PrecisionOptions& options = {});
  ~PrecisionScope();

  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  class TensorFloat32;

  std::optional<Autocast> autocast_;
  std::unique_ptr<CpuPolicyRegion> cpu_policy_;    // ends before the region
  std::unique_ptr<TensorFloat32> tensor_float32_;  // ends before the region
};

}  // namespace mezzo::amp
