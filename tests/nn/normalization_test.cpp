#include "mezzo/nn/normalization.h"

#include <limits>
#include <set>

#include "support/module_gradcheck.h"
#include "support/peer_case.h"
#include "support/settings.h"

namespace mezzo::test::normalization_test {
namespace {

using nn::GraphNorm;
using nn::InstanceNorm;
using nn::PairNorm;

/// one(rows of a graph) for every graph, joined: [N, F] in float64.
template <class One>
at::Tensor by_graph(const Graph& graph, const at::Tensor& rows, One one) {
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    if (count > 0) parts.push_back(one(rows.narrow(0, first, count)));
    first += count;
  }
  return at::cat(parts);
}

at::Tensor centred(const at::Tensor& rows, const at::Tensor& factor) {
  return rows - factor * rows.mean(0, /*keepdim=*/true);
}

at::Tensor define(const GraphNorm& norm, const Graph& graph, const at::Tensor& rows) {
  const auto take_parameter = [](const at::Tensor& p) { return take(p, Numbers::kGiven); };
  return by_graph(graph, rows, [&](const at::Tensor& part) {
    const at::Tensor c = centred(part, take_parameter(norm->mean_scale));
    const at::Tensor deviation = ((c * c).mean(0, true) + norm->options.eps).sqrt();
    return take_parameter(norm->weight) * c / deviation + take_parameter(norm->bias);
  });
}

at::Tensor define(const PairNorm& norm, const Graph& graph, const at::Tensor& rows) {
  return by_graph(graph, rows, [&](const at::Tensor& part) {
    const at::Tensor c = centred(part, at::ones({}, part.options()));
    const at::Tensor squares = (c * c).sum(1, true);
    const double eps = norm->options.eps;
    const at::Tensor length =
        norm->options.scale_individually ? squares.sqrt() + eps : (squares.mean() + eps).sqrt();
    return norm->options.scale * c / length;
  });
}

at::Tensor define(const InstanceNorm& norm, const Graph& graph, const at::Tensor& rows) {
  return by_graph(graph, rows, [&](const at::Tensor& part) {
    const at::Tensor c = centred(part, at::ones({}, part.options()));
    const at::Tensor result = c / ((c * c).mean(0, true) + norm->options.eps).sqrt();
    if (!norm->weight.defined()) return result;
    return take(norm->weight, Numbers::kGiven) * result + take(norm->bias, Numbers::kGiven);
  });
}

/// The normalizations of rows of width 3, with the definition of each.
template <class Check>
void for_each_norm(Check check) {
  check("GraphNorm", GraphNorm(3));
  check("PairNorm", PairNorm({.scale = 1.5}));
  check("PairNorm, individually", PairNorm({.scale = 0.5, .scale_individually = true}));
  check("InstanceNorm", InstanceNorm(3));
  check("InstanceNorm, affine", InstanceNorm(3, {.affine = true}));
}

TEST(Normalization, equals_the_definition_in_every_dtype_with_one_rounding) {
  const Graph g = mixed_batch();
  for_each_norm([&](const char* name, auto norm) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(std::string(name) + ", " + setting.name());
      const at::ScalarType scalar = setting.dtype.scalar;
      randomise(*norm, scalar, 1, scalar);
      const at::Tensor h = uniform({12, 3}, scalar, 2);
      const at::Tensor expected = define(norm, g, take(h, Numbers::kGiven));
      const at::Tensor rows = leaf(h.to(setting.autocast ? at::kFloat : scalar));
      const at::Tensor got =
          run_in(setting, *norm, [&](at::ScalarType /*dtype*/) { return norm(g, rows); });
      EXPECT_EQ(got.scalar_type(), rows.scalar_type());
      // A graph of two near rows divides by a small deviation; none has one here.
      EXPECT_TRUE(
          near(got, expected, sum_bound(at::full_like(expected, 8), 32, rows.scalar_type())));
      got.sum().backward();
      EXPECT_EQ(rows.grad().scalar_type(), rows.scalar_type());
      EXPECT_TRUE(rows.grad().isfinite().all().item<bool>());
      for (const auto& parameter : norm->named_parameters()) {
        EXPECT_TRUE(parameter.value().grad().isfinite().all().template item<bool>());
      }
      norm->zero_grad();
    }
  });
}

TEST(Normalization, gradients_agree_with_differences) {
  const Graph g = mixed_batch();
  for_each_norm([&](const char* name, auto norm) {
    SCOPED_TRACE(name);
    randomise(*norm, at::kDouble);
    // The row of the graph with one node has length 0, where PairNorm has no derivative.
    const Graph rows = std::string(name).find("individually") == std::string::npos
                           ? g
                           : batch({four_node_graph(), cycle_graph(8)});
    EXPECT_TRUE(module_gradcheck(
        *norm, [&](const std::vector<at::Tensor>& inputs) { return norm(rows, inputs[0]); },
        {uniform({12, 3}, at::kDouble, 3)}));
  });
}

