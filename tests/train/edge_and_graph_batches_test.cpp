// Training on labels of edges and of graphs by mini-batches.
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "train/mini_batches.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using test::edges_with_labels;
using test::graphs_with_labels;

/// Both targets with labels of that kind.
std::vector<Dataset> data_of(LabelKind kind) {
  return {edges_with_labels(kind), graphs_with_labels(kind)};
}

TrainOptions batch_options(const Dataset& data) {
  TrainOptions options = test::task_options(data.target);
  options.sampling = test::target_batches(data.target);
  return options;
}

TEST(EdgeAndGraphBatches, every_task_is_learnt_in_each_precision) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const LabelKind kind : test::kLabelKinds) {
      for (const Dataset& data : data_of(kind)) {
        SCOPED_TRACE(std::string(amp::to_string(precision)) + " " +
                     std::string(name_of(Tasks{}, data.task())));
        TrainOptions options = batch_options(data);
        options.precision = precision;
        options.epochs = 60;
        const TrainReport report = train(data, options);
        EXPECT_GT(report.best.val, test::kLearnt);
        EXPECT_GT(report.best.test, test::kLearnt);
        EXPECT_EQ(report.steps, 60 * 3);
        EXPECT_EQ(report.sampling->sampler,
                  data.target == TaskTarget::kGraph ? "graphs" : "neighbor");
      }
    }
  }
}

/// The data with weights of the edges from 1 to 2.
Dataset weighted(Dataset data) {
  data.edge_weights = 1 + at::arange(data.num_edges()).remainder(5).to(at::kFloat) / 4;
  return data;
}

TEST(EdgeAndGraphBatches, all_in_one_batch_is_the_full_graph) {
  using enum nn::ModelKind;
  for (const LabelKind kind : test::kLabelKinds) {
    for (const Dataset& plain : data_of(kind)) {
      for (const nn::ModelKind model : {kGcn, kSage, kGat, kGin, kMlp}) {
        for (const bool has_weights : {false, true}) {
          if (has_weights && !nn::takes_edge_weights(model)) continue;
          SCOPED_TRACE(std::string(name_of(Tasks{}, plain.task())) + " " +
                       std::string(nn::to_string(model)));
          const Dataset data = has_weights ? weighted(plain) : plain;
          TrainOptions options = test::task_options(data.target);
          options.model = model;
          options.readout = ReduceOp::kMean;
          options.epochs = 10;
          options.optimizer = OptimizerKind::kSgd;  // Adam turns rounding near 0 into whole steps
          options.learning_rate = 0.05;
          const TrainReport full = train(data, options);
          options.sampling = SamplingOptions{.batch_size = 100};
          if (data.target == TaskTarget::kEdge) options.sampling->fanouts = {-1, -1};
          const TrainReport sampled = train(data, options);
          EXPECT_TRUE(test::same_losses(sampled.losses, full.losses, 200));
          EXPECT_LT(full.losses.back(), full.losses.front());
        }
      }
    }
  }
}

TEST(EdgeAndGraphBatches, the_workers_change_nothing) {
  for (const Dataset& data : data_of(LabelKind::kClass)) {
    TrainOptions options = batch_options(data);
    options.epochs = 4;
    options.dropout = 0.5;
    options.sampling->num_workers = 0;
    const TrainReport alone = train(data, options);
    for (const std::int64_t workers : {1, 2}) {
      options.sampling->num_workers = workers;
      EXPECT_EQ(train(data, options).losses, alone.losses) << workers;
    }
    options.sampling->shuffle = false;
    EXPECT_NE(train(data, options).losses, alone.losses);
  }
}

