#include <numeric>
#include <set>
#include <tuple>

#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using mezzo::detail::for_each;

using test::same_losses;
using test::sampled_options;
using test::two_rings;

TrainOptions learning_options(SamplerKind sampler) {
  TrainOptions options = sampled_options(sampler);
  options.epochs = 30;
  options.learning_rate = 0.05;
  options.dropout = 0.1;
  return options;
}

TEST(MiniBatch, learns_two_rings_with_every_model_in_every_precision) {
  const Dataset data = two_rings();
  for_each(nn::ModelKinds{}, [&]<class Model>() {
    if constexpr (Model::kind != nn::ModelKind::kSgc) {
      for (const amp::Precision precision : amp::kPrecisions) {
        SCOPED_TRACE(std::string(Model::name) + " " + std::string(amp::to_string(precision)));
        TrainOptions options = learning_options(SamplerKind::kNeighbor);
        options.model = Model::kind;
        options.precision = precision;
        const TrainReport report = train(data, options);
        EXPECT_EQ(report.best.val, 1);
        EXPECT_EQ(report.last.test, 1);
        EXPECT_LT(report.train_loss, report.losses.front());
        EXPECT_EQ(report.steps, 90);
      }
    }
  });
}

TEST(MiniBatch, learns_two_rings_with_every_sampler) {
  const Dataset data = two_rings();
  for_each(SamplerKinds{}, [&]<class Sampler>() {
    for (const nn::ModelKind model : {nn::ModelKind::kSage, nn::ModelKind::kGcn}) {
      SCOPED_TRACE(std::string(Sampler::name) + " " +
                   std::string(name_of(nn::ModelKinds{}, model)));
      TrainOptions options = learning_options(Sampler::kind);
      options.model = model;
      const TrainReport report = train(data, options);
      EXPECT_EQ(report.best.val, 1);
      EXPECT_EQ(report.last.test, 1);
      ASSERT_TRUE(report.sampling);
      EXPECT_EQ(report.sampling->sampler, Sampler::name);
      EXPECT_EQ(report.sampling->batches, 30 * report.sampling->batches_per_epoch);
      EXPECT_GT(report.sampling->sampled_edges, 0);
      EXPECT_GT(report.sampling->compute_seconds, 0);
    }
  });
}

TEST(MiniBatch, all_neighbours_of_all_training_nodes_at_once_are_the_full_graph) {
  const Dataset data = two_rings();
  for (const nn::ModelKind model : {nn::ModelKind::kSage, nn::ModelKind::kGcn, nn::ModelKind::kGat,
                                    nn::ModelKind::kGin, nn::ModelKind::kMlp}) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, model));
    TrainOptions options = test::quick_options();
    options.model = model;
    options.dropout = 0;
    options.optimizer = OptimizerKind::kSgd;  // Adam turns rounding near 0 into whole steps
    options.learning_rate = 0.05;
    const TrainReport full = train(data, options);
    options.sampling = SamplingOptions{.batch_size = 100, .fanouts = {-1, -1}};
    const TrainReport sampled = train(data, options);
    EXPECT_TRUE(same_losses(sampled.losses, full.losses));
    EXPECT_LT(full.losses.back(), full.losses.front());
    EXPECT_EQ(sampled.last.test, full.last.test);
    EXPECT_EQ(sampled.steps, full.steps);
    EXPECT_FALSE(full.sampling);
  }
}

TEST(MiniBatch, layers_of_all_nodes_below_all_training_nodes_are_the_full_graph) {
  const Dataset data = two_rings();
  for (const nn::ModelKind model : {nn::ModelKind::kSage, nn::ModelKind::kGcn}) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, model));
    TrainOptions options = test::quick_options();
    options.model = model;
    options.dropout = 0;
    options.optimizer = OptimizerKind::kSgd;
    options.learning_rate = 0.05;
    const TrainReport full = train(data, options);
    options.sampling =
        SamplingOptions{.sampler = SamplerKind::kLayer, .batch_size = 100, .layer_sizes = {40, 40}};
    const TrainReport sampled = train(data, options);
    EXPECT_TRUE(same_losses(sampled.losses, full.losses));
    EXPECT_EQ(sampled.last.test, full.last.test);
    EXPECT_EQ(sampled.steps, full.steps);
  }
}

TEST(MiniBatch, layer_sampling_learns_two_rings_in_every_precision) {
  const Dataset data = two_rings();
  for (const nn::ModelKind model : {nn::ModelKind::kSage, nn::ModelKind::kGcn}) {
    for (const amp::Precision precision : amp::kPrecisions) {
      SCOPED_TRACE(std::string(name_of(nn::ModelKinds{}, model)) + " " +
                   std::string(amp::to_string(precision)));
      TrainOptions options = learning_options(SamplerKind::kLayer);
      options.model = model;
      options.precision = precision;
      const TrainReport report = train(data, options);
      EXPECT_EQ(report.best.val, 1);
      EXPECT_LT(report.losses.back(), report.losses.front());
    }
  }
}

