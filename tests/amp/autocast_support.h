#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "support/devices.h"

/// Helpers to observe autocast on the test device.
namespace mezzo::test {

/// The dtype of matrix products in the open region.
inline at::ScalarType product_dtype() {
  const at::Tensor x = at::ones({2, 2}, on_device());
  return at::mm(x, x).scalar_type();
}

/// The cast of `weight` that products in the open region use.
inline at::Tensor cast_of(const at::Tensor& weight) {
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(test_device().type());
  return at::autocast::cached_cast(dtype, weight, test_device().type());
}

}  // namespace mezzo::test
