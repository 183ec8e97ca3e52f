#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/kernels/dropout.h"

// What the operators that drop share; internal to message_passing.

namespace mezzo {

/// One number of libtorch's CPU generator, so that torch::manual_seed rules every draw and the same
/// elements drop on every device. Throws InvalidArgument naming `what` where the work of `device`
/// is being captured: the number would be a constant of the graph.
std::int64_t draw_dropout_seed(const char* what, at::Device device);

/// Throws InvalidArgument naming `what` unless the probability is in [0, 1].
void check_dropout(const char* what, double probability);

/// The nearest step of the probability. Throws as check_dropout.
DropoutLevel dropout_level(const char* what, double probability, std::int64_t seed);

}  // namespace mezzo
