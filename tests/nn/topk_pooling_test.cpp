#include "mezzo/nn/topk_pooling.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "support/module_gradcheck.h"
#include "support/peer_case.h"
#include "support/settings.h"

namespace mezzo::test::topk_pooling_test {
namespace {

using nn::CoarsenedGraph;
using nn::SAGPooling;
using nn::TopKPooling;
using nn::TopKPoolingOptions;

/// One number for each node, before the selection: [N, width] rows that select.weight multiplies.
at::Tensor scored_rows(const TopKPooling& /*pool*/, const Graph& /*graph*/, const at::Tensor& h) {
  return h;
}

at::Tensor scored_rows(const SAGPooling& pool, const Graph& graph, const at::Tensor& h) {
  const auto named = pool->named_parameters();
  const at::Tensor received = at::matmul(adjacency(graph), h);
  return dense_linear(received, named["gnn.lin_rel.weight"], named["gnn.lin_rel.bias"],
                      Numbers::kGiven) +
         dense_linear(h, named["gnn.lin_root.weight"], {}, Numbers::kGiven);
}

/// The scores of all nodes, [N], graph by graph.
template <class Pool>
at::Tensor define_scores(const Pool& pool, const Graph& graph, const at::Tensor& h) {
  const at::Tensor weight = take(pool->select->weight, Numbers::kGiven);
  const at::Tensor products = at::matmul(scored_rows(pool, graph, h), weight[0]);
  if (!pool->options.min_score) return at::tanh(products / weight.norm());
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    if (count > 0) parts.push_back(products.narrow(0, first, count).softmax(0));
    first += count;
  }
  return at::cat(parts);
}

/// The ids that a pooling keeps for these scores.
Ids define_kept(const TopKPoolingOptions& options, const Graph& graph, const at::Tensor& scores) {
  const at::Tensor on_cpu = scores.cpu();
  const auto score = [&](std::int64_t i) { return on_cpu[i].item<double>(); };
  Ids kept;
  std::int64_t first = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    Ids nodes(static_cast<std::size_t>(count));
    std::iota(nodes.begin(), nodes.end(), first);
    first += count;
    if (count == 0) continue;
    if (options.min_score) {
      const double highest = score(*std::max_element(
          nodes.begin(), nodes.end(), [&](auto a, auto b) { return score(a) < score(b); }));
      const double bound = std::min(highest - 1e-7, *options.min_score);
      std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(kept),
                   [&](auto i) { return score(i) > bound; });
      continue;
    }
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](auto a, auto b) { return score(a) > score(b); });
    const double most =
        options.ratio < 1 ? std::ceil(options.ratio * static_cast<double>(count)) : options.ratio;
    nodes.resize(std::min(nodes.size(), static_cast<std::size_t>(most)));
    kept.insert(kept.end(), nodes.begin(), nodes.end());
  }
  return kept;
}

const std::vector<TopKPoolingOptions>& option_cases() {
  static const std::vector<TopKPoolingOptions> all = {
      {.in_features = 3},
      {.in_features = 3, .ratio = 0.3, .multiplier = -2},
      {.in_features = 3, .ratio = 1},
      {.in_features = 3, .ratio = 5},
      {.in_features = 3, .min_score = 0.2},
      {.in_features = 3, .min_score = 2, .multiplier = 0.5},
      {.in_features = 3, .min_score = -1}};
  return all;
}

/// Both poolings with every options of option_cases().
template <class Check>
void for_each_pool(Check check) {
  for (const TopKPoolingOptions& options : option_cases()) {
    check(TopKPooling(options));
    check(SAGPooling(options));
  }
}

Graph mixed_batch_with_columns() {
  Graph graph = mixed_batch();
  graph.edata()["w"] = at::arange(graph.num_edges(), on_device(at::kDouble)).add(0.5);
  return graph;
}

