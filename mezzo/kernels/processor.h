#pragma once

#include <string_view>

namespace mezzo::kernels {

/// Whether this is a processor of Intel.
bool is_intel();

/// The first CPU feature that the backend of this name needs and this processor lacks; empty if it
/// lacks none. "x86-64" on other architectures.
std::string_view missing_avx2();
std::string_view missing_avx512();
std::string_view missing_avx512_bf16();

/// Whether native products of 16-bit matrices are clearly faster than converting to float32 and
/// multiplying there. bfloat16: with AMX, or with AVX-512 BF16 if not by Intel (there it runs at
/// half the rate of float32). float16: on no x86-64 processor measured so far. Other architectures:
/// true, because they have no vector backend here.
bool has_fast_bfloat16_products();
bool has_fast_float16_products();

}  // namespace mezzo::kernels
