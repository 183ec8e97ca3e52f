#pragma once

#include <torch/library.h>

// The operators' kernels, device by device (see device.h); internal to message_passing.

namespace mezzo {

template <class Device>
void declare_operators(torch::Library& m);
template <class Device>
void declare_message_grad(torch::Library& m);
template <class Device>
void declare_weighted_grad(torch::Library& m);
template <class Device>
void declare_gat_attention(torch::Library& m);
template <class Device>
void declare_gatv2_scores(torch::Library& m);
template <class Device>
void declare_dropout(torch::Library& m);
template <class Device>
void declare_linear(torch::Library& m);
/// Made of other operators: the same on every device.
void declare_grouped_products(torch::Library& m);

/// Registers all of them under the dispatch key of `m`.
template <class Device>
void declare_all(torch::Library& m) {
  declare_operators<Device>(m);
  declare_message_grad<Device>(m);
  declare_weighted_grad<Device>(m);
  declare_gat_attention<Device>(m);
  declare_gatv2_scores<Device>(m);
  declare_dropout<Device>(m);
  declare_linear<Device>(m);
  declare_grouped_products(m);
}

}  // namespace mezzo
