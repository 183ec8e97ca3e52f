#include "mezzo/amp/scaler/loss_scale_exponent.h"

#include <cmath>

namespace mezzo::amp {

int loss_scale_exponent(double largest, double headroom, int lowest, int highest) {
  constexpr double kLargestFloat16 = 65504.0;
  // Rounded once, so the sign is exact. ldexp rounds only subnormal numbers, which are far below
  // the bound.
  const auto fits = [&](int exponent) {
    return std::fma(std::ldexp(largest, exponent), headroom, -kLargestFloat16) <= 0.0;
  };
  int exponent = highest;
  while (exponent > lowest && !fits(exponent)) --exponent;
  return exponent;
}

}  // namespace mezzo::amp
