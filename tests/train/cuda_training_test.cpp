
#include <torch/optim/adam.h>

#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/train/doctor/doctor.h"
#include "mezzo/train/report/metrics.h"
#include "mezzo/train/state.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/synthetic.h"

/// Training on a GPU, and the parts of it that run on the CPU too.
namespace mezzo {
namespace {

#define SKIP_WITHOUT_CUDA() \
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no CUDA device"

TEST(Metrics, accuracies_equal_the_accuracy_of_each_mask) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor logits =
      at::tensor({1.0, 2.0, 3.0, 0.0, 5.0, 5.0, nan, 1.0, 4.0, 2.0}).view({5, 2});
  const at::Tensor labels = at::tensor({1, 0, 0, 1, 1}, at::kLong);
  const at::Tensor all = at::ones({5}, at::kBool), none = at::zeros({5}, at::kBool);
  const at::Tensor some = at::arange(5).ge(2);
  const std::vector<double> got = accuracies(logits, labels, {all, some, none});
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0], accuracy(logits, labels, all));
  EXPECT_EQ(got[1], accuracy(logits, labels, some));
  EXPECT_EQ(got[1], 1.0 / 3) << "a tie goes to the lower class, a NaN is wrong";
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_FALSE(std::signbit(got[2]));
}

TEST(Optimizers, on_the_cpu_are_those_of_libtorch) {
  const auto optimizer =
      make_optimizer(OptimizerKind::kAdam, 0.1, 0, {at::ones({2}).requires_grad_()});
  EXPECT_NE(dynamic_cast<torch::optim::Adam*>(optimizer.get()), nullptr);
}

TEST(Doctor, takes_no_captured_steps) {
  DoctorOptions options;
  options.training.capture = true;
  EXPECT_THROWS(InvalidArgument, "capture, which doctor", diagnose(test::two_rings(), options));
}

// --- Tests that need a GPU ---

TrainOptions cuda_options(amp::Precision precision = amp::Precision::kFloat32) {
  TrainOptions options = test::quick_options();
  options.device = at::Device(at::kCUDA, 0);
  options.precision = precision;
  options.dropout = 0;
  options.epochs = 20;
  return options;
}

TEST(CudaTraining, optimizers_decide_on_the_device) {
  SKIP_WITHOUT_CUDA();
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    const auto optimizer =
        make_optimizer(kind, 0.1, 0, {at::ones({2}, at::Device(at::kCUDA, 0)).requires_grad_()});
    EXPECT_NE(dynamic_cast<amp::FusedStep*>(optimizer.get()), nullptr);
  }
}

TEST(CudaTraining, captured_steps_equal_eager_ones_bit_for_bit) {
  SKIP_WITHOUT_CUDA();
  const Dataset data = test::two_rings();
  for (const nn::ModelKind model : {nn::ModelKind::kGcn, nn::ModelKind::kSage, nn::ModelKind::kGat,
                                    nn::ModelKind::kGin, nn::ModelKind::kSgc}) {
    for (const amp::Precision precision : amp::kPrecisions) {
      TrainOptions options = cuda_options(precision);
      options.model = model;
      if (model == nn::ModelKind::kSgc) options.hidden.reset();
      const TrainReport eager = train(data, options);
      options.capture = true;
      const TrainReport captured = train(data, options);
      const std::string what = eager.model + " " + eager.precision;
      EXPECT_EQ(captured.losses, eager.losses) << what;
      EXPECT_EQ(captured.skipped_steps, eager.skipped_steps) << what;
      EXPECT_EQ(captured.final_loss_scale, eager.final_loss_scale) << what;
      ASSERT_EQ(captured.evaluations.size(), eager.evaluations.size()) << what;
      EXPECT_EQ(captured.last.test, eager.last.test) << what;
    }
  }
}

TEST(CudaTraining, several_labels_a_node_are_learnt_as_on_the_cpu) {
  SKIP_WITHOUT_CUDA();
  for (const Metric metric : {Metric::kMicroF1, Metric::kRocAuc}) {
    for (const bool sampled : {false, true}) {
      TrainOptions options = cuda_options();
      options.optimizer = OptimizerKind::kSgd;  // Adam turns rounding near 0 into whole steps
      options.learning_rate = 0.05;
      if (sampled) options.sampling = SamplingOptions{.batch_size = 8, .fanouts = {-1, -1}};
      const Dataset data = test::rings_of_several_labels(metric);
      const TrainReport there = train(data, options);
      options.device = at::kCPU;
      const TrainReport here = train(data, options);
      ASSERT_EQ(there.losses.size(), here.losses.size());
      // A step rounds sums over 20 nodes, 3 edges and 8 hidden units; errors of weights add up.
      for (std::size_t i = 0; i < here.losses.size(); ++i) {
        const double steps = static_cast<double>(i + 1) * 20 * 3 * 8;
        EXPECT_TRUE(test::near_number(there.losses[i], here.losses[i], steps, at::kFloat));
      }
      // One of the 13 positive test entries may be on the other side of 0.
      EXPECT_NEAR(there.last.test, here.last.test, 1.0 / 13);
    }
  }
}

