#include <ATen/Parallel.h>

#include "mezzo/amp/precision.h"
#include "mezzo/runtime/batch_invariant.h"

#include "predict/cases.h"
#include "support/tolerance.h"

namespace mezzo {
namespace {

using test::same_bits;

/// Calls check(case, precision) for every model in every precision.
template <class Check>
void for_each_case(const Check& check) {
  for (const nn::Normalization normalization :
       {nn::Normalization::kNone, nn::Normalization::kBatch, nn::Normalization::kLayer}) {
    for (const test::ModelCase& one : normalization == nn::Normalization::kNone
                                          ? test::model_cases()
                                          : test::model_cases_with(normalization)) {
      for (const amp::Precision precision : test::kPredictorPrecisions) {
        SCOPED_TRACE(one.name + ", " + std::string(amp::to_string(precision)) + ", norm " +
                     std::string(name_of(nn::Normalizations{}, normalization)));
        check(one, precision);
      }
    }
  }
}

TEST(PredictorBits, do_not_depend_on_other_nodes_or_on_kept_rows) {
  for_each_case([](const test::ModelCase& one, amp::Precision precision) {
    test::Draw draw(1);
    const test::EdgeGraph graph = test::random_edge_graph(draw, 40, 160, one.row_width);
    const nn::Model model = test::random_model(one.options);
    const Predictor predictor = graph.predictor(model, {.precision = precision});
    const at::Tensor all = predictor.predict();
    ASSERT_EQ(all.sizes(), (std::vector<std::int64_t>{40, test::kOutputs}));
    ASSERT_TRUE(all.isfinite().all().item<bool>());
    const Predictor resident = graph.predictor(model, {.resident = true, .precision = precision});
    EXPECT_TRUE(same_bits(resident.predict(), all));
    for (std::int64_t count : {1, 1, 1, 1, 2, 3, 7, 16, 33}) {
      at::Tensor nodes = at::empty({count}, at::kLong);
      for (std::int64_t i = 0; i < count; ++i) nodes[i] = draw.below(40);
      const at::Tensor expected = all.index_select(0, nodes);
      EXPECT_TRUE(same_bits(predictor.predict(nodes), expected)) << nodes;
      EXPECT_TRUE(same_bits(resident.predict(nodes.to(at::kInt)), expected)) << nodes;
    }
  });
}

TEST(PredictorBits, do_not_depend_on_the_number_of_threads) {
  for (const test::ModelCase& one : test::model_cases_with(nn::Normalization::kLayer)) {
    SCOPED_TRACE(one.name);
    test::Draw draw(2);
    // Enough elements that libtorch would split them.
    const test::EdgeGraph graph = test::random_edge_graph(draw, 7000, 20000, one.row_width);
    const nn::Model model = test::random_model(one.options);
    const int before = at::get_num_threads();
    std::vector<at::Tensor> results;
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      results.push_back(graph.predictor(model, {.resident = true}).predict());
      EXPECT_EQ(at::get_num_threads(), threads);
    }
    at::set_num_threads(before);
    EXPECT_TRUE(same_bits(results[1], results[0]));
    EXPECT_TRUE(same_bits(results[2], results[0]));
  }
}

TEST(PredictorBits, are_those_of_the_model_on_the_sorted_graph) {
  for (const test::ModelCase& one : test::model_cases()) {
    // The activation of gat is computed in whole vectors; the weights of gcn become factors.
    const bool has_factors = one.options.kind == nn::ModelKind::kGcn && one.row_width > 0;
    if (one.options.kind == nn::ModelKind::kGat || has_factors) continue;
    for (const amp::Precision precision : test::kPredictorPrecisions) {
      SCOPED_TRACE(one.name + ", " + std::string(amp::to_string(precision)));
      test::Draw draw(3);
      test::EdgeGraph graph = test::random_edge_graph(draw, 50, 150, one.row_width);
      for (std::int64_t node = 0; node < 50; ++node) {  // gcn needs in-edges
        graph.edges.push_back({node, node, test::random_row(draw, one.row_width)});
      }
      nn::Model model = test::random_model(one.options);
      const at::Tensor got = graph.predictor(model, {.precision = precision}).predict();

      std::sort(graph.edges.begin(), graph.edges.end(), [](const auto& a, const auto& b) {
        return a.src != b.src ? a.src < b.src : test::row_before(a.row, b.row);
      });
      const Topology plain = graph.topology();
      const Topology sorted = plain.with_parent_degrees(plain.in_degrees(), plain.out_degrees());
      const at::NoGradGuard no_grad;
      const BatchInvariant invariant;
      const amp::PrecisionScope scope(precision, at::kCPU, {.cpu_policy = amp::CpuPolicy::kOff});
      const at::Tensor expected = model->forward({sorted, graph.rows()}, graph.features);
      EXPECT_TRUE(same_bits(got, expected.to(at::kFloat)));
    }
  }
}

TEST(PredictorBits, of_graphs_do_not_depend_on_other_graphs) {
  for (const nn::ModelKind kind : {nn::ModelKind::kGin, nn::ModelKind::kGat}) {
    for (const ReduceOp readout : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      for (const amp::Precision precision : test::kPredictorPrecisions) {
        SCOPED_TRACE(std::string(amp::to_string(precision)));
        test::ModelCase one = test::model_case("graphs", {.kind = kind});
        one.options.target = TaskTarget::kGraph;
        one.options.readout = readout;
        TrainedModel trained;
        trained.model = test::random_model(one.options);
        const Predictor predictor(trained, {.precision = precision});
        test::Draw draw(4);
        std::vector<test::EdgeGraph> graphs;
        test::EdgeGraph joined;
        std::vector<at::Tensor> features;
        std::vector<std::int64_t> sizes;
        for (std::int64_t i = 0; i < 10; ++i) {
          graphs.push_back(test::random_edge_graph(draw, 3 + 5 * i, 10 * i, 0));
          for (std::int64_t node = 0; node < graphs.back().num_nodes; ++node) {
            graphs.back().edges.push_back({node, node, {}});
          }
          for (const auto& edge : graphs.back().edges) {
            joined.edges.push_back({joined.num_nodes + edge.src, joined.num_nodes + edge.dst, {}});
          }
          joined.num_nodes += graphs.back().num_nodes;
          features.push_back(graphs.back().features);
          sizes.push_back(graphs.back().num_nodes);
        }
        const auto outputs = [&](const test::EdgeGraph& graph, const at::Tensor& x,
                                 const std::vector<std::int64_t>& graph_sizes) {
          nn::HeadTargets targets;
          targets.graph_sizes = at::tensor(graph_sizes);
          const Topology topology = graph.topology();
          return predictor.predict(nn::ModelInput(topology).with_targets(targets), x);
        };
        const at::Tensor all = outputs(joined, at::cat(features), sizes);
        for (std::size_t i = 0; i < graphs.size(); ++i) {
          const auto row = static_cast<std::int64_t>(i);
          EXPECT_TRUE(
              same_bits(outputs(graphs[i], features[i], {sizes[i]}), all.narrow(0, row, 1)));
        }
      }
    }
  }
}

TEST(PredictorBits, of_pairs_do_not_depend_on_other_pairs) {
  const auto with_decoder = [](nn::Decoder decoder) {
    return nn::ModelOptions{.kind = nn::ModelKind::kSage,
                            .target = TaskTarget::kLink,
                            .decoder = decoder,
                            .edge_types = 2};
  };
  std::vector<test::ModelCase> cases = {
      test::model_case("edge", {.kind = nn::ModelKind::kGat,
                                .target = TaskTarget::kEdge,
                                .edge_features = test::kEdgeFeatures})};
  for (const nn::Decoder decoder :
       {nn::Decoder::kMlp, nn::Decoder::kDot, nn::Decoder::kDistMult, nn::Decoder::kComplEx}) {
    cases.push_back(test::model_case("link", with_decoder(decoder)));
    cases.back().options.hidden_features = 14;
    cases.back().options.out_features = 1;
  }
  for (const test::ModelCase& one : cases) {
    for (const amp::Precision precision : test::kPredictorPrecisions) {
      SCOPED_TRACE(one.name + ", " + std::string(amp::to_string(precision)));
      test::Draw draw(5);
      const test::EdgeGraph graph = test::random_edge_graph(draw, 30, 90, 0);
      const nn::Model model = test::random_model(one.options);
      const Predictor predictor = graph.predictor(model, {.precision = precision});
      const Predictor resident = graph.predictor(model, {.resident = true, .precision = precision});
      const at::Tensor src = at::randint(30, {25}, at::kLong),
                       dst = at::randint(30, {25}, at::kLong);
      const bool of_edges = one.options.target == TaskTarget::kEdge;
      const at::Tensor columns =
          of_edges ? at::randn({25, test::kEdgeFeatures}) : at::randint(2, {25}, at::kLong);
      const at::Tensor all = predictor.predict_edges(src, dst, columns);
      EXPECT_TRUE(same_bits(resident.predict_edges(src, dst, columns), all));
      for (std::int64_t i = 0; i < 25; ++i) {
        const at::Tensor alone = resident.predict_edges(src.narrow(0, i, 1), dst.narrow(0, i, 1),
                                                        columns.narrow(0, i, 1));
        EXPECT_TRUE(same_bits(alone, all.narrow(0, i, 1)));
      }
    }
  }
}

TEST(PredictorBits, of_a_sample_depend_on_the_seed_alone) {
  test::Draw draw(6);
  const test::EdgeGraph graph = test::random_edge_graph(draw, 60, 900, 0);
  for (const nn::ModelKind kind :
       {nn::ModelKind::kGcn, nn::ModelKind::kSage, nn::ModelKind::kGat}) {
    const test::ModelCase one = test::model_case("sampled", {.kind = kind});
    const Predictor predictor = graph.predictor(test::random_model(one.options), {});
    const at::Tensor nodes = at::arange(60);
    const SampledNeighbors sampled{.fanouts = {2, 3, 4}, .seed = 7};
    const at::Tensor all = predictor.predict(nodes, sampled);
    for (const std::int64_t node : {0, 3, 59}) {
      const at::Tensor alone = predictor.predict(at::tensor({node}), sampled);
      EXPECT_TRUE(same_bits(alone, all.narrow(0, node, 1)));
    }
    EXPECT_FALSE(at::equal(predictor.predict(nodes, {.fanouts = {2, 3, 4}, .seed = 8}), all));
    EXPECT_TRUE(
        same_bits(predictor.predict(nodes, {.fanouts = {-1, 1000, -1}}), predictor.predict(nodes)));
  }
}

TEST(PredictorBits, a_sample_draws_every_neighbour_equally_often) {
  // One mean layer over neighbours that are unit vectors: the output counts the drawn ones.
  constexpr std::int64_t kNeighbors = 10, kFanout = 3, kSeeds = 3000;
  nn::Model model(nn::ModelOptions{.kind = nn::ModelKind::kSage,
                                   .in_features = kNeighbors,
                                   .out_features = kNeighbors,
                                   .num_layers = 1});
  const at::NoGradGuard no_grad;
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.key().ends_with("fc_neigh.weight")) {
      parameter.value().copy_(at::eye(kNeighbors));
    } else {
      parameter.value().zero_();
    }
  }
  const Topology star = Topology::from_coo(
      at::arange(kNeighbors), at::full({kNeighbors}, kNeighbors), kNeighbors + 1, kNeighbors + 1);
  const Predictor predictor(model, star, at::eye(kNeighbors + 1, kNeighbors));
  at::Tensor counts = at::zeros({kNeighbors});
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const at::Tensor drawn =
        predictor.predict(at::tensor({kNeighbors}), {.fanouts = {kFanout}, .seed = seed}).gt(0);
    ASSERT_EQ(drawn.sum().item<std::int64_t>(), kFanout);
    counts += drawn[0];
  }
  // Six standard deviations of a binomial number.
  const double share = static_cast<double>(kFanout) / kNeighbors;
  const double bound = 6 * std::sqrt(kSeeds * share * (1 - share));
  EXPECT_LE((counts - kSeeds * share).abs().max().item<double>(), bound) << counts;
}

}  // namespace
}  // namespace mezzo
