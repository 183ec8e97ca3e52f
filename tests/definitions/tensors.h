#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/topology.h"

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// The elements of an int64 tensor [n].
inline std::vector<std::int64_t> ids_of(const at::Tensor& ids) {
  const at::Tensor all = ids.to(at::kCPU, at::kLong).contiguous();
  const auto* data = all.const_data_ptr<std::int64_t>();
  return {data, data + all.numel()};
}

/// In float64. Of an undefined tensor: absent.
inline Array array_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor all = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* data = all.const_data_ptr<double>();
  return {all.sizes().vec(), {data, data + all.numel()}};
}

/// In float64 on the CPU. Of an absent array: undefined.
inline at::Tensor tensor_of(const Array& array) {
  if (!array.is_present()) return {};
  at::Tensor tensor = at::empty(array.sizes, at::kDouble);
  std::copy(array.values.begin(), array.values.end(), tensor.data_ptr<double>());
  return tensor;
}

/// In edge-id order.
inline Edges edges_of(const Topology& topology) {
  return {topology.num_src(), topology.num_dst(), ids_of(topology.src()), ids_of(topology.dst()),
          ids_of(at::arange(topology.num_edges(), at::kLong))};
}

}  // namespace mezzo::definition
