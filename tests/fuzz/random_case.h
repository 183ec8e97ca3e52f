#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

#include "support/draw.h"
#include "support/tensors.h"

/// Random graphs, operands and messages for the fuzzer. Small: a case takes some milliseconds.
namespace mezzo::test {

/// Random endpoints with a random skew per side: hubs from 4 on, parallel edges if there are few
/// nodes.
inline Topology random_graph_of(Draw& draw, std::int64_t num_src, std::int64_t num_dst,
                                std::int64_t num_edges) {
  const auto width = draw.one_of<IdWidth>({IdWidth::kAutomatic, IdWidth::kInt64});
  const double skew = draw.one_of<double>({1, 1, 2, 4, 30});
  const Topology g = random_topology(num_src, num_dst, num_edges, draw.seed(), skew, width);
  switch (draw.below(4)) {
    case 0: {
      const Adjacency& rows = g.csr();
      return Topology::from_csr(rows.indptr, rows.indices, num_dst, rows.edge_ids, width);
    }
    case 1: {
      const Adjacency& rows = g.csc();
      return Topology::from_csc(rows.indptr, rows.indices, num_src, rows.edge_ids, width);
    }
    case 2:
      return g.reverse().reverse();
    default:
      return g;
  }
}

/// Of any size class; `square`: as many sources as destinations.
inline Topology random_graph(Draw& draw, bool square) {
  const auto nodes = [&] { return draw.one_of<std::int64_t>({1, 1, 2, 5, 20, 60, 150}); };
  const std::int64_t kind = draw.below(12);
  if (kind == 0) return topology_of({}, {}, 0, 0);
  const std::int64_t num_src = nodes(), num_dst = square ? num_src : nodes();
  if (kind == 1) return topology_of({}, {}, num_src, num_dst);
  const auto most = draw.one_of<std::int64_t>({3, 30, 300, 300, 2000});
  return random_graph_of(draw, num_src, num_dst, 1 + draw.below(most));
}

/// Broadcastable trailing dimensions of both operands; for dot the last one is equal.
struct RandomShapes {
  std::vector<std::int64_t> lhs, rhs;
};

inline RandomShapes random_shapes(Draw& draw, BinaryOp op, std::int64_t most_elements) {
  RandomShapes made;
  const bool dot = op == BinaryOp::kDot;
  const std::int64_t rank = dot ? 1 + draw.below(4) : draw.below(5);
  std::int64_t elements = 1;
  for (std::int64_t d = rank; d-- > 0;) {
    auto size = draw.one_of<std::int64_t>({1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65});
    if (draw.one_in(60)) size = 0;
    if (elements * size > most_elements) size = 1;
    elements *= std::max<std::int64_t>(size, 1);
    const bool last = d + 1 == rank;
    const std::int64_t repeats = dot && last ? 0 : draw.below(4);
    made.lhs.insert(made.lhs.begin(), repeats == 1 ? 1 : size);
    made.rhs.insert(made.rhs.begin(), repeats == 2 ? 1 : size);
  }
  // One operand may omit leading dimensions, which then broadcast.
  std::vector<std::int64_t>& shorter = draw.coin() ? made.lhs : made.rhs;
  const auto keep = static_cast<std::int64_t>(shorter.size()) - (dot ? 1 : 0);
  if (keep > 0 && draw.one_in(3))
    shorter.erase(shorter.begin(), shorter.begin() + draw.below(keep));
  return made;
}

/// The same numbers in another layout, or, for the last kind, one row expanded to all.
inline at::Tensor in_some_layout(Draw& draw, const at::Tensor& dense) {
  const std::int64_t rows = dense.size(0), last = dense.dim() - 1;
  auto sizes = dense.sizes().vec();
  switch (draw.below(8)) {
    case 0: {  // rows not aligned to vectors
      const at::Tensor flat = at::empty({dense.numel() + 1}, dense.options());
      return flat.slice(0, 1).view(sizes).copy_(dense);
    }
    case 1:  // the first dimension is contiguous
      return dense.transpose(0, last).contiguous().transpose(0, last);
    case 2:
      sizes[0] *= 2;
      return at::empty(sizes, dense.options()).slice(0, 0, 2 * rows, 2).copy_(dense);
    case 3:
      sizes.back() += 3;
      return at::empty(sizes, dense.options()).narrow(last, 2, dense.size(last)).copy_(dense);
    case 4:
      return rows == 0 ? dense : dense.narrow(0, 0, 1).expand(sizes);
    default:
      return dense;
  }
}

/// The values of an operand.
enum class Values : std::uint8_t {
  kAny,    ///< of either sign, between 1/2 and 2, with some zeros unless they divide
  kWhole,  ///< whole numbers and powers of two: every message is exact
};

inline at::Tensor random_operand(Draw& draw, const std::vector<std::int64_t>& sizes,
                                 at::ScalarType dtype, Values values, bool divides) {
  const std::uint64_t seed = draw.seed();
  if (values == Values::kWhole) {
    return in_some_layout(draw,
                          divides ? divisors(sizes, dtype, seed) : integers(sizes, dtype, seed));
  }
  const bool zeros = !divides && draw.coin();
  return in_some_layout(draw, filled(sizes, dtype, [=](std::uint64_t i) {
                          const double size = 0.5 + 1.5 * random_uniform(seed, 3, i);
                          if (zeros && random_below(9, seed, 4, i) == 0) return 0.0;
                          return random_below(2, seed, 5, i) == 0 ? size : -size;
                        }));
}

/// A message on a graph: the arguments of gspmm and gsddmm except the reducer.
struct RandomMessage {
  Topology graph;
  BinaryOp op;
  Target lhs_target, rhs_target;
  std::optional<at::Tensor> lhs, rhs;  ///< leaves; those that the op does not use may be absent
  at::ScalarType dtype;                ///< of the result

