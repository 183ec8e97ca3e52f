#include "mezzo/nn/conv/graph_conv.h"

#include <algorithm>

#include "mezzo/graph/graph.h"

#include "support/graphs.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::graph_conv_test {
namespace {

using nn::DegreeNorm;
using nn::GraphConv;
using nn::GraphConvOptions;

constexpr DegreeNorm kNorms[] = {DegreeNorm::kBoth, DegreeNorm::kRight, DegreeNorm::kLeft,
                                 DegreeNorm::kNone};

GraphConv make(std::int64_t in, std::int64_t out, GraphConvOptions options = {},
               at::ScalarType stored = at::kDouble) {
  GraphConv layer(in, out, std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

double terms(const Topology& g, std::int64_t in_features) {
  return max_in_degree(g) * static_cast<double>(in_features) + 4;
}

TEST(GraphConv, equals_the_dense_definition_for_every_norm_in_either_order) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    for (const DegreeNorm norm : kNorms) {
      for (const auto& [in, out] : {std::pair(3, 7), std::pair(7, 3), std::pair(4, 4)}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(norm) << ": " << in << " -> " << out);
        GraphConv layer = make(in, out, {.norm = norm});
        const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 5);
        EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, in)));
      }
    }
  }
}

/// A result within the rounding of its dtype. Two intermediates are stored: after the first of the
/// two steps and before the bias.
testing::AssertionResult agrees(const at::Tensor& got, const GraphConv& layer, const Topology& g,
                                const at::Tensor& h, const at::Tensor& weight = {}) {
  const DTypeInfo& dtype = info(h.scalar_type());
  return near(got, define(layer, g, h, weight),
              sum_bound(define(layer, g, h, weight, Numbers::kAbsolute),
                        terms(g, layer->options.in_features) + 8, dtype.scalar, 2 * dtype.epsilon));
}

TEST(GraphConv, edge_weights_multiply_the_messages_and_leave_the_degrees_alone_in_every_dtype) {
  const Topology g = connected(10, 10, 30, 3);
  for (const DTypeInfo& dtype : dtypes()) {
    const at::Tensor weight = uniform({g.num_edges()}, dtype.scalar, 4);
    for (const DegreeNorm norm : kNorms) {
      for (const auto& [in, out] : {std::pair(2, 5), std::pair(5, 2)}) {
        SCOPED_TRACE(testing::Message() << dtype.name << ", " << static_cast<int>(norm));
        GraphConv layer = make(in, out, {.norm = norm}, dtype.scalar);
        const at::Tensor h = uniform({10, in}, dtype.scalar, 5);
        const at::Tensor got = layer(g, h, weight);
        EXPECT_EQ(got.scalar_type(), dtype.scalar);
        EXPECT_TRUE(agrees(got, layer, g, h, weight));
        EXPECT_FALSE(agrees(define(layer, g, h), layer, g, h, weight));
        EXPECT_TRUE(same_bits(layer(g, h, weight.unsqueeze(1)), got));
      }
    }
  }
}

TEST(GraphConv, keeps_the_factors_of_the_degrees_with_the_graph) {
  for (const DegreeNorm norm : {DegreeNorm::kBoth, DegreeNorm::kLeft, DegreeNorm::kRight}) {
    const Topology g = connected(10, 8, 30, 3);
    GraphConv layer = make(2, 5, {.norm = norm}, at::kFloat);
    layer(g, uniform({10, 2}, at::kFloat, 5));
    const std::int64_t bytes = g.memory_bytes();
    const DegreePower power =
        norm == DegreeNorm::kBoth ? DegreePower::kInverseRoot : DegreePower::kInverse;
    if (norm != DegreeNorm::kRight) g.out_degree_factors(power, at::kFloat);
    if (norm != DegreeNorm::kLeft) g.in_degree_factors(power, at::kFloat);
    EXPECT_EQ(g.memory_bytes(), bytes);
  }
}

TEST(GraphConv, stays_within_its_rounding_in_every_dtype) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const auto& [in, out] : {std::pair(3, 6), std::pair(6, 3)}) {
      SCOPED_TRACE(dtype.name);
      GraphConv layer = make(in, out, {}, dtype.scalar);
      const at::Tensor h = uniform({20, in}, dtype.scalar, 7);
      const at::Tensor got = layer(g, h);
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      EXPECT_TRUE(agrees(got, layer, g, h));
    }
  }
}

