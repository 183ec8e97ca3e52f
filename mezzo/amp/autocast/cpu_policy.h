#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// How PrecisionScope runs libtorch's 16-bit operators on the CPU. No effect on other devices.
enum class CpuPolicy : std::uint8_t {
  /// Operators compute in float32 if a measurement shows that their class is slower in 16 bits,
  /// and layer_norm always: libtorch adds the gradients of its weight and bias in 16 bits.
  kMeasure,
  /// Same as Autocast and PyTorch.
  kOff,
};

/// Classes of libtorch's operators; the policy chooses per class.
enum class OpClass : std::uint8_t {
  kConvolution,    ///< conv1d/2d/3d, conv_transpose1d/2d/3d, conv_tbc
  kMatrixProduct,  ///< linear, matmul, mm, bmm, addmm, baddbmm, addbmm and oneDNN's recurrent
                   ///< layers
  kAttention,      ///< scaled_dot_product_attention and the fused multi-head attention
};

/// All classes, in enumerator order.
inline constexpr std::array kOpClasses = {OpClass::kConvolution, OpClass::kMatrixProduct,
                                          OpClass::kAttention};

/// "convolution", "matrix product" or "attention".
MEZZO_API std::string_view to_string(OpClass op_class);

/// The policy's choice for one class and dtype, and the timings behind it.
struct CpuPolicyChoice {
  OpClass op_class{};
  c10::ScalarType dtype{};         ///< at::kBFloat16 or at::kHalf
  bool float32 = false;            ///< whether the class computes in float32
  bool measured = false;           ///< false: set by MEZZO_CPU_POLICY, no timings
  double sixteen_bit_seconds = 0;  ///< forward and backward in 16 bits, fastest round
  double float32_seconds = 0;      ///< same in float32, including casts from and to 16 bits
};

/// A class uses 16 bits only if they are faster by this factor: float32 wins near ties, as it
/// rounds less and does not overflow.
inline constexpr double kCpuPolicyGain = 1.05;

/// The choice of kMeasure for `op_class` in a region of `dtype`. The first call for a pair
/// measures: forward and backward of one small operator of the class, alternating between 16 bits
/// and float32, fastest of at least ten rounds each (three if 16 bits are far slower). It draws no
/// random numbers, records nothing and takes about 40 ms on an idle machine. Later calls return the
/// same choice. Thread-safe.
///
/// MEZZO_CPU_POLICY=16bit or float32 fixes every choice without measuring, which makes runs
/// reproducible bit for bit; the default is `measure`. It is read when a 16-bit PrecisionScope
/// opens and on each call. Throws InvalidArgument for another value and for a dtype other than
/// float16 and bfloat16.
MEZZO_API CpuPolicyChoice cpu_policy_choice(OpClass op_class, c10::ScalarType dtype);

/// All choices measured in this process so far. Measures nothing.
MEZZO_API std::vector<CpuPolicyChoice> cpu_policy_report();

/// One line: "convolution Half: 16 bits 15.04 ms, float32 1.01 ms: float32".
MEZZO_API std::string to_string(const CpuPolicyChoice& choice);

}  // namespace mezzo::amp
