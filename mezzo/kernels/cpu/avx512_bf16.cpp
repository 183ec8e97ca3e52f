// The kernels of bfloat16 compiled with its conversion instruction; backend.cpp joins them with the
// other kernels of avx512.cpp, whose rule holds here too.
#include "mezzo/kernels/cpu/avx512_lanes.h"
#include "mezzo/kernels/cpu/table.h"

namespace mezzo::kernels {

extern const CpuBackend kAvx512BFloat16Kernels;
const CpuBackend kAvx512BFloat16Kernels =
    Table<Float32Lanes<true>, Float64Lanes, BFloat16>::backend("avx512_bf16");

}  // namespace mezzo::kernels
