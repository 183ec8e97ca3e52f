#pragma once

#include <optional>

#include <ATen/ATen.h>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "tests/definitions/scaled_sum.h"

/// The definition of scaled_sum for tensors.
namespace mezzo::test::scaled {

/// A factor that is absent is 1.
struct Inputs {
  at::Tensor x;
  std::optional<at::Tensor> weight = {}, src_scale = {}, dst_scale = {};
};

inline at::Tensor run(const Topology& g, const Inputs& in) {
  return scaled_sum(g, in.x, in.weight, in.src_scale, in.dst_scale);
}

/// The sum and the gradients of x and of the weight.
inline Defined define(const Topology& g, const Inputs& in, const at::Tensor& grad) {
  const auto array = [](const std::optional<at::Tensor>& t) {
    return definition::array_of(t.value_or(at::Tensor()));
  };
  return definition::scaled_sum(definition::edges_of(g), array(in.x), array(in.weight),
                                array(in.src_scale), array(in.dst_scale), array(grad));
}

}  // namespace mezzo::test::scaled
