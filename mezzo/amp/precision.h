#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// The precision of training.
enum class Precision : std::uint8_t {
  kFloat32,        ///< "fp32": float32
  kTensorFloat32,  ///< "tf32": float32 storage; CUDA products round their inputs to 11 bits
  kBFloat16,       ///< "bf16": autocast to bfloat16; float32's range, needs no loss scaling
  kFloat16,        ///< "fp16": autocast to float16; needs a GradScaler
};

/// All precisions, in enumerator order.
inline constexpr std::array kPrecisions = {Precision::kFloat32, Precision::kTensorFloat32,
                                           Precision::kBFloat16, Precision::kFloat16};

/// "fp32", "tf32", "bf16" or "fp16".
MEZZO_API std::string_view to_string(Precision precision);

/// Parses a name or the dtype's ("float32", "bfloat16", "float16"), in any case. Throws
/// InvalidArgument that lists the valid names.
MEZZO_API Precision parse_precision(std::string_view text);

/// The precision with the fastest training on the device and at least float32's range. It comes
/// from a table of processors (docs/performance.md), not from a measurement: kBFloat16 on CPUs with
/// AVX2 or AVX-512 and on GPUs of compute capability 8.0 and above, else kFloat32.
MEZZO_API Precision fastest_precision(c10::Device device);

class CpuPolicyRegion;

/// Options of PrecisionScope.
struct PrecisionOptions {
  /// How 16-bit precisions run libtorch's operators on the CPU.
  CpuPolicy cpu_policy = CpuPolicy::kMeasure;
};

/// Runs the rest of a scope in one precision on one device:
///
/// - kBFloat16, kFloat16: an Autocast region of that dtype. On the CPU, convolutions, matrix
///   products and attention compute in float32 if a measurement shows that their class is slower in
///   16 bits (cpu_policy.h), and round their results to 16 bits. Output dtypes are the same as
///   Autocast's, so float16 still needs a GradScaler; tensors saved for the backward are then
///   float32. CpuPolicy::kOff makes the scope a plain Autocast region. An Autocast region inside
///   the scope always follows PyTorch. On CUDA it is a Float32Reductions, too;
/// - kTensorFloat32: no autocast; on CUDA, matrix products, convolutions and recurrent layers may
///   use TF32. On other devices the scope runs in float32 and warns once per process;
/// - kFloat32: no autocast, even inside an enabled region. On CUDA TF32 is off, for convolutions
///   and recurrent layers too, where libtorch's default is on.
///
/// The end of the scope restores the previous state, also after an exception. Autocast is per
/// thread. The switches of TF32 and of cuBLAS's sums are libtorch's, one set per process: all
/// threads follow the newest scope, so open scopes on CUDA on one thread only. Run the backward by
/// backward(): a backward after the scope follows the switches that are then set.
class MEZZO_API PrecisionScope {
 public:
  /// Throws InvalidArgument for a 16-bit `precision` on a device without autocast, and for an
  /// invalid MEZZO_CPU_POLICY. Does not synchronise. The first operator of a class measures the
  /// class: about 40 ms, once per process.
  PrecisionScope(Precision precision, c10::Device device, const PrecisionOptions& options = {});
  ~PrecisionScope();

  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

  /// Calls loss.backward() outside the scope's autocast region and under its switches. The region
  /// ends here: the rest of the scope casts nothing. Throws what the backward throws.
  void backward(const at::Tensor& loss);

 private:
  class TensorFloat32;

  std::optional<Autocast> autocast_;
  std::unique_ptr<CpuPolicyRegion> cpu_policy_;  // destroyed before autocast_
  std::unique_ptr<TensorFloat32> tensor_float32_;
  std::optional<Float32Reductions> float32_reductions_;
};

}  // namespace mezzo::amp
