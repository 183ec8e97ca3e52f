// Random graphs, operands and messages against the definitions, and invalid ones that must be
// refused.
//
//   message_passing_fuzz [--seconds N] [--seed S]   as many cases as fit in N seconds, from seed S
//   message_passing_fuzz --case C                   one case again, as a failure names it
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/functions.h"
#include "mezzo/message_passing/ops.h"

#include "fuzz/random_case.h"
#include "support/combined.h"
#include "support/draw.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// What a case that went wrong throws.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void require(const testing::AssertionResult& result, const std::string& what) {
  if (!result) throw Failure(what + ": " + result.message());
}

void require_near(const at::Tensor& got, const Reference& expected, const std::string& what) {
  require(near(got, expected.value, sum_bound(expected.abs_sum, expected.terms, got.scalar_type())),
          what);
}

/// A gradient that was asked for is right; one that was not, or that has nothing to come from, is
/// absent (or zero, where libtorch fills it in).
void require_gradient(const std::optional<at::Tensor>& operand, bool used,
                      const Reference& expected, const std::string& what) {
  if (!operand) return;
  const at::Tensor& grad = operand->grad();
  if (operand->requires_grad() && used) {
    if (!grad.defined()) throw Failure(what + ": no gradient");
    if (grad.scalar_type() != operand->scalar_type()) throw Failure(what + ": another dtype");
    require_near(grad, expected, what);
  } else if (grad.defined()) {
    require(exact(grad, at::zeros_like(grad)), what + ", which is not due");
  }
}

bool uses_lhs(BinaryOp op) {
  return op != BinaryOp::kCopyRhs;
}
bool uses_rhs(BinaryOp op) {
  return op != BinaryOp::kCopyLhs;
}

/// An operand of the definition: absent unless the op uses it.
Operand64 given(const std::optional<at::Tensor>& operand, bool used) {
  return used ? Operand64(operand->detach().to(at::kDouble)) : std::nullopt;
}

/// The output's gradient if there is anything to differentiate.
std::optional<at::Tensor> backward(Draw& draw, const at::Tensor& out, Values values) {
  if (!out.requires_grad()) return std::nullopt;
  const at::Tensor grad = in_some_layout(
      draw, values == Values::kWhole ? integers(out.sizes(), out.scalar_type(), draw.seed())
                                     : uniform(out.sizes(), out.scalar_type(), draw.seed()));
  out.backward(grad);
  return grad;
}

// Reductions.

/// Rows of one edge each with ones in front of the trailing dimensions, so that libtorch's
/// broadcasting aligns them as the library does.
at::Tensor aligned(const at::Tensor& rows, std::int64_t rank) {
  auto sizes = rows.sizes().vec();
  sizes.insert(sizes.begin() + 1, static_cast<std::size_t>(rank - rows.dim()), 1);
  return rows.reshape(sizes);
}

/// The user-defined form of a message; both operands have the result's dtype.
MessageFunction custom_message(const RandomMessage& m) {
  return [&m](const EdgeBatch& edges) -> Columns {
    const auto rows = [&](Target target, const std::string& column) {
      return target == Target::kSrc   ? edges.src(column)
             : target == Target::kDst ? edges.dst(column)
                                      : edges.data(column);
    };
    const at::Tensor a = uses_lhs(m.op) ? rows(m.lhs_target, "lhs") : at::Tensor();
    const at::Tensor b = uses_rhs(m.op) ? rows(m.rhs_target, "rhs") : at::Tensor();
    const std::int64_t rank = std::max(a.defined() ? a.dim() : 1, b.defined() ? b.dim() : 1);
    return {{"m", combined(m.op, a.defined() ? aligned(a, rank) : a,
                           b.defined() ? aligned(b, rank) : b)}};
  };
}

ReduceFunction custom_reduce(ReduceOp op) {
  return [op](const NodeBatch& nodes) -> Columns {
    const at::Tensor& m = nodes.mailbox("m");
    switch (op) {
      case ReduceOp::kSum:
        return {{"out", m.sum(1)}};
      case ReduceOp::kMean:
        return {{"out", m.mean(1)}};
      case ReduceOp::kMax:
        return {{"out", m.amax(1)}};
      case ReduceOp::kMin:
        return {{"out", m.amin(1)}};
      case ReduceOp::kProd:
        return {{"out", m.prod(1)}};
    }
    return {};
  };
}

