#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "mezzo/core/dtype.h"
#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"

#include "support/devices.h"
#include "support/errors.h"

/// Shared by all tests: dtypes with their limits, reproducible tensors and graphs, all on the test
/// device. A test that includes this file does not repeat its includes of other libraries.
namespace mezzo::test {

/// A feature dtype and the limits for tolerances and range tests.
struct DTypeInfo {
  std::string name;
  at::ScalarType scalar;
  double epsilon;        ///< gap between 1 and the next number, of the storage
  double accum_epsilon;  ///< the same, of the accumulator
  double smallest;       ///< smallest positive (subnormal) number
  double largest;        ///< largest finite number
};

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
  }
  return at::ScalarType::Undefined;
}

inline std::pair<double, double> range_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return {0x1p-24, 65504.0};
    case at::kBFloat16:
      return {0x1p-133, 0x1.fep127};
    case at::kFloat:
      return {0x1p-149, std::numeric_limits<float>::max()};
    default:
      return {std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()};
  }
}

/// Every dtype of the list DTypes.
inline const std::vector<DTypeInfo>& dtypes() {
  static const std::vector<DTypeInfo> all = [] {
    std::vector<DTypeInfo> list;
    mezzo::detail::for_each(DTypes{}, [&]<class T>() {
      const at::ScalarType scalar = scalar_type(T::kind);
      const double accum = scalar == at::kDouble ? Float64::epsilon : Float32::epsilon;
      const auto [smallest, largest] = range_of(scalar);
      list.push_back({std::string(T::name), scalar, T::epsilon, accum, smallest, largest});
    });
    return list;
  }();
  return all;
}

inline const DTypeInfo& info(at::ScalarType scalar) {
  for (const DTypeInfo& dtype : dtypes()) {
    if (dtype.scalar == scalar) return dtype;
  }
  throw std::logic_error("not a dtype of features");
}

/// The 16-bit dtypes.
inline std::vector<DTypeInfo> narrow_dtypes() {
  std::vector<DTypeInfo> sixteen_bit;
  for (const DTypeInfo& dtype : dtypes()) {
    if (dtype.scalar == at::kHalf || dtype.scalar == at::kBFloat16) sixteen_bit.push_back(dtype);
  }
  return sixteen_bit;
}

inline double max_in_degree(const Topology& topology) {
  if (topology.num_edges() == 0) return 0;
  return static_cast<double>(topology.in_degrees().max().item<std::int64_t>());
}

/// A tensor [n] of these numbers.
inline at::Tensor numbers(const std::vector<double>& values, at::ScalarType dtype = at::kDouble) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.data_ptr<double>());
  return tensor.to(test_device(), dtype);
}

/// An int64 tensor [n] of ids.
inline at::Tensor ids(const std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<std::int64_t>());
  return on_device(tensor);
}

/// `make(i)` for every element i in row-major order, then rounded to `dtype`.
template <class Make>
at::Tensor filled(at::IntArrayRef sizes, at::ScalarType dtype, Make make) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = make(static_cast<std::uint64_t>(i));
  return tensor.to(test_device(), dtype);
}

/// Whole numbers in [low, high], which every dtype represents while |n| <= 256.
inline at::Tensor integers(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed,
                           std::int64_t low = -4, std::int64_t high = 4) {
  const auto span = static_cast<std::uint64_t>(high - low + 1);
  return filled(sizes, dtype, [=](std::uint64_t i) {
    return static_cast<double>(low + static_cast<std::int64_t>(random_below(span, seed, 1, i)));
  });
}

/// Powers of two with either sign, 1 to 4: dividing by them is exact.
inline at::Tensor divisors(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed) {
  return filled(sizes, dtype, [=](std::uint64_t i) {
    const std::uint64_t draw = random_below(6, seed, 2, i);
    return std::ldexp(draw % 2 == 0 ? 1.0 : -1.0, static_cast<int>(draw / 2));
  });
}

/// Numbers in [low, high).
inline at::Tensor uniform(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed,
                          double low = -1.0, double high = 1.0) {
  return filled(sizes, dtype,
                [=](std::uint64_t i) { return low + (high - low) * random_uniform(seed, 3, i); });
}

