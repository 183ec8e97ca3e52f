

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using test::rings_of_several_labels;
using test::two_rings;

/// Roundings of a loss in float32: sums of some ten numbers, and a mean.
constexpr double kLossSteps = 64;

TEST(MultiLabel, the_full_graph_learns_two_rings_with_both_metrics) {
  for (const Metric metric : {Metric::kMicroF1, Metric::kRocAuc}) {
    TrainOptions options = test::quick_options();
    options.epochs = 40;
    options.learning_rate = 0.05;
    const TrainReport report = train(rings_of_several_labels(metric), options);
    EXPECT_EQ(report.metric, metric_name(metric));
    EXPECT_EQ(report.best.val, 1);
    EXPECT_EQ(report.last.test, 1);
    EXPECT_LT(report.train_loss, report.losses.front());
  }
}

TEST(MultiLabel, every_sampler_learns_two_rings) {
  const Dataset data = rings_of_several_labels();
  mezzo::detail::for_each(SamplerKinds{}, [&]<class Sampler>() {
    SCOPED_TRACE(std::string(Sampler::name));
    TrainOptions options = test::sampled_options(Sampler::kind);
    options.epochs = 30;
    options.learning_rate = 0.05;
    options.model = nn::ModelKind::kSage;
    const TrainReport report = train(data, options);
    EXPECT_EQ(report.best.val, 1);
    EXPECT_EQ(report.last.test, 1);
  });
}

/// The loss of the first epoch of an mlp with constant weights.
double first_loss(const Dataset& data, TrainOptions options) {
  options.model = nn::ModelKind::kMlp;
  options.dropout = 0;
  options.epochs = 1;
  options.learning_rate = 1e-30;
  options.optimizer = OptimizerKind::kSgd;
  return train(data, options).losses.front();
}

TEST(MultiLabel, the_loss_of_an_epoch_is_the_mean_over_entries_for_every_batch_size) {
  // Training nodes have one or three entries, so batches of equal size differ in terms.
  Dataset data = rings_of_several_labels();
  data.labels.slice(0, 0, 16).narrow(1, 1, 2).fill_(kNoEntry);
  const double full = first_loss(data, test::quick_options());
  for (const SamplerKind sampler :
       {SamplerKind::kNeighbor, SamplerKind::kLabor, SamplerKind::kCluster}) {
    SCOPED_TRACE(name_of(SamplerKinds{}, sampler));
    EXPECT_TRUE(test::near_number(first_loss(data, test::sampled_options(sampler)), full,
                                  kLossSteps, at::kFloat));
  }
}

TEST(MultiLabel, weights_of_saint_count_terms) {
  // All nodes are equal, so the mean over any drawn terms is the mean over all.
  Dataset data = rings_of_several_labels();
  data.features.fill_(1);
  data.labels.fill_(1);
  data.labels.narrow(1, 1, 1).fill_(kNoEntry);
  const double full = first_loss(data, test::quick_options());
  for (const SamplerKind sampler :
       {SamplerKind::kSaintNode, SamplerKind::kSaintEdge, SamplerKind::kSaintWalk}) {
    SCOPED_TRACE(name_of(SamplerKinds{}, sampler));
    EXPECT_TRUE(test::near_number(first_loss(data, test::sampled_options(sampler)), full,
                                  kLossSteps, at::kFloat));
  }
}

TEST(MultiLabel, options_for_one_label_a_node_are_refused) {
  const Dataset data = rings_of_several_labels();
  TrainOptions options = test::quick_options();
  options.capture = true;
  EXPECT_THROWS(InvalidArgument, test::fragments("capture", "node-labels"),
                make_problem(data, options));
  options = test::sampled_options(SamplerKind::kNeighbor);
  options.sampling->balance_classes = true;
  EXPECT_THROWS(InvalidArgument, test::fragments("balance-classes", "node-labels"),
                train(data, options));
}