TEST(Normalization, equals_pyg) {
  const Graph g = mixed_batch();
  const auto expect = [&](auto norm, const PeerResult& expected) {
    expect_peer(
        *norm, [&](const at::Tensor& h) { return norm(g, h); }, expected);
  };
  expect(GraphNorm(3), {2.7386428084844145,
                        -10.346937592001897,
                        {{2.188180080835709, 3.0293050985969003, 4.141592245571037},
                         {-1.25, 0, 1.25},
                         {0.04013685549735435, -0.07624593634312193, 0.07798025623404203}}});
  expect(PairNorm({.scale = 1.5}), {8.699915582999147, 0.5380133159968651, {}});
  expect(PairNorm({.scale_individually = true}), {5.405003876938109, -2.3425831654771008, {}});
  expect(InstanceNorm(3), {10.02334504426912, -1.3365816083443343, {}});
  InstanceNorm tracked(3, {.affine = true, .track_running_stats = true});
  expect(tracked, {3.8969066149627007,
                   -8.74110430974804,
                   {{1.3926674148945295, 3.96026733845008, 4.670410290924511}, {-1.25, 0, 1.25}}});
  EXPECT_TRUE(near_terms(tracked->running_mean,
                         numbers({0.0007142857142857146, 0.01625, -0.01535714285714286}), 8));
  EXPECT_TRUE(near_terms(tracked->running_var,
                         numbers({0.9389285714285714, 0.9269791666666667, 0.9245238095238095}), 8));
  EXPECT_EQ(tracked->num_batches_tracked.item<std::int64_t>(), 0);
  tracked->reset_parameters();
  tracked->eval();
  expect(tracked,
         {2.953125859368556,
          -8.499957500318748,
          {{1.5624921875585933, 2.0624896875773433, 3.062484687614843}, {-1.25, 0, 1.25}}});
  EXPECT_TRUE(exact(tracked->running_mean, at::zeros({3})));
}

TEST(Normalization, same_bits_for_any_number_of_threads) {
  const Graph g = many_graphs();
  const at::Tensor h = uniform({g.num_nodes(), 3}, at::kFloat, 4);
  for_each_norm([&](const char* name, auto norm) {
    SCOPED_TRACE(name);
    norm->to(test_device());
    expect_bits_for_any_threads([&] {
      std::vector<at::Tensor> inputs = norm->parameters();
      inputs.push_back(leaf(h));
      std::vector<at::Tensor> results = {norm(g, inputs.back())};
      for (const at::Tensor& gradient : torch::autograd::grad({results[0]}, inputs, {h})) {
        results.push_back(gradient);
      }
      return results;
    });
  });
}

TEST(Normalization, has_the_parameters_and_buffers_of_pyg) {
  EXPECT_EQ(parameter_shapes(*GraphNorm(3)),
            (std::set<std::string>{"weight [3]", "bias [3]", "mean_scale [3]"}));
  EXPECT_TRUE(PairNorm()->parameters().empty());
  EXPECT_TRUE(InstanceNorm(3)->parameters().empty());
  EXPECT_TRUE(InstanceNorm(3)->buffers().empty());
  const InstanceNorm norm(3, {.affine = true, .track_running_stats = true});
  EXPECT_EQ(parameter_shapes(*norm), (std::set<std::string>{"weight [3]", "bias [3]"}));
  EXPECT_EQ(norm->named_buffers().keys(),
            (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_EQ(norm->clone()->buffers().size(), 3U);
}

TEST(Normalization, bad_input_is_an_error_that_names_it) {
  const Graph g = mixed_batch();
  for_each_norm([&](const char* /*name*/, auto norm) {
    norm->to(test_device());
    for (const at::Tensor& h :
         {at::Tensor(), at::zeros({11, 3}, on_device()), at::zeros({12}, on_device()),
          at::zeros({12, 3}, on_device(at::kLong)),
          at::zeros({12, 3}, on_device()).to_sparse_csr()}) {
      EXPECT_ERROR("expectedfloating,stridedh[12,", norm(g, h));
    }
    const Graph none = empty_graph();
    EXPECT_EQ(norm(none, at::zeros({0, 3}, on_device())).size(0), 0);
  });
  EXPECT_ERROR("h[12,3],onerowpernode,got",
               placed(GraphNorm(3))(g, at::zeros({12, 4}, on_device())));
  EXPECT_ERROR("GraphNorm:expectedin_featuresofatleast1,got-1", GraphNorm bad(-1));
  EXPECT_ERROR("GraphNorm:expectedafiniteepsofatleast0,got-1", GraphNorm bad(3, {.eps = -1}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_ERROR("PairNorm:expectedafinitescale", PairNorm bad({.scale = nan}));
  EXPECT_ERROR("InstanceNorm:expectedamomentumin[0,1],got2", InstanceNorm bad(3, {.momentum = 2}));
}

}  // namespace
}  // namespace mezzo::test::normalization_test
