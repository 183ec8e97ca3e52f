#include "mezzo/train/options/recipe.h"

#include <cstdint>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/core/type_list.h"
#include "mezzo/train/trainer.h"

#include "train/link_data.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using nn::ModelKind;
using nn::Normalization;

/// What decides a recipe.
struct Shape {
  std::int64_t nodes = 1000, edges_per_node = 4, features = 100, ones = 2, training = 20;
};

/// A graph of that shape, with equal degrees, two classes and 100 nodes for validation.
Dataset dataset_of(const Shape& shape) {
  const std::int64_t n = shape.nodes;
  const at::Tensor node = at::arange(n);
  Dataset data;
  data.name = "shape";
  data.num_nodes = n;
  data.num_classes = 2;
  data.dst = node.repeat_interleave(shape.edges_per_node);
  data.src = (data.dst + at::arange(1, shape.edges_per_node + 1).repeat({n})).remainder(n);
  data.features = at::zeros({n, shape.features});
  data.features.narrow(1, 0, shape.ones).fill_(1);
  data.edge_features = at::ones({data.num_edges(), 1});
  data.labels = node.remainder(2);
  data.train_masks = node.lt(shape.training).unsqueeze(1);
  data.val_masks = node.ge(n - 200).logical_and(node.lt(n - 100)).unsqueeze(1);
  data.test_masks = node.ge(n - 100).unsqueeze(1);
  data.validate();
  return data;
}

TrainOptions recommended(const Shape& shape, ModelKind model = ModelKind::kGcn) {
  TrainOptions options;
  options.model = model;
  return recommended_options(dataset_of(shape), options);
}

TEST(Recipe, facts_are_counted) {
  const RecipeFacts facts = recipe_facts(dataset_of({}), 0);
  EXPECT_DOUBLE_EQ(facts.train_share, 0.02);
  EXPECT_DOUBLE_EQ(facts.mean_degree, 4);
  EXPECT_DOUBLE_EQ(facts.feature_density, 0.02);
  EXPECT_EQ(facts.num_features, 100);
  Dataset sparse = dataset_of({});
  sparse.features = sparse.features.to_sparse_csr();
  EXPECT_DOUBLE_EQ(recipe_facts(sparse, 0).feature_density, 0.02);
}

TEST(Recipe, facts_of_a_part_leave_out_its_halo) {
  Dataset part = dataset_of({});
  part.part.emplace();
  part.part->num_nodes = 4000;
  part.part->num_edges = 40000;
  part.part->own_mask = at::arange(1000).lt(250);
  const RecipeFacts facts = recipe_facts(part, 0);
  EXPECT_DOUBLE_EQ(facts.train_share, 0.08);
  EXPECT_DOUBLE_EQ(facts.mean_degree, 10);
}

TEST(Recipe, few_labels_words_and_few_neighbours_are_normalised_without_a_norm) {
  const TrainOptions options = recommended({});
  EXPECT_TRUE(options.normalize_features);
  EXPECT_EQ(options.normalization, Normalization::kNone);
  EXPECT_FALSE(options.skip);
  EXPECT_EQ(options.layers, 2);
  EXPECT_EQ(options.patience, 100);
}

TEST(Recipe, few_labels_with_many_neighbours_or_dense_features_have_a_layer_norm) {
  for (const Shape& shape : {Shape{.edges_per_node = 30}, Shape{.ones = 50}}) {
    const TrainOptions options = recommended(shape);
    EXPECT_FALSE(options.normalize_features);
    EXPECT_EQ(options.normalization, Normalization::kLayer);
    EXPECT_FALSE(options.skip);
  }
}

TEST(Recipe, many_labels_have_residual_connections_and_a_wider_model) {
  const TrainOptions options = recommended({.training = 500});
  EXPECT_TRUE(options.skip);
  EXPECT_EQ(options.hidden, 128);
  EXPECT_LT(options.weight_decay, TrainOptions().weight_decay);
}

TEST(Recipe, few_features_need_a_deeper_model) {
  const TrainOptions options = recommended({.features = 7, .training = 500});
  EXPECT_EQ(options.layers, 8);
  EXPECT_TRUE(options.skip);
  EXPECT_EQ(options.normalization, Normalization::kBatch);
}

/// The data as a set of graphs of ten nodes each, which have the labels.
Dataset graphs_of(const Shape& shape) {
  Dataset data = dataset_of(shape);
  data.src = data.dst.div(10, "floor") * 10 + data.src.remainder(10);
  data.graph_offsets = at::arange(0, data.num_nodes + 1, 10);
  data.target = TaskTarget::kGraph;
  for (at::Tensor* column : {&data.labels, &data.train_masks, &data.val_masks, &data.test_masks}) {
    *column = column->slice(0, 0, data.num_nodes / 10);
  }
  data.labels = at::arange(data.num_graphs()).remainder(2);
  data.val_masks = at::arange(data.num_graphs()).ge(80).unsqueeze(1);
  data.validate();
  return data;
}

TEST(Recipe, labels_of_graphs_have_gin_or_gine_of_four_layers_whatever_the_features) {
  for (const Shape& shape : {Shape{}, Shape{.features = 7}}) {
    Dataset data = graphs_of(shape);
    EXPECT_EQ(recommended_model(data), ModelKind::kGine);
    TrainOptions options;
    options.model = ModelKind::kGine;
    options = recommended_options(data, options);
    EXPECT_EQ(options.layers, 4);
    EXPECT_TRUE(options.skip);
    EXPECT_EQ(options.normalization, Normalization::kBatch);
    options.epochs = 1;
    EXPECT_NO_THROW(train(data, options));
    data.edge_features.reset();
    EXPECT_EQ(recommended_model(data), ModelKind::kGin);
    data.edge_weights = at::ones({data.num_edges()});
    EXPECT_EQ(recommended_model(data), ModelKind::kGcn);
  }
  EXPECT_EQ(recommended_model(dataset_of({})), ModelKind::kGcn);
}

