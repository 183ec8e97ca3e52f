#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// What PrecisionScope does with libtorch's 16-bit operators on the CPU. On other devices it makes
/// no difference.
enum class CpuPolicy : std::uint8_t {
  /// A class of operators that a measurement finds slower in 16 bits computes in float32.
  kMeasure,
  /// Everything as Autocast, that is as PyTorch, has it.
  kOff,
};

/// The classes of libtorch's operators between which the policy distinguishes.
enum class OpClass : std::uint8_t {
  kConvolution,    ///< conv1d/2d/3d, conv_transpose1d/2d/3d, conv_tbc
  kMatrixProduct,  ///< linear, matmul, mm, bmm, addmm, baddbmm, addbmm and oneDNN's recurrent
                   ///< layers
  kAttention,      ///< scaled_dot_product_attention and the fused multi-head attention
};

/// Every class, in the order of the enumeration.
inline constexpr std::array kOpClasses = {OpClass::kConvolution, OpClass::kMatrixProduct,
                                          OpClass::kAttention};

/// "convolution", "matrix product" or "attention".
MEZZO_API std::string_view to_string(OpClass op_class);

/// What the policy decided for one class and dtype, and why.
struct CpuPolicyChoice {
  OpClass op_class{};
  c10::ScalarType dtype{};         ///< at::kBFloat16 or at::kHalf
  bool float32 = false;            ///< whether the class computes in float32
  bool measured = false;           ///< false: MEZZO_CPU_POLICY decided, and there are no times
  double sixteen_bit_seconds = 0;  ///< forward and backward in 16 bits, the fastest round
  double float32_seconds = 0;      ///< the same in float32, casts to and from 16 bits included
};

/// How much faster 16-bit arithmetic must be for a class to use it: near ties go to float32, which
/// rounds less and does not overflow.
inline constexpr double kCpuPolicyGain = 1.05;

/// What kMeasure does with `op_class` in a region of `dtype`. The first call for a pair measures
/// it: forward and backward of one small operator of the class, both ways in turn, the fastest of
/// at least ten rounds each (three where 16 bits are hopeless). That runs in a clean
/// state of the calling thread (no random numbers drawn, nothing recorded), and takes about 40 ms
/// where no other program disturbs it. Later calls return the same choice. Safe to call from
/// several threads.
///
/// MEZZO_CPU_POLICY=16bit or float32 makes every choice without measuring, for bits that agree
/// between runs; `measure` is the default. It is read whenever a 16-bit PrecisionScope opens or
/// this is called. Throws InvalidArgument for another value and for a dtype other than the two.
MEZZO_API CpuPolicyChoice cpu_policy_choice(OpClass op_class, c10::ScalarType dtype);

/// All choices measured in this process so far, and none where nothing was: measures nothing.
MEZZO_API std::vector<CpuPolicyChoice> cpu_policy_report();

/// One line: "convolution Half: 16 bits 15.04 ms, float32 1.01 ms: float32".
MEZZO_API std::string to_string(const CpuPolicyChoice& choice);

}  // namespace mezzo::amp
