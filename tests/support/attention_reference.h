#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/tensors.h"
#include "tests/definitions/gat_attention.h"

/// The definition of gat_attention for tensors.
namespace mezzo::test::gat {

/// The operands of one attention. `weight`: undefined, [E] or [E, H]; `dropout` draws under kSeed.
struct Inputs {
  at::Tensor z, src, dst, weight;
  double slope = 0.2;
  double dropout = 0;
};

inline constexpr std::uint64_t kSeed = 7;

inline at::Tensor run(const Topology& g, const Inputs& in) {
  at::manual_seed(kSeed);
  return gat_attention(g, in.z, in.src, in.dst,
                       {.negative_slope = in.slope,
                        .dropout = in.dropout,
                        .training = true,
                        .edge_weight = in.weight});
}

inline std::vector<at::Tensor> operands(const Inputs& in) {
  std::vector<at::Tensor> all = {in.z, in.src, in.dst};
  if (in.weight.defined()) all.push_back(in.weight);
  return all;
}

/// Dropout's factor of each edge and head, from the operator for whole tensors.
inline at::Tensor dropout_factors(const Topology& g, const Inputs& in) {
  at::manual_seed(kSeed);
  return mezzo::feature_dropout(at::ones({g.num_edges(), in.z.size(1)}, on_device(at::kDouble)),
                                in.dropout, true);
}

/// The result, and the gradients of z, src, dst and the weight.
inline Defined define(const Topology& g, const Inputs& in, const at::Tensor& grad) {
  using definition::array_of;
  const definition::Edges edges = definition::edges_of(g);
  const definition::Attention attention{.edges = edges,
                                        .z = array_of(in.z),
                                        .src = array_of(in.src),
                                        .dst = array_of(in.dst),
                                        .weight = array_of(in.weight),
                                        .dropout = array_of(dropout_factors(g, in)),
                                        .slope = in.slope};
  const definition::Array up = array_of(grad);
  const definition::AttentionResult result = definition::gat_attention(attention);
  const DTypeInfo& stored = info(in.z.scalar_type());
  const auto state =
      definition::attention_state(attention, result, up, stored.smallest / stored.epsilon);
  const auto of = definition::gat_attention_gradients(attention, state, up);
  return definition::Result{result.out, {of.z, of.src, of.dst, of.weight}};
}

/// Whether a gradient is within its bound. The mean gradient of a row is read from the result,
/// which is stored as `stored`.
inline testing::AssertionResult gradient_near(const at::Tensor& got, const Reference& expected,
                                              at::ScalarType stored) {
  return near(got, expected.value,
              {.abs_sum = expected.abs_sum,
               .terms = expected.terms,
               .storage = got.scalar_type(),
               .operand_epsilon = info(stored).epsilon});
}

}  // namespace mezzo::test::gat