TEST(MiniBatch, an_order_that_is_not_shuffled_is_the_same_in_every_epoch) {
  const Dataset data = two_rings();
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kMlp;
  options.sampling->fanouts = {0, 0};
  options.dropout = 0;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = 1e-30;  // constant weights: losses differ only by the batches
  options.sampling->drop_last = true;
  const auto losses = [&](bool shuffle) {
    options.sampling->shuffle = shuffle;
    return train(data, options).losses;
  };
  const std::vector<double> ordered = losses(false), shuffled = losses(true);
  // 16 of 20 training nodes an epoch: the same ones, or others.
  EXPECT_EQ(std::set<double>(ordered.begin(), ordered.end()).size(), 1U);
  EXPECT_GT(std::set<double>(shuffled.begin(), shuffled.end()).size(), 1U);
}

TEST(MiniBatch, one_part_of_a_partition_is_the_full_graph) {
  TrainOptions options = test::quick_options();
  options.dropout = 0;
  options.optimizer = OptimizerKind::kSgd;
  const TrainReport full = train(two_rings(), options);
  options.sampling = SamplingOptions{.sampler = SamplerKind::kCluster, .parts = 1};
  EXPECT_TRUE(same_losses(train(two_rings(), options).losses, full.losses));
}

TEST(MiniBatch, the_workers_change_nothing) {
  const Dataset data = two_rings();
  for_each(SamplerKinds{}, [&]<class Sampler>() {
    SCOPED_TRACE(Sampler::name);
    TrainOptions options = sampled_options(Sampler::kind);
    options.model = nn::ModelKind::kSage;
    options.epochs = 4;
    options.sampling->num_workers = 0;
    const TrainReport alone = train(data, options);
    for (const std::int64_t workers : {1, 3}) {
      options.sampling->num_workers = workers;
      options.sampling->prefetch = workers;
      EXPECT_EQ(train(data, options).losses, alone.losses) << workers;
    }
    options.seed += 1;
    EXPECT_NE(train(data, options).losses, alone.losses);
  });
}

TEST(MiniBatch, calls_on_batch_for_every_batch_also_the_last) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.epochs = 2;
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> batches;
  double latest = 0;
  TrainCallbacks callbacks;
  callbacks.on_batch = [&](const BatchRecord& record) {
    batches.emplace_back(record.epoch, record.batch, record.batches);
    latest = record.loss;
    EXPECT_EQ(record.epochs, 2);
  };
  callbacks.on_epoch = [&](const EpochRecord& record) { EXPECT_EQ(record.loss, latest); };
  const TrainReport report = train(two_rings(), options, callbacks);
  const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> expected = {
      {1, 1, 3}, {1, 2, 3}, {1, 3, 3}, {2, 1, 3}, {2, 2, 3}, {2, 3, 3}};
  EXPECT_EQ(batches, expected);
  EXPECT_EQ(report.steps, 6);
  EXPECT_EQ(report.epochs_run, 2);

  options.sampling->drop_last = true;
  EXPECT_EQ(train(two_rings(), options).steps, 4);
  options.sampling.reset();
  batches.clear();
  callbacks.on_epoch = nullptr;
  train(two_rings(), options, callbacks);
  EXPECT_TRUE(batches.empty());
}

TEST(MiniBatch, the_batch_size_does_not_change_an_evaluation) {
  const Dataset data = two_rings();
  const test::TempFolder folder;
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kGcn;
  options.epochs = 3;
  options.checkpoint = folder.path("c");
  std::vector<Scores> all_scores;
  for (const std::int64_t nodes : {1, 7, 4096}) {
    options.sampling->inference_batch_size = nodes;
    const TrainReport report = train(data, options);
    const TrainedModel trained = load_checkpoint(options.checkpoint);
    const Scores scores = evaluate(data, trained);
    EXPECT_EQ(scores.train, report.best.train);
    EXPECT_EQ(scores.val, report.best.val);
    EXPECT_EQ(scores.test, report.best.test);
    EXPECT_EQ(predict(data, trained).classes.size(0), 40);
    all_scores.push_back(scores);
  }
  for (const Scores& scores : all_scores) {
    EXPECT_EQ(scores.train, all_scores.front().train);
    EXPECT_EQ(scores.test, all_scores.front().test);
  }
}

