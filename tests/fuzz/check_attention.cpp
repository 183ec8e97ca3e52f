// Compares attention, its scores and the normalised sum with the definitions in float64.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"
#include "support/attention_reference.h"
#include "support/gatv2_reference.h"

namespace mezzo::test {
namespace {

/// Heads and features per head; small for graphs with many edges.
struct Widths {
  std::int64_t heads, features;
};

Widths random_widths(Draw& draw, const Topology& graph) {
  const auto heads = draw.one_of<std::int64_t>({1, 2, 3, 4, 8, 9, 17});
  const auto features = draw.one_of<std::int64_t>({1, 2, 7, 8, 16, 17, 33, 64, 65});
  const std::int64_t rows = graph.num_edges() + graph.num_src() + graph.num_dst() + 1;
  return {heads, std::clamp<std::int64_t>(20000 / (heads * rows), 1, features)};
}

std::string described(const Topology& graph, at::ScalarType dtype, Widths widths) {
  return fmt::format("{}, {} heads of {}, {} -> {} ({} edges)", c10::toString(dtype), widths.heads,
                     widths.features, graph.num_src(), graph.num_dst(), graph.num_edges());
}

at::ScalarType accumulator_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

void check_gat_attention(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const at::ScalarType dtype = draw.one_of(dtypes()).scalar;
  const Widths widths = random_widths(draw, graph);
  const auto numbers_of = [&](const std::vector<std::int64_t>& sizes, at::ScalarType of,
                              double largest) {
    return random_leaf(draw, uniform(sizes, of, draw.seed(), -largest, largest));
  };
  const auto beside = [&] { return dtype_beside(draw, dtype); };
  gat::Inputs in;
  in.z = numbers_of({graph.num_src(), widths.heads, widths.features}, dtype, 1);
  in.src = numbers_of({graph.num_src(), widths.heads}, beside(), 2);
  in.dst = numbers_of({graph.num_dst(), widths.heads}, beside(), 2);
  const std::int64_t weights = draw.below(3);
  if (weights == 1) in.weight = numbers_of({graph.num_edges()}, beside(), 1);
  if (weights == 2) in.weight = numbers_of({graph.num_edges(), widths.heads}, beside(), 1);
  in.slope = draw.one_of<double>({0.2, 0, -0.5, 1.5});
  in.dropout = draw.one_of<double>({0, 0, 0.4});
  const std::string what =
      fmt::format("attention of {}, slope {}, dropout {}, weights {}",
                  described(graph, dtype, widths), in.slope, in.dropout, weights);
  const at::Tensor out = gat::run(graph, in);
  if (out.scalar_type() != dtype) throw Failure(what + ": result of another dtype");
  if (graph.num_edges() == 0) {
    return require(exact(out, at::zeros({graph.num_dst(), widths.heads, widths.features})), what);
  }
  const gat::Inputs wide = gat::float64_leaves(in);
  const at::Tensor value = gat::definition(graph, wide);
  const at::Tensor grad = random_gradient(draw, out);
  const gat::Sizes sums = gat::sizes_of_terms(graph, in, grad);
  const double steps = gat::terms(graph, in);
  require(near(out, value, sum_bound(sums.out, steps, dtype)), what);
  if (!out.requires_grad()) return;
  out.backward(grad);
  const auto expected = torch::autograd::grad({value}, gat::operands(wide), {grad.to(at::kDouble)});
  const std::vector<at::Tensor> operands = gat::operands(in);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string which = fmt::format("gradient {} of the {}", i, what);
    const at::Tensor& got = operands[i].grad();
    if (!operands[i].requires_grad()) {
      if (got.defined()) throw Failure(which + ", which is not due");
      continue;
    }
    if (!got.defined()) throw Failure(which + ": no gradient");
    if (got.scalar_type() != operands[i].scalar_type()) throw Failure(which + ": another dtype");
    // The mean gradient of a row is read from the stored result.
    require(near(got, expected[i],
                 {.abs_sum = sums.gradients[i],
                  .terms = steps,
                  .storage = got.scalar_type(),
                  .operand_epsilon = info(dtype).epsilon}),
            which);
  }
}

void check_gatv2_scores(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const at::ScalarType dtype = draw.one_of(dtypes()).scalar;
  const Widths widths = random_widths(draw, graph);
  const auto rows = [&](const std::vector<std::int64_t>& leading) {
    std::vector<std::int64_t> sizes = leading;
    sizes.insert(sizes.end(), {widths.heads, widths.features});
    return random_leaf(draw, draw.coin() ? integers(sizes, dtype, draw.seed())
                                         : uniform(sizes, dtype, draw.seed()));
  };
  gatv2::Operands in;
  in.src = rows({graph.num_src()});
  in.dst = rows({graph.num_dst()});
  in.attn = draw.coin() ? rows({}) : rows({1});
  const double slope = draw.one_of<double>({0.2, 0.25, 0, -0.5, 1.5});
  const std::string what =
      fmt::format("scores of {}, slope {}", described(graph, dtype, widths), slope);
  const at::Tensor out = gatv2_scores(graph, in.src, in.dst, in.attn, slope);
  if (out.scalar_type() != accumulator_of(dtype)) throw Failure(what + ": another dtype");
  const at::Tensor grad = random_gradient(draw, out);
  const gatv2::Definition expected = gatv2::define(graph, in, grad, slope);
  require_near(out, expected.scores, what);
  if (!out.requires_grad()) return;
  out.backward(grad);
  require_gradient(in.src, true, expected.src, "gradient to src of the " + what);
  require_gradient(in.dst, true, expected.dst, "gradient to dst of the " + what);
  require_gradient(in.attn, true, expected.attn, "gradient to attn of the " + what);
}

namespace {

/// The operands of scaled_sum; an undefined factor is 1.
struct Scaled {
  at::Tensor x, weight, src_scale, dst_scale;
};

template <class Map>
Scaled mapped(const Scaled& in, Map map) {
  const auto one = [&](const at::Tensor& t) { return t.defined() ? map(t) : t; };
  return {one(in.x), one(in.weight), one(in.src_scale), one(in.dst_scale)};
}

/// The definition, in float64.
at::Tensor scaled(const Topology& graph, const Scaled& in) {
  std::vector<std::int64_t> column(static_cast<std::size_t>(in.x.dim()), 1);
  const auto times = [&](const at::Tensor& rows, const at::Tensor& factor) {
    if (!factor.defined()) return rows;
    column[0] = factor.size(0);
    return rows * factor.reshape(column);
  };
  const at::Tensor sent = times(in.x, in.src_scale).index_select(0, row_ids(graph, Target::kSrc));
  auto sizes = in.x.sizes().vec();
  sizes[0] = graph.num_dst();
  const at::Tensor sum = at::zeros(sizes, on_device(at::kDouble))
                             .index_add(0, row_ids(graph, Target::kDst), times(sent, in.weight));
  return times(sum, in.dst_scale);
}

/// The definition's value and the gradients of x and, if defined, of the weight.
std::vector<at::Tensor> scaled_and_gradients(const Topology& graph, const Scaled& in,
                                             const at::Tensor& grad) {
  const Scaled leaves = mapped(in, [](const at::Tensor& t) { return leaf(t); });
  std::vector<at::Tensor> of = {leaves.x};
  if (leaves.weight.defined()) of.push_back(leaves.weight);
  const at::Tensor value = scaled(graph, leaves);
  std::vector<at::Tensor> all = torch::autograd::grad({value}, of, {grad});
  all.insert(all.begin(), value.detach());
  return all;
}

}  // namespace

void check_scaled_sum(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const at::ScalarType dtype = draw.one_of(dtypes()).scalar;
  std::vector<std::int64_t> trailing;
  std::int64_t width = 1;
  for (std::int64_t d = draw.below(4); d > 0; --d) {
    trailing.push_back(draw.one_of<std::int64_t>({1, 2, 3, 5, 8}));
    width *= trailing.back();
  }
  const auto sizes_of = [&](Target target, const std::vector<std::int64_t>& rest) {
    auto sizes = shape(graph, target, {});
    sizes.insert(sizes.end(), rest.begin(), rest.end());
    return sizes;
  };
  Scaled in;
  in.x = random_leaf(draw, uniform(sizes_of(Target::kSrc, trailing), dtype, draw.seed()));
  if (draw.coin()) {
    const std::vector<std::int64_t> ones(draw.coin() ? trailing.size() : 0, 1);
    const at::ScalarType own = dtype_beside(draw, dtype);
    in.weight = random_leaf(draw, uniform(sizes_of(Target::kEdge, ones), own, draw.seed()));
  }
  const auto scale = [&](Target target) {
    if (draw.coin()) return at::Tensor();
    return in_some_layout(draw, uniform(sizes_of(target, {}), accumulator_of(dtype), draw.seed()));
  };
  in.src_scale = scale(Target::kSrc);
  in.dst_scale = scale(Target::kDst);
  const std::string what = fmt::format(
      "scaled sum of {} [{}] on {} -> {} ({} edges){}{}{}", c10::toString(dtype),
      fmt::join(in.x.sizes(), ","), graph.num_src(), graph.num_dst(), graph.num_edges(),
      in.weight.defined() ? ", weight" : "", in.src_scale.defined() ? ", src_scale" : "",
      in.dst_scale.defined() ? ", dst_scale" : "");
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  const at::Tensor out =
      scaled_sum(graph, in.x, optional(in.weight), optional(in.src_scale), optional(in.dst_scale));
  if (out.scalar_type() != dtype) throw Failure(what + ": result of another dtype");
  const at::Tensor grad = random_gradient(draw, out);
  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble); };
  const auto size = [](const at::Tensor& t) { return t.detach().to(at::kDouble).abs(); };
  const auto values = scaled_and_gradients(graph, mapped(in, wide), wide(grad));
  const auto sizes = scaled_and_gradients(graph, mapped(in, size), size(grad));
  // The edges of a node times the elements of a row (in the weight's gradient), plus the factors.
  const double terms = internal::max_degree(graph) * static_cast<double>(width) + 6;
  const auto expected = [&](std::size_t i) { return Reference{values[i], sizes[i], terms}; };
  require_near(out, expected(0), what);
  if (!out.requires_grad()) return;
  out.backward(grad);
  require_gradient(in.x, true, expected(1), "gradient to x of the " + what);
  if (in.weight.defined()) {
    require_gradient(in.weight, true, expected(2), "gradient to the weight of the " + what);
  }
}

}  // namespace mezzo::test