TEST(TopKPooling, keeps_the_nodes_of_the_definition_in_every_dtype) {
  const Graph g = mixed_batch();
  for_each_pool([&](auto pool) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(testing::Message() << *pool << ", " << setting.name());
      const at::ScalarType scalar = setting.dtype.scalar;
      randomise(*pool, scalar, 1, scalar);
      const at::Tensor h = uniform({12, 3}, scalar, 2), exact_h = take(h, Numbers::kGiven);
      const at::Tensor scores = define_scores(pool, g, exact_h);
      const at::Tensor rows = leaf(h.to(setting.autocast ? at::kFloat : scalar));
      CoarsenedGraph got;
      static_cast<void>(run_in(setting, *pool, [&](at::ScalarType /*dtype*/) {
        got = pool(g, rows);
        return got.h;
      }));
      ASSERT_EQ(values(got.perm), define_kept(pool->options, g, scores));
      const at::Tensor kept = scores.index_select(0, got.perm);
      const at::ScalarType accumulator = scalar == at::kDouble ? at::kDouble : at::kFloat;
      EXPECT_EQ(got.score.scalar_type(), accumulator);
      const at::Tensor terms = at::full_like(kept, 8);
      EXPECT_TRUE(near(got.score, kept, sum_bound(terms, 32, accumulator)));
      EXPECT_EQ(got.h.scalar_type(), rows.scalar_type());
      const at::Tensor expected =
          pool->options.multiplier * exact_h.index_select(0, got.perm) * kept.unsqueeze(1);
      EXPECT_TRUE(
          near(got.h, expected, sum_bound(at::full_like(expected, 16), 32, rows.scalar_type())));
      (got.h.sum() + got.score.sum()).backward();
      EXPECT_TRUE(rows.grad().isfinite().all().template item<bool>());
      for (const auto& parameter : pool->named_parameters()) {
        EXPECT_TRUE(parameter.value().grad().isfinite().all().template item<bool>());
      }
      pool->zero_grad();
    }
  });
}

TEST(TopKPooling, the_graph_has_the_edges_among_the_kept_nodes_and_their_features) {
  const Graph g = mixed_batch_with_columns();
  for_each_pool([&](auto pool) {
    SCOPED_TRACE(testing::Message() << *pool);
    randomise(*pool, at::kDouble);
    const CoarsenedGraph got = pool(g, uniform({12, 3}, at::kDouble, 3));
    const Ids perm = values(got.perm), sizes = values(g.batch_num_nodes());
    std::vector<Edge> kept_edges;
    std::vector<double> weights;
    Ids num_nodes(sizes.size()), num_edges(sizes.size());
    const auto graph_of = [&](std::int64_t node) {
      std::size_t graph = 0;
      for (std::int64_t end = sizes[0]; node >= end; end += sizes[graph]) ++graph;
      return graph;
    };
    for (const std::int64_t node : perm) ++num_nodes[graph_of(node)];
    double weight = 0.5;
    for (const auto& [from, to] : edges(g)) {
      const auto source = std::find(perm.begin(), perm.end(), from);
      const auto target = std::find(perm.begin(), perm.end(), to);
      if (source != perm.end() && target != perm.end()) {
        kept_edges.emplace_back(source - perm.begin(), target - perm.begin());
        weights.push_back(weight);
        ++num_edges[graph_of(from)];
      }
      ++weight;
    }
    EXPECT_EQ(got.graph.num_nodes(), static_cast<std::int64_t>(perm.size()));
    EXPECT_EQ(edges(got.graph), kept_edges);
    EXPECT_TRUE(exact(got.graph.edata().at("w"), numbers(weights)));
    EXPECT_EQ(values(got.graph.batch_num_nodes()), num_nodes);
    EXPECT_EQ(values(got.graph.batch_num_edges()), num_edges);
  });
}

