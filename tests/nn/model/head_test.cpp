#include "mezzo/nn/model/head.h"

#include <complex>

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::head_test {
namespace {

using nn::Head;
using nn::HeadOptions;
using nn::HeadTargets;

/// Five edges between four nodes, two of them parallel and one a loop.
HeadTargets edges(const at::Tensor& features = {}) {
  const auto ids = [](std::vector<std::int64_t> numbers) {
    return at::tensor(numbers, at::kLong).to(test_device());
  };
  return {.edges = Topology::from_coo(ids({0, 1, 1, 3, 2}), ids({2, 0, 0, 3, 1}), 4, 4),
          .edge_features = features,
          .graph_sizes = {}};
}

/// Graphs of two, no and two nodes.
HeadTargets graphs() {
  return {.edges = {}, .edge_features = {}, .graph_sizes = at::tensor({2, 0, 2}, at::kLong)};
}

Head edge_head(std::int64_t edge_features) {
  Head head(3, 2,
            {.hidden_features = 5,
             .target = TaskTarget::kEdge,
             .edge_features = edge_features,
             .dropout = 0});
  randomise(*head, at::kDouble);
  return head;
}

Head graph_head(ReduceOp readout) {
  Head head(3, 2, {.hidden_features = 5, .readout = readout, .dropout = 0});
  randomise(*head, at::kDouble);
  return head;
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  return dense_linear(x, weight, bias.defined() ? bias : at::zeros({weight.size(0)}, x.options()),
                      Numbers::kGiven);
}

TEST(Head, of_edges_multiplies_both_ends_and_the_features) {
  const at::Tensor x = uniform({4, 3}, at::kDouble, 1), e = uniform({5, 2}, at::kDouble, 2);
  for (const bool has_features : {false, true}) {
    Head head = edge_head(has_features ? 2 : 0);
    const HeadTargets targets = edges(has_features ? e : at::Tensor());
    const auto p = head->named_parameters();
    const at::Tensor src = targets.edges.src().to(at::kLong),
                     dst = targets.edges.dst().to(at::kLong);
    at::Tensor hidden = product(x.index_select(0, src), p["src.weight"]) +
                        product(x.index_select(0, dst), p["dst.weight"], p["dst.bias"]);
    if (has_features) hidden = hidden + product(e, p["edge.weight"]);
    const at::Tensor expected = product(hidden.clamp_min(0), p["out.weight"], p["out.bias"]);
    EXPECT_TRUE(near_terms(head(x, targets), expected, 6 * 9));
  }
}

TEST(Head, of_graphs_reads_one_row_a_graph) {
  const at::Tensor x = uniform({4, 3}, at::kDouble, 3);
  const at::Tensor none = at::zeros({1, 3}, x.options());
  const at::Tensor first = x.slice(0, 0, 2), last = x.slice(0, 2, 4);
  const auto check = [&](ReduceOp readout, const at::Tensor& rows) {
    Head head = graph_head(readout);
    const auto p = head->named_parameters();
    const at::Tensor hidden = product(rows, p["hidden.weight"], p["hidden.bias"]).clamp_min(0);
    EXPECT_TRUE(
        near_terms(head(x, graphs()), product(hidden, p["out.weight"], p["out.bias"]), 6 * 6));
  };
  check(ReduceOp::kSum, at::cat({first.sum(0, true), none, last.sum(0, true)}));
  check(ReduceOp::kMean, at::cat({first.mean(0, true), none, last.mean(0, true)}));
  check(ReduceOp::kMax, at::cat({first.amax(0, true), none, last.amax(0, true)}));
}

TEST(Head, gradients_agree_with_differences) {
  Head of_edges = edge_head(2), of_graphs = graph_head(ReduceOp::kMean);
  const auto edge_outputs = [&](const std::vector<at::Tensor>& inputs) {
    return of_edges(inputs[0], edges(inputs[1]));
  };
  const auto graph_outputs = [&](const std::vector<at::Tensor>& inputs) {
    return of_graphs(inputs[0], graphs());
  };
  EXPECT_TRUE(
      gradcheck(edge_outputs, {uniform({4, 3}, at::kDouble, 4), uniform({5, 2}, at::kDouble, 5)}));
  EXPECT_TRUE(gradcheck(graph_outputs, {uniform({4, 3}, at::kDouble, 6)}));
}

TEST(Head, keeps_sixteen_bit_rows) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const at::Tensor x = uniform({4, 3}, dtype.scalar, 7);
    Head of_edges = edge_head(0), of_graphs = graph_head(ReduceOp::kSum);
    of_edges->to(test_device(), dtype.scalar);
    of_graphs->to(test_device(), dtype.scalar);
    EXPECT_EQ(of_edges(x, edges()).scalar_type(), dtype.scalar);
    EXPECT_EQ(of_graphs(x, graphs()).scalar_type(), dtype.scalar);
  }
}

