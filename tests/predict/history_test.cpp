#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>

#include "mezzo/sampling/blocks/block_sampler.h"

#include "predict/cases.h"
#include "support/tolerance.h"

namespace mezzo {
namespace {

using test::EdgeGraph;
using test::same_bits;

/// Makes the same random changes to a graph and to Predictors of it.
class History {
 public:
  History(EdgeGraph graph, std::vector<Predictor*> predictors, std::uint64_t seed)
      : graph_(std::move(graph)), predictors_(std::move(predictors)), draw_(seed) {}

  void change() {
    switch (draw_.below(6)) {
      case 0:
      case 1:
        return add_edges();
      case 2:
      case 3:
        return remove_edges();
      case 4:
        return set_features();
      default:
        return add_nodes();
    }
  }

  const EdgeGraph& graph() const { return graph_; }
  std::int64_t random_node() { return draw_.below(graph_.num_nodes); }

 private:
  template <class Update>
  void update(const Update& update) {
    for (Predictor* predictor : predictors_) update(*predictor);
  }

  void add_edges() {
    EdgeGraph more{.num_nodes = graph_.num_nodes, .row_width = graph_.row_width};
    for (std::int64_t i = draw_.below(6); i >= 0; --i) {
      more.edges.push_back(test::random_edge(draw_, graph_));
      if (draw_.one_in(4)) more.edges.push_back(more.edges.back());
    }
    update([&](Predictor& p) { p.add_edges(more.ids(true), more.ids(false), more.rows()); });
    graph_.edges.insert(graph_.edges.end(), more.edges.begin(), more.edges.end());
  }

  void remove_edges() {
    EdgeGraph less{.num_nodes = graph_.num_nodes};
    for (std::int64_t i = draw_.below(6); i >= 0 && !graph_.edges.empty(); --i) {
      const auto any = draw_.below(static_cast<std::int64_t>(graph_.edges.size()));
      const std::size_t place = graph_.first_parallel(static_cast<std::size_t>(any));
      less.edges.push_back(graph_.edges[place]);
      graph_.edges.erase(graph_.edges.begin() + static_cast<std::ptrdiff_t>(place));
    }
    update([&](Predictor& p) { p.remove_edges(less.ids(true), less.ids(false)); });
  }

  void set_features() {
    const at::Tensor nodes = at::randperm(graph_.num_nodes).narrow(0, 0, 1 + draw_.below(3));
    at::Tensor rows = at::randn({nodes.numel(), test::kInputs});
    if (draw_.one_in(3)) rows[0] = graph_.features[nodes[0].item<std::int64_t>()];  // no change
    graph_.features = graph_.features.index_copy(0, nodes, rows);
    update([&](Predictor& p) { p.set_features(nodes, rows); });
  }

  void add_nodes() {
    const at::Tensor rows = at::randn({1 + draw_.below(2), test::kInputs});
    update([&](Predictor& p) { EXPECT_EQ(p.add_nodes(rows), graph_.num_nodes); });
    graph_.num_nodes += rows.size(0);
    graph_.features = at::cat({graph_.features, rows});
  }

