// Compares attention, its scores and the normalised sum with the definitions in float64.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"
#include "support/attention_reference.h"
#include "support/gatv2_reference.h"
#include "support/scaled_sum_reference.h"

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
  const at::Tensor grad = random_gradient(draw, out);
  const Defined expected = gat::define(graph, in, grad);
  require_near(out, expected.out, what);
  if (!out.requires_grad()) return;
  out.backward(grad);
  const std::vector<at::Tensor> operands = gat::operands(in);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string which = fmt::format("gradient {} of the {}", i, what);
    const Reference& gradient = expected.gradients[i];
    require_gradient(operands[i], true, gradient, which, info(dtype).epsilon);
    if (!operands[i].requires_grad()) continue;
    require(gat::gradient_near(operands[i].grad(), gradient, dtype), which);  // half of that bound
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
  require_defined(
      draw, out, accumulator_of(dtype), {in.src, in.dst, in.attn},
      [&](const at::Tensor& grad) { return gatv2::define(graph, in, grad, slope); }, what);
}

void check_scaled_sum(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const at::ScalarType dtype = draw.one_of(dtypes()).scalar;
  std::vector<std::int64_t> trailing;
  for (std::int64_t d = draw.below(4); d > 0; --d) {
    trailing.push_back(draw.one_of<std::int64_t>({1, 2, 3, 5, 8}));
  }
  const auto sizes_of = [&](Target target, const std::vector<std::int64_t>& rest) {
    auto sizes = shape(graph, target, {});
    sizes.insert(sizes.end(), rest.begin(), rest.end());
    return sizes;
  };
  scaled::Inputs in;
  in.x = random_leaf(draw, uniform(sizes_of(Target::kSrc, trailing), dtype, draw.seed()));
  if (draw.coin()) {
    const std::vector<std::int64_t> ones(draw.coin() ? trailing.size() : 0, 1);
    const at::ScalarType own = dtype_beside(draw, dtype);
    in.weight = random_leaf(draw, uniform(sizes_of(Target::kEdge, ones), own, draw.seed()));
  }
  const auto scale = [&](Target target) -> std::optional<at::Tensor> {
    if (draw.coin()) return std::nullopt;
    return in_some_layout(draw, uniform(sizes_of(target, {}), accumulator_of(dtype), draw.seed()));
  };
  in.src_scale = scale(Target::kSrc);
  in.dst_scale = scale(Target::kDst);
  const std::string what =
      fmt::format("scaled sum of {} [{}] on {} -> {} ({} edges){}{}{}", c10::toString(dtype),
                  fmt::join(in.x.sizes(), ","), graph.num_src(), graph.num_dst(), graph.num_edges(),
                  in.weight ? ", weight" : "", in.src_scale ? ", src_scale" : "",
                  in.dst_scale ? ", dst_scale" : "");
  require_defined(
      draw, scaled::run(graph, in), dtype, {in.x, in.weight.value_or(at::Tensor())},
      [&](const at::Tensor& grad) { return scaled::define(graph, in, grad); }, what);
}

}  // namespace mezzo::test