TEST(CudaTraining, steps_that_overflow_are_counted) {
  SKIP_WITHOUT_CUDA();
  for (const bool capture : {false, true}) {
    TrainOptions options = cuda_options(amp::Precision::kFloat16);
    options.loss_factor = 1e6;  // times the first scale of 65536
    options.capture = capture;
    const TrainReport report = train(test::two_rings(), options);
    EXPECT_GT(report.skipped_steps, 0);
    EXPECT_LT(report.final_loss_scale, 65536.0);
  }
}

TEST(CudaTraining, a_checkpoint_resumes_captured_and_serves_on_the_cpu) {
  SKIP_WITHOUT_CUDA();
  const test::TempFolder folder;
  const Dataset data = test::two_rings();
  TrainOptions options = cuda_options();
  const TrainReport whole = train(data, options);
  options.checkpoint = folder.path("state");
  options.epochs = 8;
  train(data, options);
  options.resume = options.checkpoint;
  options.epochs = 20;
  options.capture = true;
  EXPECT_EQ(train(data, options).losses, whole.losses);

  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA, 0)}) {
    const TrainedModel trained = load_checkpoint(options.checkpoint, device);
    for (const at::Tensor& weight : trained.model->parameters()) EXPECT_EQ(weight.device(), device);
    EXPECT_EQ(evaluate(data, trained).test, whole.best.test);
  }
}

TEST(CudaTraining, captured_steps_with_dropout_repeat_and_resume_bit_for_bit) {
  SKIP_WITHOUT_CUDA();
  const Dataset data = test::two_rings();
  for (const nn::ModelKind model : {nn::ModelKind::kGcn, nn::ModelKind::kGat}) {
    const test::TempFolder folder;
    TrainOptions options = cuda_options();
    options.model = model;
    options.capture = true;
    const TrainReport without = train(data, options);
    options.dropout = 0.5;
    if (model == nn::ModelKind::kGat) options.attention_dropout = 0.5;
    const TrainReport whole = train(data, options);
    EXPECT_NE(whole.losses, without.losses) << whole.model;
    EXPECT_EQ(train(data, options).losses, whole.losses) << whole.model;
    options.checkpoint = folder.path("state");
    options.epochs = 8;
    train(data, options);
    options.resume = options.checkpoint;
    options.epochs = 20;
    EXPECT_EQ(train(data, options).losses, whole.losses) << whole.model;
  }
}

TEST(CudaTraining, host_and_device_draw_the_same_mini_batches) {
  SKIP_WITHOUT_CUDA();
  const Dataset dense = test::two_rings();
  Dataset sparse = dense;
  sparse.features = at::cat({dense.features, at::zeros({40, 94})}, 1).to_sparse_csr();
  for (const Dataset& data : {dense, sparse}) {
    for (const bool balanced : {false, true}) {
      TrainOptions options = cuda_options(amp::Precision::kBFloat16);
      options.sampling.emplace();
      options.sampling->batch_size = 8;
      options.sampling->fanouts = {2, 2};
      options.sampling->balance_classes = balanced;
      options.sampling->sample_on = SamplePlace::kHost;
      const TrainReport host = train(data, options);
      EXPECT_LT(host.losses.back(), host.losses.front());
      EXPECT_EQ(host.sampling->drawn_on, "host");
      EXPECT_EQ(host.sampling->workers, 1);
      for (const SamplePlace place : {SamplePlace::kDevice, SamplePlace::kAuto}) {
        options.sampling->sample_on = place;
        const TrainReport device = train(data, options);
        EXPECT_EQ(device.losses, host.losses);
        EXPECT_EQ(device.last.test, host.last.test);
        EXPECT_EQ(device.sampling->drawn_on, "device");
        EXPECT_EQ(device.sampling->workers, 0);
        EXPECT_EQ(device.sampling->sampled_edges, host.sampling->sampled_edges);
        EXPECT_EQ(device.sampling->input_nodes, host.sampling->input_nodes);
      }
    }
  }
}

}  // namespace
}  // namespace mezzo
