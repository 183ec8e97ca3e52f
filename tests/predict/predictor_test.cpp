#include "mezzo/predict/predictor.h"

#include <atomic>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>

#include "mezzo/graph/graph.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/train/trainer.h"

#include "predict/cases.h"
#include "support/tolerance.h"
#include "train/link_data.h"
#include "train/synthetic.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using test::fragments;
using test::quick_options;
using test::same_bits;
using test::two_rings;

/// The bound of the difference of two ways to compute outputs of a small model.
test::SumBound bound_of(const at::Tensor& expected) {
  // A layer sums fewer than 100 terms; the outputs of layers are of the size of the results.
  return test::sum_bound(
      at::full(expected.sizes(), 1 + expected.abs().max().item<double>(), at::kDouble), 1e3,
      at::kFloat);
}

TEST(Predictor, agrees_with_the_trained_model) {
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    if (Kind::kind == nn::ModelKind::kSgc) return;
    SCOPED_TRACE(Kind::name);
    TrainOptions options = quick_options();
    options.model = Kind::kind;
    options.epochs = 2;
    options.normalize_features = true;
    Dataset data = two_rings();
    if (nn::takes_edge_weights(Kind::kind)) {
      data.edge_weights = at::rand({data.num_edges()}) + 0.5;
    }
    const TrainedModel trained = train(data, options).trained;
    const at::Tensor expected = trained.logits(data);
    const Predictor predictor(trained, data);
    EXPECT_TRUE(test::near(predictor.predict(), expected, bound_of(expected)));
    const at::Tensor nodes = at::tensor({39, 0, 7, 0});
    EXPECT_TRUE(same_bits(predictor.predict(nodes), predictor.predict().index_select(0, nodes)));
  });
}

TEST(Predictor, returns_numbers_in_the_units_of_the_labels) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kSage;
  const Dataset data = test::rings_of_numbers();
  const TrainedModel trained = train(data, options).trained;
  const at::Tensor expected = trained.logits(data);
  EXPECT_TRUE(test::near(Predictor(trained, data).predict(), expected, bound_of(expected)));
}

TEST(Predictor, agrees_with_the_trained_model_on_links) {
  for (const nn::Decoder decoder : test::kDecoders) {
    TrainOptions options = test::link_options(decoder);
    options.epochs = 2;
    const Dataset data = test::links_within_groups(/*with_types=*/true);
    const TrainedModel trained = train(data, options).trained;
    const at::Tensor expected = trained.logits(data);
    const Predictor predictor(trained, data, {.resident = true});
    EXPECT_TRUE(test::near(predictor.predict_edges(data.src, data.dst, data.edge_types), expected,
                           bound_of(expected)));
  }
}

TEST(Predictor, agrees_with_the_trained_model_on_edges) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kSage;
  options.epochs = 2;
  const Dataset data = test::edges_with_labels(LabelKind::kClass);
  const TrainedModel trained = train(data, options).trained;
  const at::Tensor expected = trained.logits(data);
  const Predictor predictor(trained, data);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {  // of zeros and ones
    const at::Tensor rows = data.edge_features.to(type);
    const at::Tensor logits = predictor.predict_edges(data.src, data.dst, rows);
    EXPECT_TRUE(test::near(logits, expected, bound_of(expected)));
  }
}

TEST(Predictor, returns_the_neighbours_of_the_present_graph) {
  const test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
  test::EdgeGraph graph{.num_nodes = 6, .features = at::randn({6, test::kInputs})};
  for (const auto& [src, dst] : {std::pair{4, 2}, {0, 2}, {2, 2}, {4, 2}, {2, 5}}) {
    graph.edges.push_back({src, dst, {}});
  }
  Predictor predictor = graph.predictor(test::random_model(one.options), {});
  EXPECT_TRUE(predictor.in_neighbors(2).equal(at::tensor({0, 2, 4, 4})));
  EXPECT_TRUE(predictor.in_neighbors(5).equal(at::tensor({2})));
  EXPECT_EQ(predictor.in_neighbors(4).numel(), 0);
  predictor.add_edges(at::tensor({3}), at::tensor({2}));
  predictor.remove_edges(at::tensor({4}), at::tensor({2}));
  EXPECT_TRUE(predictor.in_neighbors(2).equal(at::tensor({0, 2, 3, 4})));
  for (const std::int64_t node : {-1, 6}) {
    EXPECT_THROWS(InvalidArgument, fragments("in_neighbors", std::to_string(node)),
                  predictor.in_neighbors(node));
  }
}

