#include "mezzo/amp/scaler/loss_scale_exponent.h"

#include <cmath>

namespace mezzo::amp {

int loss_scale_exponent(double largest, double headroom, int lowest, int highest) {
  constexpr double kLargestFloat16 = 65504.0;
  // Rounded once, so its sign is that of the exact difference. What ldexp rounds is subnormal, and
  // far below the bound with any headroom.
  const auto fits = [&](int exponent) {
    return std::fma(std::ldexp(largest, exponent), headroom, -kLargestFloat16) <= 0.0;
  };
  int exponent = highest;
  while (exponent > lowest && !fits(exponent)) --exponent;
  return exponent;
}

}  // namespace mezzo::amp