  std::string text() const {
    const auto operand = [](const std::optional<at::Tensor>& t) {
      if (!t) return std::string("absent");
      return fmt::format("{} [{}] strides [{}]{}", c10::toString(t->scalar_type()),
                         fmt::join(t->sizes(), ","), fmt::join(t->strides(), ","),
                         t->requires_grad() ? " with gradient" : "");
    };
    return fmt::format(
        "{}_{}_{} on {} -> {} ({} edges, {} ids), lhs {}, rhs {}", name_of(Targets{}, lhs_target),
        name_of(BinaryOps{}, op), name_of(Targets{}, rhs_target), graph.num_src(), graph.num_dst(),
        graph.num_edges(), c10::toString(graph.id_dtype()), operand(lhs), operand(rhs));
  }
};

inline RandomMessage random_message(Draw& draw, const Topology& graph, Values values) {
  std::vector<BinaryOp> ops;
  mezzo::detail::for_each(BinaryOps{}, [&]<class Op>() { ops.push_back(Op::kind); });
  const std::vector<Target> targets = {Target::kSrc, Target::kDst, Target::kEdge};
  RandomMessage m{.graph = graph,
                  .op = draw.one_of(ops),
                  .lhs_target = draw.one_of(targets),
                  .rhs_target = draw.one_of(targets),
                  .lhs = {},
                  .rhs = {},
                  .dtype = draw.one_of(dtypes()).scalar};
  const bool uses_lhs = m.op != BinaryOp::kCopyRhs, uses_rhs = m.op != BinaryOp::kCopyLhs;
  const auto narrow = m.dtype == at::kHalf || m.dtype == at::kBFloat16;
  const bool one_edge = (m.lhs_target == Target::kEdge) != (m.rhs_target == Target::kEdge);
  const bool mixed = narrow && one_edge && uses_lhs && uses_rhs && draw.one_in(3);
  const std::int64_t budget = draw.one_in(8) ? 80000 : 8000;
  const std::int64_t rows = graph.num_edges() + graph.num_src() + graph.num_dst() + 1;
  const RandomShapes shapes = random_shapes(draw, m.op, budget / rows);
  const auto make = [&](Target target, const std::vector<std::int64_t>& trailing, bool is_rhs) {
    auto sizes = shape(graph, target, {});
    sizes.insert(sizes.end(), trailing.begin(), trailing.end());
    const auto own = mixed && target == Target::kEdge ? at::kFloat : m.dtype;
    const at::Tensor values_of = random_operand(draw, sizes, own, values, is_rhs);
    return values_of.detach().set_requires_grad(draw.below(4) != 0);
  };
  if (uses_lhs || draw.coin()) m.lhs = make(m.lhs_target, shapes.lhs, false);
  if (uses_rhs || draw.coin()) m.rhs = make(m.rhs_target, shapes.rhs, true);
  return m;
}

}  // namespace mezzo::test