TEST(Recipe, the_width_of_gat_is_shared_by_its_heads) {
  const TrainOptions options = recommended({.training = 500}, ModelKind::kGat);
  EXPECT_EQ(*options.hidden * *options.heads, 128);
}

TEST(Recipe, other_heads_of_gat_keep_its_width) {
  const auto hidden_of = [](std::optional<std::int64_t> heads) {
    TrainOptions options = recommended({.training = 500}, ModelKind::kGat);
    set_heads(options, heads);
    EXPECT_EQ(options.heads, heads.value_or(0) < 1 ? 8 : heads);
    return options.hidden;
  };
  EXPECT_EQ(hidden_of(4), 32);
  EXPECT_EQ(hidden_of(3), 42);
  EXPECT_EQ(hidden_of(1000), 1);
  EXPECT_EQ(hidden_of(0), 16);
  EXPECT_EQ(hidden_of(std::nullopt), 16);
  TrainOptions gcn = recommended({.training = 500});
  set_heads(gcn, 4);
  EXPECT_EQ(gcn.hidden, 128);
  EXPECT_FALSE(gcn.heads);
}

TEST(Recipe, mini_batches_have_a_layer_for_each_fanout) {
  TrainOptions options;
  options.sampling = SamplingOptions{.batch_size = 4, .fanouts = {5, 5, 5}};
  EXPECT_EQ(recommended_options(dataset_of({}), options).layers, 3);
  const std::int64_t layers = recommended_options(dataset_of({}), {}).layers;
  options.sampling->fanouts.clear();  // batches of graphs
  EXPECT_EQ(recommended_options(dataset_of({}), options).layers, layers);
}

TEST(Recipe, no_validation_nodes_no_patience) {
  Dataset data = dataset_of({});
  data.val_masks = at::zeros_like(data.val_masks);
  EXPECT_FALSE(recommended_options(data, {}).patience.has_value());
}

TEST(Recipe, no_patience_if_no_class_has_a_roc_auc) {
  Dataset data = dataset_of({});
  data.metric = Metric::kRocAuc;
  data.labels = at::ones({data.num_nodes, 2}, at::kByte);
  EXPECT_FALSE(recommended_options(data, {}).patience.has_value());
  data.labels.select(1, 1).copy_(at::arange(data.num_nodes).remainder(2));
  EXPECT_EQ(recommended_options(data, {}).patience, 100);
}

TEST(Recipe, links_have_no_skip_connections_and_patience) {
  Dataset data = test::links_within_groups(false);
  data.features = at::eye(data.num_nodes).repeat({1, 2});
  const TrainOptions options = recommended_options(data, {});
  EXPECT_FALSE(options.skip);
  EXPECT_EQ(options.hidden, 128);
  EXPECT_EQ(options.patience, 100);  // their scores take negative pairs
  data.val_masks.zero_();
  EXPECT_FALSE(recommended_options(data, {}).patience.has_value());
}

TEST(Recipe, patience_spans_three_evaluations) {
  TrainOptions options;
  options.eval_every = 150;
  EXPECT_EQ(recommended_options(dataset_of({}), options).patience, 450);
}

TEST(Recipe, every_model_takes_it_with_any_number_of_layers) {
  for (const Shape& shape : {Shape{}, Shape{.edges_per_node = 30}, Shape{.training = 500},
                             Shape{.features = 7, .training = 500}}) {
    const Dataset data = dataset_of(shape);
    mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
      for (const std::optional<std::int64_t> layers :
           {std::optional<std::int64_t>(), std::optional<std::int64_t>(1),
            std::optional<std::int64_t>(3)}) {
        TrainOptions options;
        options.model = Kind::kind;
        options = recommended_options(data, options, layers);
        SCOPED_TRACE(recipe_flags(options));
        EXPECT_NO_THROW(check_options(options));
        EXPECT_EQ(options.layers, layers.value_or(options.layers));
        options.epochs = 1;
        EXPECT_NO_THROW(train(data, options));
      }
    });
  }
}

TEST(Recipe, flags_name_the_options_that_it_sets) {
  EXPECT_EQ(recipe_flags(TrainOptions()),
            "--layers 2 --dropout 0.5 --norm none --epochs 200 --lr 0.01 --weight-decay 0.0005");
  TrainOptions options;
  options.hidden = 64;
  options.skip = options.normalize_features = true;
  options.patience = 7;
  const std::string flags = recipe_flags(options);
  for (const char* flag : {"--hidden 64", "--skip", "--normalize-features", "--patience 7"}) {
    EXPECT_NE(flags.find(flag), std::string::npos) << flag;
  }
}

TEST(LearningWarning, of_a_model_that_cannot_learn) {
  Dataset data = dataset_of({.training = 500});
  data.features.fill_(1);  // the same for both classes
  TrainOptions options;
  options.epochs = 30;
  const TrainResult run = train(data, options);
  EXPECT_NE(run.warning.find("learnt little"), std::string::npos) << run.warning;
  options.epochs = 5;  // too few to tell
  EXPECT_EQ(train(data, options).warning, "");
}

TEST(LearningWarning, is_empty_for_a_model_that_learns) {
  TrainOptions options = test::quick_options();
  options.epochs = 30;
  EXPECT_EQ(train(test::two_rings(), options).warning, "");
}

}  // namespace
}  // namespace mezzo
