

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

using test::rings_of_numbers;

/// What models reach on the few nodes: well above the 0 of the mean.
constexpr double kLearnt = 0.7;

TrainOptions regression_options() {
  TrainOptions options = test::quick_options();
  options.model = nn::ModelKind::kSage;
  options.epochs = 100;
  options.dropout = 0;
  options.learning_rate = 0.03;
  return options;
}

TEST(RegressionTraining, the_full_graph_learns_numbers_in_each_precision_with_each_loss) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    mezzo::detail::for_each(LossKinds{}, [&]<class Loss>() {
      if (Loss::kind == LossKind::kMargin) return;  // of links
      SCOPED_TRACE(std::string(amp::to_string(precision)) + " " + std::string(Loss::name));
      TrainOptions options = regression_options();
      options.precision = precision;
      options.loss = Loss::kind;
      const TrainReport report = train(rings_of_numbers(), options);
      EXPECT_EQ(report.metric, "r2");
      EXPECT_GT(report.best.val, kLearnt);
      EXPECT_GT(report.last.test, kLearnt);
      EXPECT_LT(report.train_loss, report.losses.front());
    });
  }
}

TEST(RegressionTraining, every_sampler_learns_numbers) {
  const Dataset data = rings_of_numbers();
  mezzo::detail::for_each(SamplerKinds{}, [&]<class Sampler>() {
    SCOPED_TRACE(std::string(Sampler::name));
    TrainOptions options = regression_options();
    options.sampling = test::sampled_options(Sampler::kind).sampling;
    EXPECT_GT(TrainReport(train(data, options)).best.val, kLearnt);
  });
}

TEST(RegressionTraining, the_best_epoch_has_the_smallest_error) {
  TrainOptions options = regression_options();
  const TrainReport report = train(rings_of_numbers(Metric::kMae), options);
  EXPECT_EQ(report.metric, "mae");
  for (const EvaluationRecord& one : report.evaluations) {
    EXPECT_GE(one.scores.val, report.best.val);
    EXPECT_FALSE(one.epoch < report.best_epoch && one.scores.val == report.best.val);
  }
  EXPECT_LT(report.best.val, report.evaluations.front().scores.val);
}

TEST(RegressionTraining, numbers_are_learnt_in_deviations_from_the_mean_of_the_training_nodes) {
  const Dataset data = rings_of_numbers();
  const Problem problem = make_problem(data, regression_options());
  for (std::int64_t c = 0; c < 2; ++c) {
    const at::Tensor label = data.labels.select(1, c).to(at::kDouble);
    const at::Tensor known = label.isnan().logical_not();
    const at::Tensor numbers = label.masked_select(known.logical_and(problem.masks.train));
    const at::Tensor mean = numbers.mean(), deviation = (numbers - mean).square().mean().sqrt();
    const at::Tensor labels = label.masked_select(known);
    const at::Tensor sizes = (labels.abs() + mean.abs()) / deviation;
    // Rounded: the mean, the deviation, the difference and the quotient.
    EXPECT_TRUE(test::near(problem.loss_labels.select(1, c).masked_select(known),
                           (labels - mean) / deviation, test::sum_bound(sizes, 4, at::kFloat)));
    EXPECT_TRUE(problem.loss_labels.select(1, c).isnan().equal(known.logical_not()));
  }
  EXPECT_TRUE(at::equal(problem.labels.nan_to_num(), data.labels.nan_to_num()));
}

TEST(RegressionTraining, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  const test::TempFolder folder;
  const Dataset data = rings_of_numbers();
  const TrainReport whole = test::expect_unbroken(folder, data, regression_options(), 40);
  const TrainedModel trained = load_checkpoint(folder.path("whole"));
  EXPECT_EQ(trained.data.task.labels, LabelKind::kNumbers);
  EXPECT_EQ(evaluate(data, trained).val, whole.best.val);
  const Predictions predictions = predict(data, trained);
  EXPECT_FALSE(predictions.classes.defined());
  EXPECT_TRUE(at::equal(predictions.numbers, trained.logits(data)));
  const at::Tensor errors = (predictions.numbers - data.labels).select(1, 0).abs();
  EXPECT_LT(errors.mean().item<double>(), 1500);  // of numbers of around 0 and 10,000
  const Predictions some = predict(data, trained, at::tensor({7, 3}, at::kLong));
  const at::Tensor expected = predictions.numbers.index_select(0, some.ids);
  const at::Tensor sizes = at::full(expected.sizes(), 1 + expected.abs().max().item<double>(),
                                    at::kDouble);  // a layer sums fewer than 100 terms
  EXPECT_TRUE(test::near(some.numbers, expected, test::sum_bound(sizes, 1e3, at::kFloat)));

  write_csv(folder.path("p.csv"), predictions);
  EXPECT_EQ(test::read_file(folder.path("p.csv")).rfind("node,y0,y1\n0,", 0), 0U);
  write_npy(folder.path("p.npy"), predictions);
  const auto* bytes = static_cast<const char*>(predictions.numbers.const_data_ptr());
  EXPECT_EQ(test::read_file(folder.path("p.npy")),
            test::npy("<f4", {40, 2}, std::string(bytes, predictions.numbers.nbytes())));
}

TEST(RegressionTraining, options_for_classes_are_refused) {
  const Dataset data = rings_of_numbers();
  TrainOptions options = regression_options();
  options.capture = true;
  EXPECT_THROWS(InvalidArgument, test::fragments("capture", "node-regression"),
                make_problem(data, options));
  options = regression_options();
  options.loss = LossKind::kHuber;
  EXPECT_THROWS(InvalidArgument, test::fragments("loss: huber", "node-class"),
                make_problem(test::two_rings(), options));
}

}  // namespace
}  // namespace mezzo
