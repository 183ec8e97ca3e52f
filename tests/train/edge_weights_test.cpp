#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

/// Training on data with edge weights.
namespace mezzo {
namespace {

using nn::ModelKind;

constexpr ModelKind kWeighted[] = {ModelKind::kGcn, ModelKind::kSage};

/// two_rings() with parallel edges, weights between 0.25 and 4, and a self loop of weight 7.
Dataset weighted_rings() {
  Dataset data = test::two_rings();
  data.edge_features.reset();
  const at::Tensor extra = at::tensor({3, 5}, at::kLong);
  data.src = at::cat({data.src, extra, extra.slice(0, 0, 1)});
  data.dst = at::cat({data.dst, at::tensor({5, 9}, at::kLong), extra.slice(0, 0, 1)});
  const at::Tensor edge = at::arange(data.num_edges(), at::kFloat);
  data.edge_weights = at::pow(2, at::remainder(edge * 7, 17) / 4 - 2).to(at::kFloat);
  data.edge_weights[data.num_edges() - 1] = 7;
  data.validate();
  return data;
}

TrainOptions one_layer(ModelKind model) {
  TrainOptions options = test::quick_options();
  options.model = model;
  options.layers = 1;
  options.hidden.reset();
  options.dropout = 0;
  return options;
}

/// Sums over the edges: float64 [N, N], row = destination.
at::Tensor matrix_of(const Dataset& data, const at::Tensor& numbers) {
  const at::Tensor items = at::zeros({data.num_nodes * data.num_nodes}, at::kDouble);
  items.index_add_(0, data.dst * data.num_nodes + data.src, numbers.to(at::kDouble));
  return items.view({data.num_nodes, data.num_nodes});
}

TEST(EdgeWeights, gcn_divides_by_the_roots_of_their_sums_with_self_loops_of_weight_1) {
  const Dataset data = weighted_rings();
  const TrainOptions options = one_layer(ModelKind::kGcn);
  const Problem problem = make_problem(data, options);
  nn::Model model(model_options(options, problem));
  const at::Tensor got = evaluate_model(model, problem, options).logits;

  at::Tensor matrix = matrix_of(data, data.edge_weights);
  matrix.fill_diagonal_(1);
  matrix = matrix / (matrix.sum(1, /*keepdim=*/true) * matrix.sum(0, /*keepdim=*/true)).sqrt();
  const auto parameters = model->named_parameters();
  const at::Tensor x = data.features.to(at::kDouble);
  const at::Tensor weight = parameters["layer0.weight"].to(at::kDouble);
  const at::Tensor expected = matrix.mm(x.mm(weight)) + parameters["layer0.bias"].to(at::kDouble);
  const at::Tensor size = matrix.mm(x.abs().mm(weight.abs()));
  EXPECT_TRUE(test::near(got, expected, test::sum_bound(size, 64, at::kFloat)));
}

TEST(EdgeWeights, sage_multiplies_the_rows_of_a_mean_by_them) {
  const Dataset data = weighted_rings();
  const TrainOptions options = one_layer(ModelKind::kSage);
  const Problem problem = make_problem(data, options);
  nn::Model model(model_options(options, problem));
  const at::Tensor got = evaluate_model(model, problem, options).logits;

  const at::Tensor counts = matrix_of(data, at::ones_like(data.edge_weights)).sum(1, true);
  const at::Tensor mean = matrix_of(data, data.edge_weights) / counts.clamp_min(1);
  const auto parameters = model->named_parameters();
  const auto parameter = [&](const char* name) { return parameters[name].to(at::kDouble); };
  const at::Tensor x = data.features.to(at::kDouble);
  const at::Tensor own = parameter("layer0.fc_self.weight").t(),
                   received = parameter("layer0.fc_neigh.weight").t();
  const at::Tensor bias = parameter("layer0.fc_self.bias");
  const at::Tensor size = mean.mm(x.abs()).mm(received.abs()) + x.abs().mm(own.abs()) + bias.abs();
  EXPECT_TRUE(test::near(got, mean.mm(x).mm(received) + x.mm(own) + bias,
                         test::sum_bound(size, 64, at::kFloat)));
}

TEST(EdgeWeights, of_one_change_nothing) {
  Dataset data = weighted_rings();
  for (const ModelKind kind : kWeighted) {
    const TrainOptions options = one_layer(kind);
    data.edge_weights = at::Tensor();
    const Problem plain = make_problem(data, options);
    data.edge_weights = at::ones({data.num_edges()});
    const Problem weighted = make_problem(data, options);
    ASSERT_TRUE(weighted.edge_rows.defined());
    EXPECT_FALSE(plain.edge_rows.defined());
    EXPECT_TRUE(at::equal(weighted.edge_rows, at::ones_like(weighted.edge_rows)));
  }
}

TEST(EdgeWeights, batches_of_all_neighbours_are_the_full_graph) {
  const Dataset data = weighted_rings();
  for (const ModelKind kind : kWeighted) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, kind));
    TrainOptions options = test::quick_options();
    options.model = kind;
    options.dropout = 0;
    options.optimizer = OptimizerKind::kSgd;
    options.learning_rate = 0.05;
    const TrainResult full = train(data, options);
    options.sampling = SamplingOptions{.batch_size = 100, .fanouts = {-1, -1}};
    options.sampling->inference_batch_size = 7;  // parts of the graph
    const TrainResult sampled = train(data, options);
    const auto column = [](const std::vector<double>& numbers) {
      return at::tensor(at::ArrayRef<double>(numbers), at::kDouble);
    };
    const at::Tensor losses = column(full.losses);
    EXPECT_TRUE(test::near(column(sampled.losses).to(at::kFloat), losses,
                           test::sum_bound(losses.abs(), 2000, at::kFloat)));
    EXPECT_EQ(sampled.last.test, full.last.test);
    EXPECT_LT(full.losses.back(), full.losses.front());