  EdgeGraph graph_;
  std::vector<Predictor*> predictors_;
  test::Draw draw_;
};

/// Of all nodes, or if the model scores pairs, of pairs of each node and another.
at::Tensor all_results(const Predictor& predictor, const nn::ModelOptions& options) {
  if (options.target == TaskTarget::kNode) return predictor.predict();
  const at::Tensor src = at::arange(predictor.num_nodes()), dst = src.flip(0);
  if (options.target == TaskTarget::kLink) return predictor.predict_edges(src, dst);
  return predictor.predict_edges(src, dst, at::ones({src.numel(), options.edge_features}));
}

void check_history(const test::ModelCase& one, amp::Precision precision, std::uint64_t seed) {
  test::Draw draw(seed);
  const EdgeGraph graph = test::random_edge_graph(draw, 40, 100, one.row_width);
  const nn::Model model = test::random_model(one.options);
  Predictor resident = graph.predictor(model, {.resident = true, .precision = precision});
  Predictor plain = graph.predictor(model, {.precision = precision});
  History history(graph, {&resident, &plain}, seed);
  for (int change = 1; change <= 24; ++change) {
    history.change();
    if (one.options.target == TaskTarget::kNode) {
      const at::Tensor nodes = at::tensor({history.random_node(), history.graph().num_nodes - 1});
      EXPECT_TRUE(same_bits(resident.predict(nodes), plain.predict(nodes)));
      SampledNeighbors sampled{.seed = seed};
      sampled.fanouts.assign(static_cast<std::size_t>(one.options.num_layers), 2);
      EXPECT_TRUE(same_bits(resident.predict(nodes, sampled), plain.predict(nodes, sampled)));
    }
    if (change % 4 != 0) continue;
    if (change % 8 == 0) resident.refresh();
    EdgeGraph present = history.graph();  // in another order
    std::reverse(present.edges.begin(), present.edges.end());
    const Predictor fresh = present.predictor(model, {.resident = true, .precision = precision});
    EXPECT_TRUE(same_bits(all_results(resident, one.options), all_results(fresh, one.options)))
        << "after " << change;
    EXPECT_EQ(resident.num_edges(), static_cast<std::int64_t>(present.edges.size()));
    EXPECT_EQ(resident.num_nodes(), present.num_nodes);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PredictorHistory, any_gives_the_bits_of_the_present_graph) {
  for (const nn::Normalization normalization :
       {nn::Normalization::kNone, nn::Normalization::kBatch}) {
    for (const test::ModelCase& one : normalization == nn::Normalization::kNone
                                          ? test::model_cases()
                                          : test::model_cases_with(normalization)) {
      for (const amp::Precision precision : test::kPredictorPrecisions) {
        SCOPED_TRACE(one.name + ", " + std::string(amp::to_string(precision)));
        check_history(one, precision, 11);
      }
    }
  }
}

TEST(PredictorHistory, gives_the_bits_of_the_present_graph_for_any_layers) {
  std::vector<test::ModelCase> cases = test::widening_cases();
  for (test::ModelCase& one : test::head_cases()) cases.push_back(std::move(one));
  for (const nn::ModelKind kind : {nn::ModelKind::kGcn, nn::ModelKind::kGat}) {
    cases.push_back(test::model_case("one layer", {.kind = kind}));
    cases.back().options.num_layers = 1;
  }
  for (const test::ModelCase& one : cases) {
    for (const amp::Precision precision : test::kPredictorPrecisions) {
      SCOPED_TRACE(one.name + ", " + std::string(amp::to_string(precision)));
      check_history(one, precision, 12);
    }
  }
}

TEST(PredictorHistory, a_node_that_loses_all_its_edges_has_the_bits_of_the_present_graph) {
  for (const test::ModelCase& one : test::model_cases()) {
    SCOPED_TRACE(one.name);
    test::Draw draw(13);
    EdgeGraph graph = test::random_edge_graph(draw, 30, 60, one.row_width);
    const nn::Model model = test::random_model(one.options);
    Predictor predictor = graph.predictor(model, {.resident = true});
    EdgeGraph gone{.num_nodes = graph.num_nodes, .row_width = graph.row_width};
    const auto is_of_hub = [](const EdgeGraph::Edge& e) { return e.src == 0 || e.dst == 0; };
    std::copy_if(graph.edges.begin(), graph.edges.end(), std::back_inserter(gone.edges), is_of_hub);
    std::erase_if(graph.edges, is_of_hub);
    ASSERT_GT(gone.edges.size(), 10U);
    predictor.remove_edges(gone.ids(true), gone.ids(false));
    const Predictor fresh = graph.predictor(model, {});
    for (std::int64_t node = 0; node < graph.num_nodes; ++node) {
      const at::Tensor nodes = at::tensor({node});
      EXPECT_TRUE(same_bits(predictor.predict(nodes), fresh.predict(nodes))) << node;
    }
  }
}

TEST(PredictorHistory, hub_rows_have_the_bits_of_the_present_graph) {
  // More edges than one chunk of a row, and nodes of several parts.
  constexpr std::int64_t kNodes = 70'000;
  for (const nn::ModelKind kind :
       {nn::ModelKind::kGcn, nn::ModelKind::kSage, nn::ModelKind::kGat}) {
    test::ModelCase one = test::model_case("hub", {.kind = kind});
    one.options.num_layers = 2;
    const nn::Model model = test::random_model(one.options);
    torch::manual_seed(1);
    const at::Tensor features = at::randn({kNodes, test::kInputs});
    const at::Tensor src = at::arange(kNodes), dst = at::zeros({kNodes}, at::kLong);
    const auto hub = [&](std::int64_t first) {
      return Topology::from_coo(src.narrow(0, first, kNodes - first),
                                dst.narrow(0, first, kNodes - first), kNodes, kNodes);
    };
    Predictor predictor(model, hub(1000), features, {.resident = true});
    predictor.add_edges(src.narrow(0, 0, 1000), dst.narrow(0, 0, 1000));
    const Predictor fresh(model, hub(0), features);
    const at::Tensor nodes = at::tensor({0, 1, 999, 1000});
    EXPECT_TRUE(same_bits(predictor.predict(nodes), fresh.predict(nodes)));
    EXPECT_TRUE(same_bits(predictor.predict(), fresh.predict()));
  }
}

TEST(PredictorHistory, added_self_loops_stay_one_a_node) {
  for (const nn::ModelKind kind : {nn::ModelKind::kGcn, nn::ModelKind::kGat}) {
    const test::ModelCase one = test::model_case("loops", {.kind = kind});
    TrainedModel trained;
    trained.model = test::random_model(one.options);
    trained.options.model = kind;
    trained.data.num_features = test::kInputs;
    trained.data.num_classes = test::kOutputs;
    test::Draw draw(8);
    const EdgeGraph graph = test::random_edge_graph(draw, 20, 60, 0);
    const auto data_of = [&](const EdgeGraph& of) {
      Dataset data;
      data.name = data.origin = "loops";
      data.num_nodes = of.num_nodes;
      data.src = of.ids(true);
      data.dst = of.ids(false);
      data.features = of.features;
      return data;
    };
    Predictor predictor(trained, data_of(graph), {.resident = true});
    const at::Tensor before = predictor.predict();
    const std::int64_t num_edges = predictor.num_edges();
    predictor.add_edges(at::tensor({5, 6}), at::tensor({5, 6}));
    predictor.remove_edges(at::tensor({7}), at::tensor({7}));
    EXPECT_TRUE(same_bits(predictor.predict(), before));
    EXPECT_EQ(predictor.num_edges(), num_edges);
    const at::Tensor row = at::randn({1, test::kInputs});
    EXPECT_EQ(predictor.add_nodes(row), 20);
    EXPECT_EQ(predictor.num_edges(), num_edges + 1);
    EdgeGraph present = graph;
    present.num_nodes = 21;
    present.features = at::cat({graph.features, row});
    EXPECT_TRUE(same_bits(predictor.predict(), Predictor(trained, data_of(present)).predict()));
  }
}

// .ci/run runs it under the thread sanitizer.
TEST(PredictorThreads, readers_see_all_of_an_update_or_nothing) {
  for (const bool resident : {false, true}) {
    const test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
    test::Draw draw(9);
    const EdgeGraph graph = test::random_edge_graph(draw, 40, 120, 0);
    const nn::Model model = test::random_model(one.options);
    Predictor predictor = graph.predictor(model, {.resident = resident});
    const at::Tensor nodes = at::arange(40), src = nodes, dst = nodes.flip(0), few = at::arange(5),
                     old_rows = graph.features.narrow(0, 0, 5),
                     new_rows = at::randn({5, test::kInputs});
    // All combinations of the edges and the features.
    std::vector<at::Tensor> states = {predictor.predict(nodes)};
    predictor.add_edges(src, dst);
    states.push_back(predictor.predict(nodes));
    predictor.set_features(few, new_rows);
    states.push_back(predictor.predict(nodes));
    predictor.remove_edges(src, dst);
    states.push_back(predictor.predict(nodes));
    ASSERT_FALSE(at::equal(states[0], states[1]) || at::equal(states[2], states[3]));
    const SampledNeighbors all_neighbors{.fanouts = {kAllNeighbors, kAllNeighbors, kAllNeighbors}};
    const auto ask = [&](int kind) {
      if (kind == 0) return predictor.predict().narrow(0, 0, 40);
      if (kind == 1) return predictor.predict(nodes, all_neighbors);
      if (kind == 2) {
        EXPECT_GT(predictor.memory_bytes(), 0);
      }
      return predictor.predict(nodes);
    };
    std::atomic<bool> stop = false;
    std::atomic<std::int64_t> calls = 0, faults = 0;
    std::vector<std::thread> readers, writers;
    for (int i = 0; i < 8; ++i) {
      readers.emplace_back([&, kind = i % 4] {
        while (!stop) {
          const at::Tensor rows = ask(kind);
          if (std::none_of(states.begin(), states.end(),
                           [&](const at::Tensor& state) { return at::equal(rows, state); }))
            ++faults;
          ++calls;
        }
      });
    }
    const auto repeat = [&](auto change) {
      writers.emplace_back([change] {
        for (int i = 0; i < 25; ++i) change();
      });
    };
    repeat([&] {
      predictor.add_edges(src, dst);
      predictor.remove_edges(src, dst);
    });
    repeat([&] {
      predictor.set_features(few, old_rows);
      predictor.set_features(few, new_rows);
    });
    repeat([&] { predictor.add_nodes(old_rows); });
    repeat([&] { predictor.refresh(); });
    for (std::thread& writer : writers) writer.join();
    while (calls < 64) std::this_thread::yield();
    stop = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(faults, 0);
    EXPECT_TRUE(same_bits(predictor.predict(nodes), states[3]));
    EXPECT_EQ(predictor.num_nodes(), 40 + 25 * 5);
  }
}

}  // namespace
}  // namespace mezzo
