#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

namespace mezzo::bench {

/// The bits of float32 numbers: NaN equals itself.
at::Tensor float_bits(const at::Tensor& numbers);

/// Elements of float32 tensors whose bits differ.
std::int64_t differing(const at::Tensor& a, const at::Tensor& b);

/// R-MAT on a power of two of nodes, scaled to any number of them.
Topology rmat_of(std::int64_t nodes, std::int64_t edges);

/// Makes `steps` random questions and updates of a small graph to Predictors with and without kept
/// rows. Returns the number of elements whose bits differ from a full pass of a new Predictor.
std::int64_t stress_predictor(const nn::Model& model, amp::Precision precision, std::int64_t steps);

}  // namespace mezzo::bench