/// Graph::update_all with built-in functions has the bits of gspmm, with user-defined ones the same
/// numbers up to the rounding of what they store in between.
void check_update_all(Draw& draw, const RandomMessage& m, ReduceOp reduce, const at::Tensor& out,
                      const Reference& expected) {
  Graph graph(m.graph);
  const auto put = [&](Target target, const char* name, const std::optional<at::Tensor>& column) {
    Frame& frame = target == Target::kEdge ? graph.edata() : graph.ndata();
    if (column) frame[name] = column->detach();
  };
  put(m.lhs_target, "lhs", m.lhs);
  put(m.rhs_target, "rhs", m.rhs);
  graph.update_all(BuiltinMessage{.op = m.op,
                                  .lhs_target = m.lhs_target,
                                  .rhs_target = m.rhs_target,
                                  .lhs = uses_lhs(m.op) ? "lhs" : "",
                                  .rhs = uses_rhs(m.op) ? "rhs" : "",
                                  .out = "m"},
                   BuiltinReduce{reduce, "m", "out"});
  require(same_bits(graph.ndata()["out"], out.detach()), "update_all of built-in functions");
  const bool mixed =
      uses_lhs(m.op) && uses_rhs(m.op) && m.lhs->scalar_type() != m.rhs->scalar_type();
  if (m.graph.num_edges() == 0 || mixed) return;  // no columns to return, or libtorch promotes
  // libtorch's reductions of 16-bit numbers overflow and round on the way.
  const bool wide = m.dtype == at::kFloat || m.dtype == at::kDouble;
  if (wide && draw.coin()) {
    graph.update_all(custom_message(m), custom_reduce(reduce));
  } else {
    graph.update_all(custom_message(m), BuiltinReduce{reduce, "m", "out"});
  }
  SumBound bound = sum_bound(expected.abs_sum, 2 * expected.terms, m.dtype);
  // One stored rounding a message and one of the result; a product multiplies those of its factors.
  const double roundings = reduce == ReduceOp::kProd ? detail::max_degree(m.graph) : 1;
  bound.operand_epsilon = (roundings + 2) * info(m.dtype).epsilon;
  require(near(graph.ndata()["out"], expected.value, bound), "update_all of custom functions");
}

/// Products of many messages leave the range in which the definition and float32 agree.
constexpr double kMostFactors = 8;