TEST(GraphConv, gradients_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 8);
  for (const DegreeNorm norm : kNorms) {
    for (const auto& [in, out] : {std::pair(2, 3), std::pair(3, 2)}) {
      GraphConv layer = make(in, out, {.norm = norm});
      EXPECT_TRUE(module_gradcheck(
          *layer, [&](const auto& inputs) { return layer(g, inputs[0], inputs[1]); },
          {uniform({6, in}, at::kDouble, 9), uniform({g.num_edges()}, at::kDouble, 12)}));
    }
  }
}

TEST(GraphConv, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology g = connected(10, 10, 30, 13);
  for (const auto& [in, out] : {std::pair(4, 6), std::pair(6, 4)}) {
    expect_sparse_like_dense(make(in, out), g, in, 10 * terms(g, in));
  }
}

/// The graph of the edges `edges` of g, with the degrees in g.
Topology sample_of(const Topology& g, const std::vector<std::int64_t>& edges) {
  const at::Tensor edge_ids = ids(edges);
  return Topology::from_coo(g.src().index_select(0, edge_ids), g.dst().index_select(0, edge_ids),
                            g.num_src(), g.num_dst())
      .with_parent_degrees(g.in_degrees(), g.out_degrees());
}

/// DGL's formula by the degrees of the sample, in double.
TEST(GraphConv, on_a_sample_divides_by_the_degrees_of_the_sample_as_dgl_does) {
  const Topology g = connected(9, 5, 20, 22);
  std::vector<std::int64_t> edges;
  for (std::int64_t e = 0; e < g.num_edges(); e += 2) edges.push_back(e);
  const Topology sample = sample_of(g, edges);
  const at::Tensor h = uniform({9, 3}, at::kDouble, 23);
  const at::Tensor weight = uniform({sample.num_edges()}, at::kDouble, 24);
  for (const DegreeNorm norm : kNorms) {
    GraphConv layer(3, 4, {.norm = norm, .allow_zero_in_degree = true});
    randomise(*layer, at::kDouble);
    EXPECT_TRUE(near_terms(layer(sample, h), define(layer, sample, h), terms(g, 3)));
    EXPECT_TRUE(
        near_terms(layer(sample, h, weight), define(layer, sample, h, weight), terms(g, 3)));
    // A mean over the edges drawn is the same by either degrees.
    if (norm == DegreeNorm::kNone || norm == DegreeNorm::kRight) continue;
    layer->options.parent_degrees = true;
    EXPECT_FALSE(near_terms(layer(sample, h), define(layer, sample, h), terms(g, 3)));
  }
}

GraphConv make_estimator(std::int64_t out_features, DegreeNorm norm) {
  return make(3, out_features,
              {.norm = norm, .allow_zero_in_degree = true, .parent_degrees = true});
}

TEST(GraphConv, a_sample_of_every_edge_gives_the_result_of_the_whole_graph) {
  const Topology g = connected(9, 5, 20, 22);
  std::vector<std::int64_t> all = values(at::arange(g.num_edges(), on_device()));
  const Topology sample = sample_of(g, all);
  const at::Tensor h = uniform({9, 3}, at::kDouble, 23);
  const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 24);
  for (const DegreeNorm norm : kNorms) {
    GraphConv layer = make_estimator(4, norm);
    EXPECT_TRUE(near_terms(layer(sample, h), layer(g, h), terms(g, 3)));
    EXPECT_TRUE(near_terms(layer(sample, h, weight), layer(g, h, weight), terms(g, 3)));
  }
}

/// Edges from each of `num_sources` sources into destination 0, and some that change the degrees of
/// the sources.
Topology star_with_degrees(std::int64_t num_sources) {
  std::vector<std::int64_t> src, dst;
  for (std::int64_t u = 0; u < num_sources; ++u) {
    src.push_back(u);
    dst.push_back(0);
  }
  for (std::int64_t u = 0; u < num_sources; ++u) {
    for (std::int64_t i = 0; i <= u; ++i) {
      src.push_back(u);
      dst.push_back(1);
    }
  }
  return topology_of(src, dst, num_sources, 2);
}