TEST(MultiLabel, a_metric_without_both_kinds_of_entries_is_not_a_number) {
  Dataset data = rings_of_several_labels(Metric::kRocAuc);
  const at::Tensor test_nodes = data.split(0).test.unsqueeze(1);
  data.labels.masked_fill_(test_nodes, 0);
  const TrainReport report = train(data, test::quick_options());
  EXPECT_TRUE(std::isnan(report.last.test));
  EXPECT_FALSE(std::isnan(report.best.val));
  data.labels.fill_(1);
  EXPECT_THROWS(InvalidArgument, "training nodes", train(data, test::quick_options()));
}

TEST(MultiLabel, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  const test::TempFolder folder;
  const Dataset data = rings_of_several_labels();
  const TrainReport whole = test::expect_unbroken(folder, data, test::quick_options(), 4);
  const TrainedModel trained = load_checkpoint(folder.path("whole"));
  EXPECT_EQ(trained.data.task.labels, LabelKind::kMultiLabel);
  EXPECT_EQ(evaluate(data, trained).val, whole.best.val);
  const Predictions predictions = predict(data, trained);
  ASSERT_EQ(predictions.classes.sizes(), (std::vector<std::int64_t>{40, 3}));
  EXPECT_EQ(predictions.classes.scalar_type(), at::kByte);
  EXPECT_TRUE(at::equal(predictions.classes, predictions.probabilities.gt(0.5).to(at::kByte)));
  const at::Tensor counted = data.split(0).test.unsqueeze(1).logical_and(data.labels.ne(kNoEntry));
  const at::Tensor predicted = predictions.classes.masked_select(counted).to(at::kDouble);
  const at::Tensor label = data.labels.masked_select(counted).to(at::kDouble);
  const double right = (predicted * label).sum().item<double>();
  EXPECT_TRUE(test::near_number(2 * right / (predicted.sum() + label.sum()).item<double>(),
                                whole.best.test,
                                /*steps=*/8));

  write_csv(folder.path("p.csv"), predictions);
  EXPECT_EQ(test::read_file(folder.path("p.csv")).rfind("node,p0,p1,p2\n0,", 0), 0U);
  write_npy(folder.path("p.npy"), predictions);
  const auto* classes = predictions.classes.const_data_ptr<std::uint8_t>();
  EXPECT_EQ(test::read_file(folder.path("p.npy")),
            test::npy("|u1", {40, 3}, std::string(classes, classes + 120)));

  Dataset bare = data;
  bare.labels = bare.train_masks = bare.val_masks = bare.test_masks = at::Tensor();
  bare.num_classes = 0;
  bare.metric = Metric::kAccuracy;
  EXPECT_TRUE(at::equal(predict(bare, trained).classes, predictions.classes));
}

TEST(MultiLabel, a_checkpoint_of_the_other_kind_of_labels_is_refused) {
  const test::TempFolder folder;
  const Dataset several = rings_of_several_labels();
  Dataset single = two_rings();
  single.num_classes = 3;
  single.name = several.name;
  TrainOptions options = test::quick_options();
  for (const bool of_several : {true, false}) {
    const Dataset& own = of_several ? several : single;
    const Dataset& other = of_several ? single : several;
    options.resume.clear();
    options.epochs = 2;
    options.checkpoint = folder.path("c");
    train(own, options);
    const TrainedModel trained = load_checkpoint(folder.path("c"));
    const auto refusal = of_several
                             ? test::fragments("the task node-labels", "labels for node-class")
                             : test::fragments("the task node-class", "labels for node-labels");
    EXPECT_THROWS(InvalidArgument, refusal, evaluate(other, trained));
    EXPECT_THROWS(InvalidArgument, refusal, predict(other, trained));
    options.epochs = 3;
    options.resume = folder.path("c");
    EXPECT_THROWS(InvalidArgument, "task", train(other, options));
  }
}

}  // namespace
}  // namespace mezzo