TEST(TopKPooling, equal_scores_are_kept_by_id) {
  const Graph g = mixed_batch();
  TopKPooling pool(3);
  SAGPooling sag(3);
  pool->to(test_device());
  sag->to(test_device());
  EXPECT_EQ(values(pool(g, at::ones({12, 3}, on_device())).perm), (Ids{0, 1, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values(sag(g, at::zeros({12, 3}, on_device())).perm), (Ids{0, 1, 4, 5, 6, 7, 8}));
}

TEST(TopKPooling, gradients_agree_with_differences) {
  const Graph g = mixed_batch();
  for_each_pool([&](auto pool) {
    SCOPED_TRACE(testing::Message() << *pool);
    randomise(*pool, at::kDouble);
    EXPECT_TRUE(module_gradcheck(
        *pool, [&](const std::vector<at::Tensor>& inputs) { return pool(g, inputs[0]).h; },
        {uniform({12, 3}, at::kDouble, 4)}));
  });
  Graph weighted = mixed_batch_with_columns();
  weighted.edata()["w"] = leaf(weighted.edata().at("w"));
  TopKPooling all(3, {.ratio = 100});
  randomise(*all, at::kDouble);
  all(weighted, uniform({12, 3}, at::kDouble, 4)).graph.edata().at("w").sum().backward();
  EXPECT_TRUE(exact(weighted.edata().at("w").grad(), at::ones({11})));
}

/// The poolings with `options` against PyG's: the kept nodes and their scores, and expect_peer().
template <class Pool>
void expect_pyg(Pool pool, const Ids& perm, const std::vector<double>& scores,
                const PeerResult& expected) {
  SCOPED_TRACE(testing::Message() << *pool);
  const Graph g = mixed_batch();
  const auto forward = [&](const at::Tensor& h) {
    const CoarsenedGraph got = pool(g, h);
    EXPECT_EQ(values(got.perm), perm);
    EXPECT_TRUE(near_terms(got.score, numbers(scores), 20));
    return got.h;
  };
  expect_peer(*pool, forward, expected);
}

TEST(TopKPooling, equals_pyg) {
  const std::vector<double> scores = {0.8531815984205138, 0.7101130985574529, -0.7101130985574529,
                                      0.8531815984205138, 0.8147365112100324, 0.76748747385486,
                                      0.6414530905135386};
  expect_pyg(TopKPooling(3), {0, 2, 4, 11, 8, 5, 10}, scores,
             {-0.6697439879959393,
              1.2765626680325872,
              {{-0.543352332665071, -0.07435629337899528, -0.9303726522347837}}});
  expect_pyg(TopKPooling(3, {.ratio = 2, .multiplier = 2}), {0, 2, 4, 11, 8},
             {scores.begin(), scores.begin() + 5},
             {0.4717709166733486,
              4.717783699495484,
              {{-0.7042630239212854, 0.4631940394961797, -1.0193736933700828}}});
  expect_pyg(TopKPooling(3, {.min_score = 0.2}), {0, 2, 4, 5, 8, 11},
             {0.6087260325722508, 0.3468416383262649, 1, 0.21876636736405075, 0.2638826098704608,
              0.3183031863219053},
             {1.9039734486872966,
              -0.40784690831477055,
              {{-0.3073069863828435, -0.2897739455776053, -0.25618341845611114}}});
}

TEST(SAGPooling, equals_pyg) {
  expect_pyg(SAGPooling(3), {3, 2, 4, 10, 8, 6, 7},
             {0.9950547536867305, 0.9881778622875124, 0.3027097293321085, 0.9956345671093096,
              0.9338280432225917, 0.7615941559557649, 0.7615941559557649},
             {-0.305254308391782,
              -0.4466613097895879,
              {{-0.3308609980395053, 0.7574602275531053, -0.26884438385591963},
               {-2.4925538998819943},
               {-0.8795052398160282, -1.3476519938745597, 2.394946684625561},
               {0}}});
  expect_pyg(SAGPooling(3, {.min_score = 0.2}), {2, 3, 4, 10},
             {0.3593826842063727, 0.6209575943074437, 1, 0.7262648171683169},
             {0.7970286285552111,
              0.7938967146468058,
              {{-0.3127855889939249, -0.23563649473233228, 0.44020238792073496},
               {0},
               {1.5916461307130105, -0.7739164686872329, -0.6774063384067918},
               {0.5804700330321908}}});
}

TEST(TopKPooling, same_bits_for_any_number_of_threads) {
  const Graph g = many_graphs();
  const at::Tensor h = uniform({g.num_nodes(), 3}, at::kFloat, 5);
  const auto check = [&](auto pool) {
    SCOPED_TRACE(testing::Message() << *pool);
    pool->to(test_device());
    expect_bits_for_any_threads([&] {
      std::vector<at::Tensor> inputs = pool->parameters();
      inputs.push_back(leaf(h));
      const CoarsenedGraph got = pool(g, inputs.back());
      std::vector<at::Tensor> results = {got.h, got.perm, got.score};
      for (const at::Tensor& gradient :
           torch::autograd::grad({got.h}, inputs, {h.index_select(0, got.perm)})) {
        results.push_back(gradient);
      }
      return results;
    });
  };
  check(TopKPooling(3));
  check(SAGPooling(3, {.min_score = 0.2}));
}

TEST(TopKPooling, has_the_parameters_of_pyg_and_can_be_cloned) {
  const TopKPooling pool(5);
  EXPECT_EQ(parameter_shapes(*pool), (std::set<std::string>{"select.weight [1, 5]"}));
  const SAGPooling sag(5);
  EXPECT_EQ(parameter_shapes(*sag),
            (std::set<std::string>{"gnn.lin_rel.weight [1, 5]", "gnn.lin_rel.bias [1]",
                                   "gnn.lin_root.weight [1, 5]", "select.weight [1, 1]"}));
  const auto copy = sag->clone();
  EXPECT_TRUE(same_bits(copy->parameters()[0], sag->parameters()[0]));
  EXPECT_FALSE(copy->parameters()[0].is_same(sag->parameters()[0]));
}

TEST(TopKPooling, a_graph_without_nodes_stays_one) {
  for_each_pool([&](auto pool) {
    pool->to(test_device());
    const CoarsenedGraph got = pool(empty_graph(), at::zeros({0, 3}, on_device()));
    EXPECT_EQ(got.graph.num_nodes(), 0);
    EXPECT_EQ(got.h.sizes(), (at::IntArrayRef{0, 3}));
  });
}

TEST(TopKPooling, bad_input_is_an_error_that_names_it) {
  const Graph g = mixed_batch();
  TopKPooling pool(3);
  SAGPooling sag(3);
  for (const at::Tensor& h : {at::Tensor(), at::zeros({11, 3}, on_device()),
                              at::zeros({12, 4}, on_device()), at::zeros({12, 3}, at::kLong)}) {
    EXPECT_ERROR("TopKPooling:expectedfloating,stridedh[12,3],onerowpernode,got", pool(g, h));
    EXPECT_ERROR("SAGPooling:expectedfloating,stridedh[12,3],onerowpernode,got", sag(g, h));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_ERROR("TopKPooling:expectedin_featuresofatleast1,got-1", TopKPooling bad(-1));
  for (const double ratio : {0.0, -0.5, 1.5, nan}) {
    EXPECT_ERROR("SAGPooling:expectedaratioin(0,1)orawholenumberofatleast1,got",
                 SAGPooling bad(3, {.ratio = ratio}));
  }
  EXPECT_ERROR("expectedafinitemin_score", TopKPooling bad(3, {.min_score = nan}));
  EXPECT_ERROR("expectedafinitemultiplier", TopKPooling bad(3, {.multiplier = nan}));
  TopKPooling sums(3, {.nonlinearity = [](const at::Tensor& score) { return score.sum(); }});
  sums->to(test_device());
  EXPECT_ERROR("expectedthenonlinearitytoreturn[12],got", sums(g, at::zeros({12, 3}, on_device())));
}

}  // namespace
}  // namespace mezzo::test::topk_pooling_test
