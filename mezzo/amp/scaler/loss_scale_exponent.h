#pragma once

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Of the largest power of two that is a normal float32 number and has a normal inverse.
constexpr int kHighestScaleExponent = 126;

/// The largest s in [lowest, highest] with 2^s * headroom * largest <= 65504, float16's largest
/// number, by the exact product; lowest where none is. largest: at least 0, may be inf. headroom:
/// at least 1 and finite.
MEZZO_API int loss_scale_exponent(double largest, double headroom, int lowest, int highest);

}  // namespace mezzo::amp