TEST(Predictor, of_blocks_and_graphs_is_the_model) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kSage;
  options.epochs = 2;
  const Dataset data = two_rings();
  const TrainedModel trained = train(data, options).trained;
  const Predictor predictor(trained);
  const at::Tensor expected = trained.logits(data);
  const Topology graph = topology_of(data);
  EXPECT_TRUE(test::near(predictor.predict(graph, data.features), expected, bound_of(expected)));
  const BlockSampler sampler(graph, {.fanouts = {kAllNeighbors, kAllNeighbors}});
  const at::Tensor seeds = at::tensor({8, 3});
  const Blocks blocks = sampler.sample(seeds);
  const at::Tensor x = data.features.index_select(0, blocks.front().src_nodes());
  EXPECT_TRUE(same_bits(predictor.predict(blocks, x),
                        predictor.predict(graph, data.features).index_select(0, seeds)));
  EXPECT_THROWS(InvalidArgument, "expected a graph", predictor.predict(seeds));
}

TEST(Predictor, keeps_the_weights_and_features_that_it_was_made_from) {
  const test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
  test::Draw draw(1);
  const test::EdgeGraph graph = test::random_edge_graph(draw, 20, 60, 0);
  nn::Model model = test::random_model(one.options);
  const Predictor predictor = graph.predictor(model, {});
  const at::Tensor before = predictor.predict();
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.zero_();
  at::Tensor(graph.features).zero_();
  EXPECT_TRUE(same_bits(predictor.predict(), before));
  EXPECT_FALSE(before.requires_grad());
}

TEST(Predictor, leaves_the_random_numbers_of_other_threads) {
  std::vector<test::ModelCase> cases = test::model_cases_with(nn::Normalization::kBatch);
  cases.push_back(test::model_case(
      "links",
      {.kind = nn::ModelKind::kSage, .target = TaskTarget::kLink, .decoder = nn::Decoder::kMlp}));
  for (const test::ModelCase& one : cases) {
    SCOPED_TRACE(one.name);
    test::Draw draw(1);
    const test::EdgeGraph graph = test::random_edge_graph(draw, 20, 60, one.row_width);
    const nn::Model model = test::random_model(one.options);
    const auto draw_much = [] {
      std::vector<at::Tensor> draws;
      for (int i = 0; i < 5000; ++i) draws.push_back(at::rand({3}));
      return at::stack(draws);
    };
    torch::manual_seed(3);
    const at::Tensor expected = draw_much();
    torch::manual_seed(3);
    std::atomic<bool> is_drawing = true;
    at::Tensor drawn;
    std::thread drawer([&] {
      drawn = draw_much();
      is_drawing = false;
    });
    do {
      const Predictor predictor = graph.predictor(model, {});
    } while (is_drawing);
    drawer.join();
    EXPECT_TRUE(same_bits(drawn, expected));
  }
}