TEST(Head, some_edges_have_the_outputs_of_all) {
  Head head = edge_head(2);
  const at::Tensor x = uniform({4, 3}, at::kDouble, 8);
  const HeadTargets all = edges(uniform({5, 2}, at::kDouble, 9));
  const at::Tensor some = at::tensor({4, 0, 2}, at::kLong).to(test_device());
  EXPECT_TRUE(near_terms(head(x, all.edges_at(some)), head(x, all).index_select(0, some), 6 * 9));
}

TEST(Head, runs_without_edges) {
  const at::Tensor none = at::zeros({0}, on_device(at::kLong));
  EXPECT_EQ(edge_head(0)(uniform({4, 3}, at::kDouble, 10), edges().edges_at(none)).sizes(),
            at::IntArrayRef({0, 2}));
}

constexpr nn::Decoder kProducts[] = {nn::Decoder::kDot, nn::Decoder::kDistMult,
                                     nn::Decoder::kComplEx};

Head link_head(nn::Decoder decoder, std::int64_t edge_types = 3) {
  Head head(4, 1, {.target = TaskTarget::kLink, .decoder = decoder, .edge_types = edge_types});
  randomise(*head, at::kDouble);
  return head;
}

HeadTargets links(bool with_types = true) {
  HeadTargets targets = edges();
  if (with_types) targets.edge_types = at::tensor({2, 0, 1, 1, 0}, at::kLong).to(test_device());
  return targets;
}

/// The definition of the score of nodes u and v and a row of weights.
double pair_score(nn::Decoder decoder, const at::Tensor& u, const at::Tensor& v,
                  const at::Tensor& w) {
  const auto of = [](const at::Tensor& row, std::int64_t i) { return row[i].item<double>(); };
  double score = 0;
  if (decoder == nn::Decoder::kComplEx) {
    const auto number = [&](const at::Tensor& row, std::int64_t i) {
      return std::complex<double>(of(row, i), of(row, i + 2));
    };
    for (std::int64_t i = 0; i < 2; ++i) {
      score += (number(u, i) * number(w, i) * std::conj(number(v, i))).real();
    }
    return score;
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    score += of(u, i) * of(v, i) * (decoder == nn::Decoder::kDot ? 1 : of(w, i));
  }
  return score;
}

TEST(Head, of_links_scores_pairs_by_the_decoder) {
  const at::Tensor x = uniform({4, 4}, at::kDouble, 13);
  for (const nn::Decoder decoder : kProducts) {
    for (const bool with_types : {false, true}) {
      Head head = link_head(decoder);
      const HeadTargets targets = links(with_types);
      const at::Tensor scores = head(x, targets);
      const at::Tensor of_dst = head->queries(x, targets, Target::kDst);
      const at::Tensor of_src = head->queries(x, targets, Target::kSrc);
      for (std::int64_t e = 0; e < 5; ++e) {
        const auto u = targets.edges.src()[e].item<std::int64_t>();
        const auto v = targets.edges.dst()[e].item<std::int64_t>();
        const at::Tensor weights =
            nn::has_edge_types(decoder)
                ? head->parameters()[0][with_types ? targets.edge_types[e].item<std::int64_t>() : 0]
                : at::Tensor();
        const auto score = [&](std::int64_t from, std::int64_t to) {
          return at::scalar_tensor(pair_score(decoder, x[from], x[to], weights), x.options());
        };
        EXPECT_TRUE(near_terms(scores[e][0], score(u, v), 4 * 6));
        for (std::int64_t node = 0; node < 4; ++node) {
          EXPECT_TRUE(near_terms(of_dst[e].dot(x[node]), score(u, node), 4 * 6));
          EXPECT_TRUE(near_terms(of_src[e].dot(x[node]), score(node, v), 4 * 6));
        }
      }
    }
  }
}

