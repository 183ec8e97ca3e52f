#pragma once

#include <string_view>

namespace mezzo::kernels {

/// What this processor has. Of processors that are not x86-64, nothing.

bool is_intel();

/// Of what the backends of their names need, the first thing that is lacking; empty where there is
/// nothing.
std::string_view missing_avx2();
std::string_view missing_avx512();
std::string_view missing_avx512_bf16();

/// Whether products of 16-bit matrices by the processor's own instructions are clearly faster than
/// converting to float32 and multiplying there. bfloat16: with AMX, and with the AVX-512 BF16 of
/// other makers than Intel, whose runs at half the rate of float32. float16: on no x86-64 processor
/// that was measured. Other processors: yes, for they have no vector backend here.
bool has_fast_bfloat16_products();
bool has_fast_float16_products();

}  // namespace mezzo::kernels
