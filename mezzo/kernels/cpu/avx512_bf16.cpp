// The kernels of bfloat16, compiled with its conversion instruction; backend.cpp combines them with
// the other kernels of avx512.cpp. The rule of avx512.cpp about inline functions applies here too.
#include "mezzo/kernels/cpu/avx512_lanes.h"
#include "mezzo/kernels/cpu/table.h"

namespace mezzo::kernels {

extern const CpuBackend kAvx512BFloat16Kernels;
const CpuBackend kAvx512BFloat16Kernels =
    Table<Float32Lanes<true>, Float64Lanes, BFloat16>::backend("avx512_bf16");

}  // namespace mezzo::kernels
