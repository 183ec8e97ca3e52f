// AVX-512 (F, BW, DQ, VL). Apart from templates over the vectors, include no inline function that
// another file also compiles: the linker keeps one copy, and if it is this one, the other file
// crashes on older machines.
#include "mezzo/kernels/cpu/avx512_lanes.h"
#include "mezzo/kernels/cpu/table.h"

namespace mezzo::kernels {

extern const CpuBackend kAvx512Backend;
const CpuBackend kAvx512Backend = Table<Float32Lanes<false>, Float64Lanes>::backend("avx512");

}  // namespace mezzo::kernels