void check_reduction(Draw& draw) {
  const Topology graph = random_graph(draw, draw.below(3) != 0);
  std::vector<ReduceOp> reducers;
  for_each(ReduceOps{}, [&]<class Reduce>() { reducers.push_back(Reduce::kind); });
  ReduceOp reduce = draw.one_of(reducers);
  if (reduce == ReduceOp::kProd && detail::max_degree(graph) > kMostFactors) {
    reduce = ReduceOp::kSum;
  }
  const bool selects = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  // The edge that max and min choose is only defined where messages are not rounded.
  const Values values = selects || draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const std::string what = std::string(name_of(ReduceOps{}, reduce)) + " of " + m.text();
  const at::Tensor out = gspmm(graph, m.op, reduce, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  const Operand64 a = given(m.lhs, uses_lhs(m.op)), b = given(m.rhs, uses_rhs(m.op));
  const Reference expected = gspmm_reference(graph, m.op, reduce, a, b, m.lhs_target, m.rhs_target);
  require_near(out, expected, what);
  {
    const ThreadCount threads(1 + static_cast<int>(draw.below(3)));
    const at::Tensor again = gspmm(graph, m.op, reduce, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
    require(same_bits(again.detach(), out.detach()), what + ", on other threads");
  }
  if (const auto grad = backward(draw, out, values)) {
    const auto gradients =
        gspmm_gradients(graph, m.op, reduce, a, b, *grad, m.lhs_target, m.rhs_target);
    require_gradient(m.lhs, uses_lhs(m.op), gradients.lhs, "gradient to the lhs, " + what);
    require_gradient(m.rhs, uses_rhs(m.op), gradients.rhs, "gradient to the rhs, " + what);
  }
  if (graph.num_src() == graph.num_dst()) check_update_all(draw, m, reduce, out, expected);
}

// Edge messages and the softmax.

void check_edge_message(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const Values values = draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const std::string what = "edge message " + m.text();
  const at::Tensor out = gsddmm(graph, m.op, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  const Operand64 a = given(m.lhs, uses_lhs(m.op)), b = given(m.rhs, uses_rhs(m.op));
  require_near(out, message(graph, m.op, a, b, m.lhs_target, m.rhs_target), what);
  if (const auto grad = backward(draw, out, values)) {
    const auto gradients = gsddmm_gradients(graph, m.op, a, b, *grad, m.lhs_target, m.rhs_target);
    require_gradient(m.lhs, uses_lhs(m.op), gradients.lhs, "gradient to the lhs, " + what);
    require_gradient(m.rhs, uses_rhs(m.op), gradients.rhs, "gradient to the rhs, " + what);
  }
}

void check_softmax(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const auto by = draw.coin() ? NormalizeBy::kDst : NormalizeBy::kSrc;
  const Target side = by == NormalizeBy::kDst ? Target::kDst : Target::kSrc;
  const DTypeInfo& dtype = draw.one_of(dtypes());
  auto sizes = shape(graph, Target::kEdge, {});
  if (draw.coin()) sizes.push_back(draw.below(5));
  if (draw.coin()) sizes.push_back(1 + draw.below(40));
  const double range = draw.one_of<double>({0, 1, 20, 200});
  const at::Tensor random = uniform(sizes, dtype.scalar, draw.seed(), -range / 2, range / 2);
  const at::Tensor logits = leaf(in_some_layout(draw, random + draw.one_of<double>({0, 1000, -7})));
  const std::string what = fmt::format("softmax of {} [{}] on {} edges, range {}", dtype.name,
                                       fmt::join(sizes, ","), graph.num_edges(), range);
  const at::Tensor out = edge_softmax(graph, logits, by);
  const Reference expected = softmax_reference(graph, logits, side);
  const double degree = detail::max_degree(graph);
  require(near(out, expected.value, softmax_bound(expected.value, degree, range, dtype.scalar)),
          what);
  const at::Tensor grad = *backward(draw, out, Values::kAny);
  const at::Tensor node = row_ids(graph, side);
  auto node_sizes = sizes;
  node_sizes[0] = num_rows(graph, side);
  const auto mean = [&](const at::Tensor& d) {
    const at::Tensor sums = at::zeros(node_sizes, on_device(at::kDouble));
    return sums.index_add(0, node, expected.value * d).index_select(0, node);
  };
  const at::Tensor d = grad.to(at::kDouble);
  // The backward reads stored probabilities, whose subnormal ones are off by `smallest`.
  const at::Tensor size = expected.value * (d.abs() + mean(d.abs())) +
                          (expected.value * degree + 1) * (dtype.smallest / dtype.epsilon);
  require(near(logits.grad(), expected.value * (d - mean(d)),
               softmax_gradient_bound(size, degree, range, dtype.scalar)),
          "gradient of the " + what);
}

// What must be refused.

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

/// One row more, or of rank zero.
at::Tensor of_other_rows(Draw& draw, const at::Tensor& operand) {
  if (draw.one_in(8)) return at::zeros({}, operand.options());
  auto sizes = operand.sizes().vec();
  sizes[0] += sizes[0] > 0 && draw.coin() ? -1 : 1;
  return at::zeros(sizes, operand.options());
}

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
      return require_refused(csr, "a row that starts outside the slots");
    case 5:
      indices = indices.slice(0, 1);
      return require_refused(csr, "rows that end after the slots");
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

// Cases.

void run_case(std::uint64_t seed) {
  Draw draw(seed);
  const std::int64_t kind = draw.below(20);
  if (kind < 10) return check_reduction(draw);
  if (kind < 14) return check_edge_message(draw);
  if (kind < 16) return check_softmax(draw);
  return kind < 19 ? check_refused_operands(draw) : check_refused_structure(draw);
}

/// Whether the case passes; says what went wrong and how to see it again.
bool passes(std::uint64_t seed) {
  try {
    run_case(seed);
    return true;
  } catch (const std::exception& error) {
    fmt::print(stderr, "failed: {}\nto repeat: message_passing_fuzz --case {}\n", error.what(),
               seed);
    return false;
  }
}

struct Options {
  std::int64_t seconds = 10;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> only = {};
};

Options parsed(const std::vector<std::string_view>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string_view value = i + 1 < words.size() ? words[i + 1] : "";
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    MEZZO_CHECK(error == std::errc() && end == value.data() + value.size(),
                "expected --seconds N, --seed S or --case C, got '{} {}'", words[i], value);
    if (words[i] == "--seconds") {
      options.seconds = static_cast<std::int64_t>(number);
    } else if (words[i] == "--seed") {
      options.seed = number;
    } else {
      MEZZO_CHECK(words[i] == "--case", "expected --seconds, --seed or --case, got '{}'", words[i]);
      options.only = number;
    }
  }
  return options;
}

int run(const Options& options) {
  if (options.only) return passes(*options.only) ? 0 : 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  std::uint64_t cases = 0;
  for (; std::chrono::steady_clock::now() < end; ++cases) {
    if (!passes(random_bits(options.seed, 33, cases))) return 1;
  }
  fmt::print("{} cases passed from seed {}\n", cases, options.seed);
  return 0;
}

}  // namespace
}  // namespace mezzo::test

int main(int argc, char** argv) {
  try {
    return mezzo::test::run(mezzo::test::parsed({argv + 1, argv + argc}));
  } catch (const mezzo::InvalidArgument& error) {
    fmt::print(stderr, "message_passing_fuzz: {}\n", error.what());
    return 2;
  }
}
