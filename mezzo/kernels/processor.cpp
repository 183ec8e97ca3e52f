#include "mezzo/kernels/processor.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace mezzo::kernels {

#ifdef __x86_64__

namespace {

/// Whether the processor has AMX for bfloat16 and the system saves its tiles. gcc 12 names neither.
bool has_amx_bf16() {
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;  // leaf 7, edx
  constexpr unsigned kSavesExtendedState = 1U << 27;            // leaf 1, ecx
  constexpr unsigned kTileState = 3U << 17;                     // XCR0
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSavesExtendedState) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

}  // namespace

// __builtin_cpu_supports() needs __builtin_cpu_init() if constructors of static objects call it.

bool is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

std::string_view missing_avx2() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return "avx2";
  if (!__builtin_cpu_supports("fma")) return "fma";
  if (!__builtin_cpu_supports("f16c")) return "f16c";
  return {};
}

std::string_view missing_avx512() {
  if (const auto missing = missing_avx2(); !missing.empty()) return missing;
  if (!__builtin_cpu_supports("avx512f")) return "avx512f";
  if (!__builtin_cpu_supports("avx512bw")) return "avx512bw";
  if (!__builtin_cpu_supports("avx512dq")) return "avx512dq";
  if (!__builtin_cpu_supports("avx512vl")) return "avx512vl";
  return {};
}

std::string_view missing_avx512_bf16() {
  if (const auto missing = missing_avx512(); !missing.empty()) return missing;
  if (!__builtin_cpu_supports("avx512bf16")) return "avx512_bf16";
  return {};
}

bool has_fast_bfloat16_products() {
  // cpuid takes microseconds in a virtual machine.
  static const bool fast = has_amx_bf16() || (missing_avx512_bf16().empty() && !is_intel());
  return fast;
}

bool has_fast_float16_products() {
  return false;
}

#else

bool is_intel() {
  return false;
}

std::string_view missing_avx2() {
  return "x86-64";
}

std::string_view missing_avx512() {
  return "x86-64";
}

std::string_view missing_avx512_bf16() {
  return "x86-64";
}

bool has_fast_bfloat16_products() {
  return true;
}

bool has_fast_float16_products() {
  return true;
}

#endif

}  // namespace mezzo::kernels