TEST(Head, gradients_of_links_agree_with_differences) {
  for (const nn::Decoder decoder : kProducts) {
    for (const bool with_types : {false, true}) {
      Head head = link_head(decoder);
      const auto scores = [&](const std::vector<at::Tensor>& inputs) {
        return head(inputs[0], links(with_types));
      };
      EXPECT_TRUE(module_gradcheck(*head, scores, {uniform({4, 4}, at::kDouble, 14)}));
    }
  }
}

TEST(Head, of_links_by_an_mlp_is_that_of_edges) {
  Head of_edges = edge_head(0);
  Head of_links(3, 2, {.hidden_features = 5, .target = TaskTarget::kLink, .dropout = 0});
  of_links->to(test_device(), at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : of_edges->named_parameters()) {
    of_links->named_parameters()[parameter.key()].copy_(parameter.value());
  }
  const at::Tensor x = uniform({4, 3}, at::kDouble, 16);
  EXPECT_TRUE(at::equal(of_links(x, links()), of_edges(x, edges())));
}

TEST(Head, scores_links_in_sixteen_bits) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const nn::Decoder decoder : kProducts) {
      Head head = link_head(decoder);
      head->to(test_device(), dtype.scalar);
      EXPECT_EQ(head(uniform({4, 4}, dtype.scalar, 17), links()).scalar_type(), dtype.scalar);
    }
  }
}

TEST(Head, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](const HeadOptions& options, const std::string& name) {
    EXPECT_ERROR(name, Head head(options));
  };
  expect_option_error({.in_features = 0, .out_features = 2}, "in_features");
  expect_option_error({.in_features = 2, .out_features = 0}, "out_features");
  expect_option_error({.in_features = 2, .out_features = 2, .target = TaskTarget::kNode}, "target");
  expect_option_error({.in_features = 2, .out_features = 2, .edge_features = -1}, "edge_features");
  expect_option_error({.in_features = 2, .out_features = 2, .readout = ReduceOp::kProd}, "readout");
  expect_option_error({.in_features = 2,
                       .out_features = 1,
                       .target = TaskTarget::kEdge,
                       .decoder = nn::Decoder::kDot},
                      "targetlink");
  expect_option_error({.in_features = 2,
                       .out_features = 2,
                       .target = TaskTarget::kLink,
                       .decoder = nn::Decoder::kDot},
                      "out_features1");
  expect_option_error({.in_features = 3,
                       .out_features = 1,
                       .target = TaskTarget::kLink,
                       .decoder = nn::Decoder::kComplEx},
                      "even");
  expect_option_error(
      {.in_features = 3, .out_features = 1, .target = TaskTarget::kLink, .edge_types = 0},
      "edge_types");
  HeadTargets other_types = links();
  other_types.edge_types = other_types.edge_types.slice(0, 0, 3);
  const at::Tensor rows = uniform({4, 4}, at::kDouble, 18);
  EXPECT_ERROR("edge_types", link_head(nn::Decoder::kDot)(rows, other_types));
  EXPECT_ERROR("[0,2)", link_head(nn::Decoder::kDistMult, 2)(rows, links()));
  const at::Tensor x = uniform({4, 3}, at::kDouble, 11);
  EXPECT_ERROR("mlp", edge_head(0)->queries(x, edges(), Target::kDst));
  EXPECT_ERROR("edge_features", edge_head(2)(x, edges()));
  EXPECT_ERROR("edge_features", edge_head(0)(x, edges(uniform({5, 2}, at::kDouble, 12))));
  EXPECT_ERROR("4to4nodes", edge_head(0)(x.slice(0, 0, 3), edges()));
  EXPECT_ERROR("graph_sizes", graph_head(ReduceOp::kSum)(x, edges()));
  EXPECT_ERROR("Head", edge_head(0)(at::zeros({4, 2}, x.options()), edges()));
}

}  // namespace
}  // namespace mezzo::test::head_test