TEST(MiniBatch, features_in_16_bits_train_like_their_float32_copy) {
  for (const at::ScalarType stored : {at::kBFloat16, at::kHalf}) {
    Dataset half = two_rings();
    half.features = half.features.to(stored);
    Dataset float32 = half;
    float32.features = half.features.to(at::kFloat);
    TrainOptions options = sampled_options(SamplerKind::kNeighbor);
    options.model = nn::ModelKind::kSage;
    EXPECT_EQ(train(half, options).losses, train(float32, options).losses);
    for (const amp::Precision precision : {amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
      TrainOptions learning = learning_options(SamplerKind::kNeighbor);
      learning.precision = precision;
      EXPECT_EQ(train(half, learning).last.test, 1);
    }
  }
}

TEST(MiniBatch, the_full_graph_casts_16_bit_features_to_float32) {
  Dataset half = two_rings();
  half.features = half.features.to(at::kBFloat16);
  Dataset float32 = half;
  float32.features = half.features.to(at::kFloat);
  EXPECT_EQ(train(half, test::quick_options()).losses,
            train(float32, test::quick_options()).losses);
}

TEST(MiniBatch, sparse_features_train_as_their_dense_copy) {
  Dataset dense = two_rings();
  dense.features = at::cat({dense.features, at::zeros({40, 94})}, 1);
  Dataset sparse = dense;
  sparse.features = dense.features.to_sparse_csr();
  for (const SamplerKind sampler : {SamplerKind::kNeighbor, SamplerKind::kCluster}) {
    TrainOptions options = sampled_options(sampler);
    options.normalize_features = true;
    options.dropout = 0;  // which draws for the stored values of sparse ones alone
    EXPECT_TRUE(same_losses(train(sparse, options).losses, train(dense, options).losses));
  }
}

TEST(MiniBatch, balanced_batches_train_with_one_node_of_a_class) {
  Dataset data = two_rings();
  // One training node of class 1 against ten of class 0.
  data.train_masks = data.train_masks.logical_and(
      at::eq(data.labels, 0).logical_or_(at::eq(at::arange(40), 1)).unsqueeze(1));
  TrainOptions options = learning_options(SamplerKind::kNeighbor);
  options.sampling->batch_size = 4;
  options.sampling->balance_classes = true;
  EXPECT_EQ(train(data, options).last.test, 1);
}

TEST(MiniBatch, a_balanced_class_counts_as_often_as_it_was_drawn) {
  // All features are equal, so the loss approaches the entropy of the classes' shares: log 2 for
  // halves, and less if the one seed of class 1 counts once among five or more of class 0.
  Dataset data = two_rings();
  data.features.fill_(1);
  data.train_masks = data.train_masks.logical_and(
      at::eq(data.labels, 0).logical_or_(at::eq(at::arange(40), 1)).unsqueeze(1));
  TrainOptions options = learning_options(SamplerKind::kNeighbor);
  options.dropout = 0;
  options.sampling->batch_size = 100;
  options.sampling->balance_classes = true;
  const std::vector<double> losses = train(data, options).losses;
  ASSERT_EQ(losses.size(), 30U);
  const double mean = std::accumulate(losses.begin() + 15, losses.end(), 0.0) / 15;
  const double unbalanced = std::log(6.0) / 6 + std::log(6.0 / 5) * 5 / 6;
  EXPECT_GT(mean, (std::log(2.0) + unbalanced) / 2);
}

TEST(MiniBatch, steps_without_progress_are_numeric_errors) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.learning_rate = 1e38;
  options.optimizer = OptimizerKind::kSgd;
  EXPECT_THROWS(NumericError, "diverged", train(two_rings(), options));
}

TEST(MiniBatch, what_the_data_do_not_allow_is_an_error) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.sampling->batch_size = 21;
  options.sampling->drop_last = true;
  EXPECT_THROWS(InvalidArgument, test::fragments("drop-last", "20"), train(two_rings(), options));

  Dataset mapped = two_rings();
  mapped.is_mapped = true;
  options = sampled_options(SamplerKind::kNeighbor);
  EXPECT_NO_THROW(train(mapped, options));
  options.normalize_features = true;
  EXPECT_THROWS(InvalidArgument, "normalize-features", train(mapped, options));

  Dataset single = two_rings();
  single.train_masks.fill_(false)[0].fill_(true);
  options = sampled_options(SamplerKind::kSaintNode);
  options.sampling->saint_budget = 1;
  options.sampling->batches_per_epoch = 1;
  EXPECT_THROWS(InvalidArgument, "no training node", train(single, options));

  Dataset untrained = two_rings();
  untrained.train_masks = at::zeros_like(untrained.train_masks);
  EXPECT_THROWS(InvalidArgument, "no training nodes",
                train(untrained, sampled_options(SamplerKind::kNeighbor)));
}

TEST(MiniBatch, batches_without_training_nodes_are_no_steps) {
  Dataset data = two_rings();
  // Training nodes in the first ring alone: some of the parts are of the second one.
  data.train_masks = data.train_masks.logical_and(at::eq(data.labels, 0).unsqueeze(1));
  TrainOptions options = sampled_options(SamplerKind::kCluster);
  options.sampling->parts = 10;
  options.epochs = 2;
  const TrainReport report = train(data, options);
  EXPECT_EQ(report.sampling->batches, 20);
  EXPECT_LT(report.steps, 20);
  EXPECT_TRUE(std::isfinite(report.train_loss));
}

}  // namespace
}  // namespace mezzo