    Dataset unweighted = data;
    unweighted.edge_weights = at::Tensor();
    EXPECT_NE(train(unweighted, options).losses, sampled.losses);
  }
}

TEST(EdgeWeights, training_and_predictions_by_sampled_neighbours_use_them) {
  const Dataset data = weighted_rings();
  for (const ModelKind kind : kWeighted) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, kind));
    TrainOptions options = test::sampled_options(SamplerKind::kNeighbor);
    options.model = kind;
    options.epochs = 30;
    options.learning_rate = 0.05;
    options.dropout = 0.1;
    const TrainResult run = train(data, options);
    EXPECT_EQ(run.best.val, 1);
    const at::Tensor nodes = at::tensor({7, 0, 39, 7}, at::kLong);
    const at::Tensor all = run.trained.logits(data);
    const at::Tensor expected = all.index_select(0, nodes).to(at::kDouble);
    EXPECT_TRUE(test::near(run.trained.logits(data, nodes), expected,
                           test::sum_bound(at::full_like(expected, all.abs().max().item<double>()),
                                           1000, at::kFloat)));
  }
}

TEST(EdgeWeights, models_and_samplers_without_them_refuse_the_data) {
  Dataset data = weighted_rings();
  const auto refused = [&](const TrainOptions& options, const std::string& name) {
    return test::throws<InvalidArgument>(
        [&] { train(data, options); },
        {"dataset: made in the test has edge weights", name, "--weight", "edge_weights.npy"});
  };
  for (const ModelKind kind : {ModelKind::kGat, ModelKind::kGin, ModelKind::kSgc}) {
    EXPECT_TRUE(refused(one_layer(kind), std::string(name_of(nn::ModelKinds{}, kind))));
  }
  for (const SamplerKind sampler :
       {SamplerKind::kLabor, SamplerKind::kLayer, SamplerKind::kCluster, SamplerKind::kSaintNode}) {
    EXPECT_THROWS(InvalidArgument, "need the sampler neighbor",
                  train(data, test::sampled_options(sampler)));
  }
  TrainOptions controlled = test::sampled_options(SamplerKind::kNeighbor);
  controlled.sampling->control_variates = true;
  EXPECT_THROWS(InvalidArgument, "without control-variates", train(data, controlled));
  EXPECT_NO_THROW(train(data, one_layer(ModelKind::kMlp))) << "it reads no edges";

  data.edge_weights[0] = 0;
  EXPECT_TRUE(refused(one_layer(ModelKind::kGcn), "0 or less"));
  EXPECT_NO_THROW(train(data, one_layer(ModelKind::kSage)));
}

}  // namespace
}  // namespace mezzo
