#include "mezzo/kernels/processor.h"

namespace mezzo {

#ifdef __x86_64__

// The compiler's questions need __builtin_cpu_init() where constructors of static objects ask them.

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

#endif

}  // namespace mezzo
