// AVX-512 with the bfloat16 conversion instructions. The rule of avx512.cpp holds here too.
#include "mezzo/kernels/cpu/avx512_lanes.h"
#include "mezzo/kernels/cpu/table.h"

namespace mezzo {

extern const CpuBackend kAvx512Bf16Backend;
const CpuBackend kAvx512Bf16Backend =
    Table<Float32Lanes<true>, Float64Lanes>::backend("avx512_bf16");

}  // namespace mezzo