/// A leaf copy that requires a gradient.
inline at::Tensor leaf(const at::Tensor& values) {
  at::Tensor copy = values.detach().clone();
  copy.set_requires_grad(true);
  return copy;
}

/// Sets libtorch's number of threads during its lifetime.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

/// A structure and its name for failure messages.
struct NamedTopology {
  std::string name;
  Topology topology;
};

/// Edges as two lists of ids.
inline Topology topology_of(const std::vector<std::int64_t>& src,
                            const std::vector<std::int64_t>& dst, std::int64_t num_src,
                            std::int64_t num_dst, IdWidth width = IdWidth::kAutomatic) {
  return Topology::from_coo(ids(src), ids(dst), num_src, num_dst, width);
}

/// 4 nodes; edges 0: 0->1, 1: 0->2, 2: 1->2, 3: 3->2. Nodes 0 and 3 have no in-edges.
inline Topology four_nodes(IdWidth width = IdWidth::kAutomatic) {
  return topology_of({0, 0, 1, 3}, {1, 2, 2, 2}, 4, 4, width);
}

/// `num_sources` edges, from each source to the one destination.
inline Topology in_star(std::int64_t num_sources) {
  return Topology::from_coo(at::arange(num_sources, on_device()),
                            at::zeros({num_sources}, on_device(at::kLong)), num_sources, 1);
}

/// Edges with random endpoints; `skew` > 1 prefers low ids.
inline Topology random_topology(std::int64_t num_src, std::int64_t num_dst, std::int64_t num_edges,
                                std::uint64_t seed, double skew = 1.0,
                                IdWidth width = IdWidth::kAutomatic) {
  std::vector<std::int64_t> src, dst;
  for (std::int64_t e = 0; e < num_edges; ++e) {
    const auto draw = [&](std::int64_t count, std::uint64_t stream) {
      const double u = random_uniform(seed, stream, static_cast<std::uint64_t>(e));
      return static_cast<std::int64_t>(std::pow(u, skew) * static_cast<double>(count));
    };
    src.push_back(draw(num_src, 11));
    dst.push_back(draw(num_dst, 12));
  }
  return topology_of(src, dst, num_src, num_dst, width);
}

/// Small structures for testing every operation; each covers a special case.
inline const std::vector<NamedTopology>& topologies() {
  static const std::vector<NamedTopology> all = {
      {"no nodes", topology_of({}, {}, 0, 0)},
      {"no edges", topology_of({}, {}, 3, 5)},
      {"one node, one loop", topology_of({0}, {0}, 1, 1)},
      {"four nodes", four_nodes()},
      {"parallel edges", topology_of({0, 0, 1, 0, 2}, {1, 1, 1, 1, 0}, 3, 3)},
      {"self loops", topology_of({0, 1, 2, 0, 2, 2}, {0, 1, 2, 2, 2, 0}, 4, 4)},
      {"star into one", in_star(37)},
      {"star out of one", in_star(21).reverse()},
      {"cycle", topology_of({0, 1, 2, 3, 4}, {1, 2, 3, 4, 0}, 5, 5)},
      {"bipartite", random_topology(30, 40, 100, 5)},
      {"power law", random_topology(60, 60, 500, 6, 3.0)},
  };
  return all;
}

/// A power law large enough that its rows are split between threads, with hubs and empty rows.
inline const Topology& large_power_law() {
  static const Topology topology = random_topology(1500, 1200, 12000, 7, 3.0);
  return topology;
}

/// The number of rows of an operand of `target`.
inline std::int64_t num_rows(const Topology& topology, Target target) {
  switch (target) {
    case Target::kSrc:
      return topology.num_src();
    case Target::kDst:
      return topology.num_dst();
    case Target::kEdge:
      return topology.num_edges();
  }
  return 0;
}

/// {rows, trailing...}
inline std::vector<std::int64_t> with_rows(std::int64_t rows,
                                           const std::vector<std::int64_t>& trailing) {
  std::vector<std::int64_t> sizes = {rows};
  sizes.insert(sizes.end(), trailing.begin(), trailing.end());
  return sizes;
}

/// {rows of `target`, trailing...}
inline std::vector<std::int64_t> shape(const Topology& topology, Target target,
                                       const std::vector<std::int64_t>& trailing) {
  return with_rows(num_rows(topology, target), trailing);
}

}  // namespace mezzo::test