TEST(GraphConv, the_mean_over_all_samples_of_a_size_is_the_result_of_the_whole_graph) {
  constexpr std::int64_t kSources = 5;
  const Topology g = star_with_degrees(kSources);
  const at::Tensor h = uniform({kSources, 3}, at::kDouble, 25);
  for (const DegreeNorm norm : {DegreeNorm::kBoth, DegreeNorm::kRight, DegreeNorm::kLeft}) {
    GraphConv layer = make_estimator(4, norm);
    const at::Tensor expected = layer(g, h)[0];
    for (std::int64_t size = 1; size <= kSources; ++size) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(norm) << ": " << size << " drawn");
      at::Tensor sum = at::zeros_like(expected);
      std::int64_t samples = 0;
      for (unsigned subset = 0; subset < 1U << kSources; ++subset) {
        std::vector<std::int64_t> edges;
        for (std::int64_t u = 0; u < kSources; ++u) {
          if ((subset >> u & 1U) != 0) edges.push_back(u);
        }
        if (static_cast<std::int64_t>(edges.size()) != size) continue;
        edges.push_back(kSources);  // an edge of destination 1, which needs one
        sum += layer(sample_of(g, edges), h)[0];
        ++samples;
      }
      EXPECT_TRUE(near_terms(sum / samples, expected, 100));
    }
  }
}

TEST(GraphConv, without_a_norm_a_sample_sums_what_was_drawn) {
  const Topology g = star_with_degrees(4), sample = sample_of(g, {1, 3, 4});
  const at::Tensor h = uniform({4, 3}, at::kDouble, 26);
  GraphConv layer = make_estimator(4, DegreeNorm::kNone);
  EXPECT_TRUE(near_terms(layer(sample, h), define(layer, sample, h), terms(g, 3)));
}

TEST(GraphConv, a_node_of_which_nothing_was_drawn_gets_the_bias) {
  const Topology g = star_with_degrees(4), sample = sample_of(g, {0, 2});
  const at::Tensor h = uniform({4, 3}, at::kDouble, 27);
  for (const DegreeNorm norm : kNorms) {
    GraphConv layer = make_estimator(2, norm);
    EXPECT_TRUE(exact(layer(sample, h)[1], layer->bias));
    layer->options.allow_zero_in_degree = false;
    EXPECT_ERROR("allow_zero_in_degree", layer(sample, h));
  }
}

TEST(GraphConv, nodes_without_in_edges_are_an_error_that_says_what_to_do) {
  GraphConv layer = make(2, 3);
  const at::Tensor h = uniform({4, 2}, at::kDouble, 16);
  EXPECT_ERROR(fragments("GraphConv", "add_self_loop", "allow_zero_in_degree"),
               layer(four_nodes(), h));
}

TEST(GraphConv, allowed_nodes_without_in_edges_get_the_bias) {
  for (const auto& [in, out] : {std::pair(2, 3), std::pair(3, 2)}) {
    GraphConv layer = make(in, out, {.allow_zero_in_degree = true});
    const at::Tensor h = uniform({4, in}, at::kDouble, 17);
    const at::Tensor got = layer(four_nodes(), h);
    EXPECT_TRUE(exact(got[0], layer->bias));
    EXPECT_TRUE(exact(got[3], layer->bias));
    EXPECT_TRUE(near_terms(got, define(layer, four_nodes(), h), 16));
  }
}

TEST(GraphConv, runs_without_edges_and_without_nodes_in_every_dtype) {
  for_each_bare_graph([](const Topology& g, at::ScalarType dtype) {
    for (const auto& [in, out] : {std::pair(2, 3), std::pair(3, 2)}) {
      GraphConv layer = make(in, out, {.allow_zero_in_degree = true}, dtype);
      const at::Tensor h = leaf(uniform({g.num_src(), in}, dtype, 18));
      const at::Tensor got = layer(g, h);
      EXPECT_EQ(got.scalar_type(), dtype);
      EXPECT_TRUE(exact(got, layer->bias.expand({g.num_dst(), out})));
      got.sum().backward();
      EXPECT_TRUE(exact(h.grad(), at::zeros({g.num_src(), in})));
    }
  });
}

TEST(GraphConv, has_the_parameters_of_dgl) {
  const GraphConv layer(30, 20);
  EXPECT_EQ(parameter_shapes(*layer), (std::set<std::string>{"weight [30, 20]", "bias [20]"}));
  const double bound = std::sqrt(6.0 / (30 + 20));
  const double largest = layer->weight.abs().max().item<double>();
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, bound * 0.95);  // 600 draws: all below with probability 0.95^600
  EXPECT_TRUE(exact(layer->bias, at::zeros({20})));

  const GraphConv bare(3, 2, {.bias = false});
  EXPECT_EQ(parameter_shapes(*bare), (std::set<std::string>{"weight [3, 2]"}));
}

TEST(GraphConv, applies_the_activation_last_and_takes_a_graph) {
  const Graph g(connected(5, 5, 10, 19));
  const at::Tensor h = uniform({5, 3}, at::kDouble, 20);
  const auto negate = [](const at::Tensor& x) { return -x; };
  GraphConv plain = make(3, 2);
  GraphConv active = make(3, 2, {.activation = negate});
  EXPECT_TRUE(exact(active(g, h), -plain(g, h)));
}

