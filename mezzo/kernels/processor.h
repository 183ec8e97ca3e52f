#pragma once

#include <string_view>

namespace mezzo {

/// What this processor has. Of processors that are not x86-64, nothing.

bool is_intel();

/// Of what the backends of their names need, the first thing that is lacking; empty where there is
/// nothing.
std::string_view missing_avx2();
std::string_view missing_avx512();
std::string_view missing_avx512_bf16();

}  // namespace mezzo