TEST(Predictor, leaves_the_threads_of_the_caller) {
  const test::ModelCase one = test::model_case("gat", {.kind = nn::ModelKind::kGat});
  test::Draw draw(1);
  const Predictor predictor =
      test::random_edge_graph(draw, 20, 60, 0).predictor(test::random_model(one.options), {});
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  predictor.predict();
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

TEST(Predictor, stores_16_bits_in_16_bits) {
  const test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
  test::Draw draw(1);
  const test::EdgeGraph graph = test::random_edge_graph(draw, 3000, 60, 0);
  const nn::Model model = test::random_model(one.options);
  const auto bytes = [&](amp::Precision precision) {
    return graph.predictor(model, {.resident = true, .precision = precision}).memory_bytes();
  };
  const std::int64_t of_rows = 3000 * (test::kInputs + 2 * test::kHidden);
  EXPECT_GE(bytes(amp::Precision::kFloat32) - bytes(amp::Precision::kBFloat16), 2 * of_rows);
}

TEST(Predictor, keeps_the_rows_of_hidden_layers_alone) {
  test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
  one.options.out_features = 1000;
  test::Draw draw(1);
  const test::EdgeGraph graph = test::random_edge_graph(draw, 300, 60, 0);
  const auto bytes_of_kept = [&](std::int64_t num_layers) {
    one.options.num_layers = num_layers;
    const nn::Model model = test::random_model(one.options);
    return graph.predictor(model, {.resident = true}).memory_bytes() -
           graph.predictor(model, {}).memory_bytes();
  };
  EXPECT_EQ(bytes_of_kept(1), 0);
  const auto of_hidden = static_cast<std::int64_t>(300 * test::kHidden * sizeof(float));
  EXPECT_GE(bytes_of_kept(2), of_hidden);
  EXPECT_GE(bytes_of_kept(3), 2 * of_hidden);
  EXPECT_LT(bytes_of_kept(3), 3 * of_hidden);  // with scratch of updates
}

TEST(Predictor, refuses_bad_updates_and_changes_nothing) {
  const test::ModelCase one = test::model_case("gcn", {.kind = nn::ModelKind::kGcn}, 1);
  test::Draw draw(2);
  test::EdgeGraph graph = test::random_edge_graph(draw, 20, 60, 1);
  graph.edges.push_back({17, 18, {0.5F}});
  Predictor predictor = graph.predictor(test::random_model(one.options), {.resident = true});
  const at::Tensor before = predictor.predict();
  const at::Tensor a = at::tensor({1, 2}), b = at::tensor({2, 20}),
                   rows = at::randn({1, test::kInputs});
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "dst", "20"),
                predictor.add_edges(a, b, at::ones({2})));
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "2", "1"),
                predictor.add_edges(a, a.narrow(0, 0, 1), at::ones({2})));
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "rows", "[2]"), predictor.add_edges(a, a));
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "above 0"),
                predictor.add_edges(a, a, at::tensor({1.F, 0.F})));
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "finite"),
                predictor.add_edges(a, a, at::full({2}, NAN)));
  EXPECT_THROWS(InvalidArgument, fragments("add_edges", "integer vector"),
                predictor.add_edges(at::ones({2}), a, at::ones({2})));
  const at::Tensor often = at::full({100}, 17);
  EXPECT_THROWS(InvalidArgument, fragments("remove_edges", "17 to 18"),
                predictor.remove_edges(often, at::full({100}, 18)));
  EXPECT_THROWS(InvalidArgument, fragments("set_features", "more than once", "3"),
                predictor.set_features(at::tensor({3, 3}), at::randn({2, test::kInputs})));
  EXPECT_THROWS(InvalidArgument, fragments("set_features", "19"),
                predictor.set_features(at::tensor({3}), at::randn({1, 7})));
  EXPECT_THROWS(InvalidArgument, fragments("set_features", "row for each of 2"),
                predictor.set_features(at::tensor({3, 4}), rows));
  EXPECT_THROWS(InvalidArgument, fragments("set_features", "finite"),
                predictor.set_features(at::tensor({3}), rows / 0));
  EXPECT_THROWS(InvalidArgument, fragments("add_nodes", "19"), predictor.add_nodes(at::randn({7})));
  EXPECT_TRUE(same_bits(predictor.predict(), before));
  EXPECT_EQ(predictor.num_edges(), 61);
}

TEST(Predictor, refuses_bad_questions) {
  const test::ModelCase one = test::model_case("sage", {.kind = nn::ModelKind::kSage});
  test::Draw draw(2);
  const Predictor predictor =
      test::random_edge_graph(draw, 20, 60, 0).predictor(test::random_model(one.options), {});
  EXPECT_THROWS(InvalidArgument, fragments("predict", "20"), predictor.predict(at::tensor({20})));
  EXPECT_THROWS(InvalidArgument, fragments("predict", "-1"), predictor.predict(at::tensor({-1})));
  EXPECT_THROWS(InvalidArgument, fragments("3 fanouts", "2"),
                predictor.predict(at::tensor({1}), {.fanouts = {1, 2}}));
  EXPECT_THROWS(InvalidArgument, fragments("fanout", "-2"),
                predictor.predict(at::tensor({1}), {.fanouts = {1, 2, -2}}));
  EXPECT_THROWS(InvalidArgument, fragments("predict_edges", "edge", "node"),
                predictor.predict_edges(at::tensor({1}), at::tensor({1})));
  EXPECT_EQ(predictor.predict(at::empty({0}, at::kLong)).sizes(),
            (std::vector<std::int64_t>{0, test::kOutputs}));
}

TEST(Predictor, refuses_models_that_it_cannot_follow) {
  test::Draw draw(2);
  const test::EdgeGraph graph = test::random_edge_graph(draw, 20, 60, 0);
  const auto predictor_of = [&](nn::ModelOptions options) {
    const test::ModelCase one = test::model_case("refused", std::move(options));
    return graph.predictor(test::random_model(one.options), {});
  };
  EXPECT_THROWS(InvalidArgument, "sgc", predictor_of({.kind = nn::ModelKind::kSgc}));
  EXPECT_THROWS(InvalidArgument, "lstm",
                predictor_of({.kind = nn::ModelKind::kSage, .aggregator = nn::Aggregator::kLstm}));
  EXPECT_THROWS(InvalidArgument, "edge_rows", predictor_of({.kind = nn::ModelKind::kGine}));
  EXPECT_THROWS(InvalidArgument, "expected a model", graph.predictor(nn::Model(nullptr), {}));
}

}  // namespace
}  // namespace mezzo