TEST(GraphConv, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("out_features", GraphConv(GraphConvOptions{.in_features = 3}));
  EXPECT_ERROR("in_features", GraphConv(GraphConvOptions{.out_features = 3}));
  const Topology g = connected(5, 5, 10, 21);
  GraphConv layer = make(3, 2);
  const auto error = [&](const at::Tensor& h, const at::Tensor& weight = {}) {
    return error_of([&] { layer(g, h, weight); });
  };
  for (const at::Tensor& h :
       {at::zeros({5, 4}, on_device(at::kDouble)), at::zeros({4, 3}, on_device(at::kDouble)),
        at::zeros({5}, on_device(at::kDouble)), at::zeros({5, 3}, on_device(at::kLong))}) {
    const std::string text = error(h);
    EXPECT_TRUE(mentions(text, "GraphConv"));
    EXPECT_TRUE(mentions(text, "[5,3]"));
    EXPECT_TRUE(mentions(text, fmt::format("[{}]", fmt::join(h.sizes(), ","))));
  }
  EXPECT_TRUE(mentions(error({}), "undefined"));
  const at::Tensor h = at::zeros({5, 3}, on_device(at::kDouble));
  EXPECT_TRUE(mentions(error(h, at::zeros({14}, on_device(at::kDouble))), "edge_weight[15]"));
  EXPECT_TRUE(mentions(error(h, at::zeros({15, 2}, on_device(at::kDouble))), "edge_weight[15]"));
  EXPECT_TRUE(mentions(error(h, at::zeros({15}, on_device(at::kLong))), "edge_weight[15]"));
  Frame edges("edge", 15, test_device());
  edges["weight"] = at::zeros({15}, on_device(at::kDouble));
  EXPECT_TRUE(mentions(error(h, edges["wieght"]), "edgecolumn'wieght'ismissing;thereare:weight"));
}

TEST(GraphConv, an_external_weight_takes_the_place_of_the_parameter) {
  const Topology g = connected(9, 5, 20, 41);
  for (const auto& [in, out] : {std::pair(3, 7), std::pair(7, 3)}) {
    GraphConv own = make(in, out);
    GraphConv without = make(in, out, {.weight = false});
    EXPECT_EQ(parameter_shapes(*without).size(), 1U);
    without->bias.set_data(own->bias.detach().clone());
    const at::Tensor h = uniform({9, in}, at::kDouble, 42);
    const at::Tensor factors = uniform({g.num_edges()}, at::kDouble, 43);
    EXPECT_TRUE(same_bits(without(g, h, at::Tensor(), own->weight), own(g, h)));
    EXPECT_TRUE(same_bits(without(g, h, factors, own->weight), own(g, h, factors)));
    const auto function = [&](const std::vector<at::Tensor>& inputs) {
      return without(g, inputs[0], inputs[2], inputs[1]);
    };
    EXPECT_TRUE(gradcheck(function, {h, uniform({in, out}, at::kDouble, 44), factors}));
  }
}

TEST(GraphConv, without_any_weight_only_aggregates) {
  const Topology g = connected(9, 5, 20, 45);
  GraphConv layer = make(4, 4, {.weight = false});
  GraphConv identity = make(4, 4);
  identity->bias.set_data(layer->bias.detach().clone());
  identity->weight.set_data(at::eye(4, on_device(at::kDouble)));
  const at::Tensor h = sparse_numbers({9, 4}, 46);
  EXPECT_TRUE(near_terms(layer(g, h), define(identity, g, h), terms(g, 4)));
  EXPECT_TRUE(near_terms(layer(g, h.to_sparse_csr()), define(identity, g, h), terms(g, 4)));
}

TEST(GraphConv, wrong_external_weights_are_errors) {
  const Topology g = connected(5, 5, 10, 47);
  const at::Tensor h = uniform({5, 3}, at::kDouble, 48), none;
  const at::Tensor fits = uniform({3, 2}, at::kDouble, 49);
  GraphConv own = make(3, 2);
  GraphConv without = make(3, 2, {.weight = false});
  EXPECT_ERROR("expectednoexternal_weight", own(g, h, none, fits));
  EXPECT_ERROR("expectedexternal_weight[3,2]", without(g, h));
  EXPECT_ERROR("expectedfloatingexternal_weight[3,2],gotfloat64[2,3]",
               without(g, h, none, fits.t()));
}

}  // namespace
}  // namespace mezzo::test::graph_conv_test
