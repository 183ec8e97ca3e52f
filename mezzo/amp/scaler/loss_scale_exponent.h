#pragma once

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Exponent of the largest normal float32 power of two with a normal inverse.
constexpr int kHighestScaleExponent = 126;

/// The largest s in [lowest, highest] with 2^s * headroom * largest <= 65504, float16's largest
/// number, computed exactly; lowest if no s fits. largest: >= 0, may be inf. headroom: >= 1,
/// finite.
MEZZO_API int loss_scale_exponent(double largest, double headroom, int lowest, int highest);

}  // namespace mezzo::amp