TEST(EdgeAndGraphBatches, the_batch_size_does_not_change_an_evaluation) {
  for (const LabelKind kind : test::kLabelKinds) {
    for (const Dataset& data : data_of(kind)) {
      const test::TempFolder folder;
      TrainOptions options = batch_options(data);
      options.epochs = 3;
      options.checkpoint = folder.path("c");
      std::vector<at::Tensor> outputs;
      for (const std::int64_t nodes : {1, 7, 4096}) {
        options.sampling->inference_batch_size = nodes;
        const TrainReport report = train(data, options);
        const TrainedModel trained = load_checkpoint(options.checkpoint);
        EXPECT_EQ(evaluate(data, trained).val, report.best.val);
        outputs.push_back(trained.logits(data));
        ASSERT_EQ(outputs.back().size(0), data.num_targets());
        // Each of three layers sums fewer than 100 terms.
        const at::Tensor sizes =
            at::full_like(outputs[0], 1 + outputs[0].abs().max().item<double>(), at::kDouble);
        EXPECT_TRUE(test::near(outputs.back(), outputs[0].to(at::kDouble),
                               test::sum_bound(sizes, 300, at::kFloat)));
      }
    }
  }
}

TEST(EdgeAndGraphBatches, sparse_and_16_bit_features_are_learnt) {
  for (const Dataset& data : data_of(LabelKind::kClass)) {
    TrainOptions options = batch_options(data);
    options.epochs = 3;
    Dataset other = data;
    other.features = data.features.to(at::kHalf);
    EXPECT_EQ(train(other, options).losses, train(data, options).losses);
    Dataset wide = data;
    wide.features = at::cat({data.features, at::zeros({data.num_nodes, 98})}, 1);
    other.features = wide.features.to_sparse_csr();
    EXPECT_TRUE(test::same_losses(train(other, options).losses, train(wide, options).losses));
  }
}

TEST(EdgeAndGraphBatches, graphs_without_nodes_and_edges_are_in_batches) {
  Dataset data = graphs_with_labels(LabelKind::kClass);
  data.graph_offsets = at::cat({at::zeros({2}, at::kLong), data.graph_offsets.slice(0, 1, -1),
                                data.graph_offsets.slice(0, -1).repeat({2})});
  data.labels = at::cat({data.labels, at::zeros({2}, at::kLong)});
  for (at::Tensor* masks : {&data.train_masks, &data.val_masks, &data.test_masks}) {
    *masks = at::cat({*masks, masks->slice(0, 0, 2)});
  }
  data.validate();
  TrainOptions options = batch_options(data);
  options.epochs = 2;
  options.sampling->inference_batch_size = 1;
  EXPECT_EQ(train(data, options).trained.logits(data).size(0), 42);
}

TEST(EdgeAndGraphBatches, options_that_contradict_the_task_are_errors) {
  const Dataset edges = edges_with_labels(LabelKind::kClass);
  const Dataset graphs = graphs_with_labels(LabelKind::kClass);
  const auto expect_refused = [](const Dataset& data, const std::vector<std::string>& fragments,
                                 const auto& change) {
    TrainOptions options = batch_options(data);
    change(options);
    EXPECT_THROWS(InvalidArgument, fragments, train(data, options));
  };
  for (const Dataset& data : {edges, graphs}) {
    const std::string labels = "labels of " + std::string(name_of(TaskTargets{}, data.target));
    expect_refused(data, {"sampler", labels, "cluster"}, [](TrainOptions& options) {
      options.sampling = SamplingOptions{.sampler = SamplerKind::kCluster, .parts = 2};
    });
    expect_refused(data, {"balance-classes", labels},
                   [](TrainOptions& options) { options.sampling->balance_classes = true; });
    expect_refused(data,
                   {"drop-last", "training " + std::string(name_of(TaskTargets{}, data.target))},
                   [](TrainOptions& options) {
                     options.sampling->batch_size = 73;
                     options.sampling->drop_last = true;
                   });
  }
  expect_refused(edges, {"control-variates", "labels of edges"}, [](TrainOptions& options) {
    options.model = nn::ModelKind::kSage;
    options.sampling->control_variates = true;
  });
  expect_refused(edges, {"fanout", "requires"},
                 [](TrainOptions& options) { options.sampling->fanouts.clear(); });
  expect_refused(graphs, {"fanout", "labels of graphs"}, [](TrainOptions& options) {
    options.sampling->fanouts = {2, 2};
  });
  TrainOptions of_nodes = test::quick_options();
  of_nodes.sampling = SamplingOptions{.batch_size = 8};
  EXPECT_THROWS(InvalidArgument, test::fragments("fanout", "requires"),
                train(test::two_rings(), of_nodes));
}

}  // namespace
}  // namespace mezzo
