// Checks that invalid operands and structures throw InvalidArgument.
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"

namespace mezzo::test {
namespace {

void require_refused(const std::function<void()>& run, const std::string& what) {
  try {
    run();
  } catch (const InvalidArgument& error) {
    if (std::string_view(error.what()).empty()) throw Failure(what + ": an error without a text");
    return;
  } catch (const std::exception& error) {
    throw Failure(what + ": another kind of error: " + error.what());
  }
  throw Failure(what + ": no error");
}

/// An operand with one more row, or of rank zero.
at::Tensor of_other_rows(Draw& draw, const at::Tensor& operand) {
  if (draw.one_in(8)) return at::zeros({}, operand.options());
  auto sizes = operand.sizes().vec();
  sizes[0] += sizes[0] > 0 && draw.coin() ? -1 : 1;
  return at::zeros(sizes, operand.options());
}

}  // namespace

void check_refused_operands(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  RandomMessage m = random_message(draw, graph, Values::kWhole);
  const bool of_lhs = uses_lhs(m.op) && (!uses_rhs(m.op) || draw.coin());
  std::optional<at::Tensor>& operand = of_lhs ? m.lhs : m.rhs;
  const bool both = uses_lhs(m.op) && uses_rhs(m.op);
  const std::string before = m.text();
  std::string fault;
  switch (draw.below(both ? 5 : 3)) {
    case 0:
      fault = "other rows";
      operand = of_other_rows(draw, *operand);
      break;
    case 1:
      fault = "no floating-point numbers";
      operand = operand->detach().to(draw.one_of<at::ScalarType>({at::kLong, at::kInt, at::kBool}));
      break;
    case 2:
      fault = "no operand";
      operand = draw.coin() ? std::optional<at::Tensor>() : at::Tensor();
      break;
    case 3: {
      fault = "trailing dimensions that do not fit";
      auto l = m.lhs->sizes().vec(), r = m.rhs->sizes().vec();
      l.push_back(3);
      r.push_back(5);
      m.lhs = at::zeros(l, m.lhs->options());
      m.rhs = at::zeros(r, m.rhs->options());
      break;
    }
    case 4:
      fault = "float64 beside another dtype";
      m.lhs = m.lhs->detach().to(of_lhs ? at::kDouble : at::kHalf);
      m.rhs = m.rhs->detach().to(of_lhs ? at::kHalf : at::kDouble);
      break;
  }
  require_refused(
      [&] {
        if (draw.coin()) {
          gspmm(graph, m.op, draw.one_of<ReduceOp>({ReduceOp::kSum, ReduceOp::kMax}), m.lhs, m.rhs,
                m.lhs_target, m.rhs_target);
        } else {
          gsddmm(graph, m.op, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
        }
      },
      fault + ", " + before);
}

void check_refused_structure(Draw& draw) {
  const std::int64_t nodes = 1 + draw.below(20), edges = 1 + draw.below(50);
  const Topology good = random_topology(nodes, nodes, edges, draw.seed());
  at::Tensor src = good.src().to(at::kLong).clone(), dst = good.dst().to(at::kLong).clone();
  const auto somewhere = draw.below(edges);
  const auto bad_id = draw.one_of<std::int64_t>(
      {-1, nodes, std::numeric_limits<std::int64_t>::max(),
       std::numeric_limits<std::int64_t>::min(), nodes + (std::int64_t{1} << 32)});
  const auto coo = [&] { Topology::from_coo(src, dst, nodes, nodes); };
  const Adjacency& rows = good.csr();
  at::Tensor indptr = rows.indptr.clone(), indices = rows.indices.to(at::kLong).clone();
  at::Tensor order = at::arange(edges, on_device(at::kLong));
  const auto csr = [&] { Topology::from_csr(indptr, indices, nodes, order); };
  switch (draw.below(9)) {
    case 0:
      (draw.coin() ? src : dst)[somewhere] = bad_id;
      return require_refused(coo, fmt::format("the id {} of {} nodes", bad_id, nodes));
    case 1:
      src = src.slice(0, 1);
      return require_refused(coo, "sources and destinations of different numbers");
    case 2:
      dst = dst.to(at::kDouble);
      return require_refused(coo, "ids of float64");
    case 3:
      src = src.unsqueeze(1);
      return require_refused(coo, "ids of two dimensions");
    case 4:
      indptr[draw.below(nodes + 1)] = draw.one_of<std::int64_t>({-1, edges + 1});
      return require_refused(csr, "a row that starts outside the entries");
    case 5:
      indices = indices.slice(0, 1);
      return require_refused(csr, "rows that end after the entries");
    case 6:
      indices[somewhere] = bad_id;
      return require_refused(csr, "a neighbour that is not there");
    case 7:
      order[somewhere] = draw.one_of<std::int64_t>({-1, edges});
      return require_refused(csr, "an edge id outside the edges");
    default:
      if (edges < 2) return;
      order[somewhere] = (somewhere + 1) % edges;
      return require_refused(csr, "an edge id that comes twice");
  }
}

}  // namespace mezzo::test
