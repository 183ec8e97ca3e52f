#include "mezzo/amp/diagnose/diagnose.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/diagnose/keep_float32.h"
#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/sampling/blocks/block_loader.h"

#include "amp/diagnose/one_thread.h"
#include "support/errors.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

using amp::diagnose;
using amp::DiagnoseOptions;
using amp::Diagnosis;
using amp::DiagnosisIssue;
using amp::DiagnosisRun;
using amp::NumericProblem;
using amp::Precision;
using nlohmann::json;

constexpr std::uint64_t kSeeds = 20;

class Diagnose : public OneThread {};

/// Few steps, at a rate at which the models learn.
DiagnoseOptions options(std::int64_t steps = 8, double rate = 1e-2) {
  return {.steps = steps, .make_optimizer = [rate](std::vector<at::Tensor> parameters) {
            return std::make_unique<torch::optim::Adam>(std::move(parameters), rate);
          }};
}

/// A program's own module.
struct OwnModule : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return head(at::relu(norm(encoder(x)))); }

  torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(8, 16));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 1));
};

/// The job of an OwnModule on random data: the loss of (x * size + offset), times loss_factor.
struct OwnJob {
  explicit OwnJob(std::uint64_t seed, double size = 1, double factor = 1, double offset = 0) {
    at::manual_seed(seed);
    model = std::make_shared<OwnModule>();
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x = at::randn({32, 8});
      batches.emplace_back(x * size + offset, x.select(1, 0).sin().unsqueeze(1));
    }
    loss_factor = factor;
  }

  at::Tensor loss(std::int64_t step) const {
    const auto& [x, y] = batches[static_cast<std::size_t>(step) % batches.size()];
    return at::mse_loss(model->forward(x), y) * loss_factor;
  }

  Diagnosis diagnosis(double rate = 1e-2) const {
    return diagnose([this](std::int64_t step) { return loss(step); }, *model, options(8, rate));
  }

  std::shared_ptr<OwnModule> model;
  std::vector<std::pair<at::Tensor, at::Tensor>> batches;
  double loss_factor = 1;
};

const DiagnosisIssue* find(const Diagnosis& diagnosis, DiagnosisIssue::Kind kind) {
  const auto issue = std::find_if(diagnosis.issues.begin(), diagnosis.issues.end(),
                                  [kind](const DiagnosisIssue& each) { return each.kind == kind; });
  return issue == diagnosis.issues.end() ? nullptr : &*issue;
}

const DiagnosisRun& best_run(const Diagnosis& diagnosis, Precision precision) {
  return diagnosis.runs[diagnosis.candidate(precision).run];
}

void expect_healthy(const Diagnosis& diagnosis) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16, Precision::kFloat16}) {
    const amp::PrecisionCandidate& candidate = diagnosis.candidate(precision);
    EXPECT_EQ(candidate.problem, NumericProblem::kNone) << to_text(diagnosis);
    EXPECT_TRUE(candidate.suited) << to_text(diagnosis);
    EXPECT_TRUE(best_run(diagnosis, precision).setting.keep_float32.empty());
  }
  EXPECT_EQ(find(diagnosis, DiagnosisIssue::Kind::kOverflow), nullptr) << to_text(diagnosis);
  EXPECT_EQ(find(diagnosis, DiagnosisIssue::Kind::kUnderflow), nullptr) << to_text(diagnosis);
  EXPECT_EQ(find(diagnosis, DiagnosisIssue::Kind::kDigits), nullptr) << to_text(diagnosis);
}

TEST_F(Diagnose, a_healthy_module_has_no_problem) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) expect_healthy(OwnJob(seed).diagnosis());
}

TEST_F(Diagnose, a_cnn_with_buffers_and_dropout_has_no_problem) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    at::manual_seed(seed);
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(1, 4, 3).padding(1));
    torch::nn::BatchNorm2d norm(4);
    torch::nn::Linear head(4 * 8 * 8, 3);
    torch::nn::Module model;
    model.register_module("conv", conv);
    model.register_module("norm", norm);
    model.register_module("head", head);
    const at::Tensor images = at::randn({16, 1, 8, 8}), labels = at::randint(3, {16}, at::kLong);
    expect_healthy(diagnose(
        [&](std::int64_t /*step*/) {
          const at::Tensor h = at::relu(norm(conv(images))).flatten(1);
          return at::cross_entropy_loss(head(at::dropout(h, 0.2, /*train=*/true)), labels);
        },
        model, options()));
  }
}

TEST_F(Diagnose, mini_batches_of_a_graph_have_no_problem) {
  constexpr std::int64_t kNodes = 60;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    at::manual_seed(seed);
    const at::Tensor node = at::arange(kNodes), next = at::remainder(node + 2, kNodes);
    Graph graph(Topology::from_coo(at::cat({node, next}), at::cat({next, node}), kNodes, kNodes));
    graph.ndata()["feat"] = at::randn({kNodes, 6});
    graph.ndata()["label"] = at::remainder(node, 2);
    std::vector<Batch> batches;
    BlockLoader loader(graph, node,
                       {.fanouts = {3, 3},
                        .batch_size = 20,
                        .features = {"feat"},
                        .labels = {"label"},
                        .seed = seed});
    for (const Batch& batch : loader) batches.push_back(batch);

    nn::SAGEConv first(6, 8), last(8, 2);
    torch::nn::Module model;
    model.register_module("first", first);
    model.register_module("last", last);
    expect_healthy(diagnose(
        [&](std::int64_t step) {
          const Batch& batch = batches[static_cast<std::size_t>(step) % batches.size()];
          const at::Tensor h = at::relu(first(batch.blocks[0].topology(), batch.features("feat")));
          return at::cross_entropy_loss(last(batch.blocks[1].topology(), h), batch.labels("label"));
        },
        model, options()));
  }
}

TEST_F(Diagnose, an_overflow_is_a_problem_of_range_that_float32_in_one_module_fixes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Diagnosis diagnosis = OwnJob(seed, /*size=*/1e5).diagnosis();
    const std::string text = to_text(diagnosis);
    EXPECT_EQ(diagnosis.candidate(Precision::kFloat16).problem, NumericProblem::kRange) << text;
    EXPECT_EQ(diagnosis.candidate(Precision::kBFloat16).problem, NumericProblem::kNone) << text;
    const DiagnosisIssue* overflow = find(diagnosis, DiagnosisIssue::Kind::kOverflow);
    ASSERT_NE(overflow, nullptr) << text;
    EXPECT_EQ(overflow->place, "encoder") << text;
    EXPECT_NE(overflow->op.find("copy"), std::string::npos) << "the cast of the inputs: " << text;
    EXPECT_TRUE(diagnosis.candidate(Precision::kFloat16).suited) << text;
    EXPECT_EQ(best_run(diagnosis, Precision::kFloat16).setting.keep_float32,
              std::vector<std::string>{"encoder"})
        << text;
  }
}

TEST_F(Diagnose, an_underflow_is_a_problem_of_range_that_a_loss_scale_fixes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Diagnosis diagnosis = OwnJob(seed, 1, /*factor=*/1e-8).diagnosis();
    const std::string text = to_text(diagnosis);
    EXPECT_EQ(diagnosis.candidate(Precision::kFloat16).problem, NumericProblem::kRange) << text;
    EXPECT_EQ(diagnosis.candidate(Precision::kBFloat16).problem, NumericProblem::kNone) << text;
    const DiagnosisIssue* underflow = find(diagnosis, DiagnosisIssue::Kind::kUnderflow);
    ASSERT_NE(underflow, nullptr) << text;
    EXPECT_EQ(underflow->place, "after head") << text;
    ASSERT_TRUE(underflow->fix.has_value());
    EXPECT_TRUE(diagnosis.runs[*underflow->fix].setting.loss_scale.has_value()) << text;
    EXPECT_TRUE(diagnosis.candidate(Precision::kFloat16).suited) << text;
    EXPECT_EQ(find(diagnosis, DiagnosisIssue::Kind::kOverflow), nullptr) << text;
  }
}

TEST_F(Diagnose, inputs_with_a_large_offset_are_a_problem_of_digits) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    // A low rate: near the offset float32 itself is too noisy for large steps.
    const Diagnosis diagnosis = OwnJob(seed, 1, 1, /*offset=*/8000).diagnosis(/*rate=*/1e-3);
    const std::string text = to_text(diagnosis);
    for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
      EXPECT_EQ(diagnosis.candidate(precision).problem, NumericProblem::kDigits) << text;
      EXPECT_TRUE(diagnosis.candidate(precision).suited) << text;
      EXPECT_EQ(best_run(diagnosis, precision).setting.keep_float32,
                std::vector<std::string>{"encoder"})
          << text;
    }
    const DiagnosisIssue* digits = find(diagnosis, DiagnosisIssue::Kind::kDigits);
    ASSERT_NE(digits, nullptr) << text;
    EXPECT_EQ(digits->place, "encoder") << text;
  }
}

TEST_F(Diagnose, training_with_the_float16_setting_equals_its_run) {
  const OwnJob job(3, /*size=*/1e5);
  const Diagnosis diagnosis = job.diagnosis();
  const DiagnosisRun& run = best_run(diagnosis, Precision::kFloat16);
  torch::optim::Adam adam(job.model->parameters(), 1e-2);
  amp::MixedPrecisionOptimizer optimizer = amp::enable_mixed_precision(
      adam, {.precision = run.setting.precision, .policy = run.setting.loss_scale});
  const amp::KeepFloat32 kept = amp::keep_float32(*job.model, run.setting.keep_float32);
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    const at::Tensor loss =
        optimizer.minimize([&] { return job.loss(static_cast<std::int64_t>(i)); });
    EXPECT_EQ(loss.item<double>(), run.losses[i]) << i;
  }
}

TEST_F(Diagnose, model_and_random_numbers_are_as_before_also_after_an_exception) {
  const OwnJob job(5);
  job.loss(0).backward();
  std::vector<at::Tensor> before, gradients;
  for (const at::Tensor& parameter : job.model->parameters()) {
    before.push_back(parameter.detach().clone());
    gradients.push_back(parameter.grad().clone());
  }
  const at::Tensor running_mean = job.model->norm->running_mean.clone();
  at::manual_seed(1);
  const at::Tensor next = at::rand({4});
  at::manual_seed(1);
  const auto expect_unchanged = [&] {
    const std::vector<at::Tensor> now = job.model->parameters();
    for (std::size_t i = 0; i < now.size(); ++i) {
      EXPECT_TRUE(at::equal(now[i], before[i]));
      EXPECT_TRUE(at::equal(now[i].grad(), gradients[i]));
    }
    EXPECT_TRUE(at::equal(job.model->norm->running_mean, running_mean));
  };
  job.diagnosis();
  expect_unchanged();
  const auto fails_later = [&](std::int64_t step) {
    if (step == 2) throw std::runtime_error("no more data");
    return at::mean(job.loss(step) * at::rand({}));
  };
  EXPECT_THROWS(std::runtime_error, "no more data", diagnose(fails_later, *job.model, options()));
  expect_unchanged();
  EXPECT_TRUE(at::equal(at::rand({4}), next));
}

TEST_F(Diagnose, a_model_that_diverges_in_float32_gets_no_recommendation) {
  const OwnJob job(1, /*size=*/1, /*factor=*/INFINITY);
  const Diagnosis diagnosis = job.diagnosis();
  EXPECT_EQ(diagnosis.candidate(Precision::kFloat32).problem, NumericProblem::kDivergence);
  EXPECT_EQ(diagnosis.runs.size(), 1U);
  EXPECT_THROWS(NumericError, "float32 itself", diagnosis.setting());
  EXPECT_TRUE(json::parse(to_json(diagnosis))["recommendation"].is_null());
  EXPECT_NE(to_text(diagnosis).find("learning rate"), std::string::npos) << to_text(diagnosis);
}

TEST_F(Diagnose, a_gradient_that_is_not_finite_in_float32_is_no_problem_of_a_precision) {
  struct Planted : torch::nn::Module {
    torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 1));
    at::Tensor gate = register_parameter("gate", at::zeros({1}));
  } model;
  const at::Tensor x = at::ones({8, 4});
  const auto loss = [&](std::int64_t /*step*/) {  // the gradient of a root at 0 is inf
    return at::mse_loss(model.head(x), x.slice(1, 0, 1)) + model.gate.sqrt().sum();
  };
  for (const std::int64_t steps : {1, 8}) {  // after one step the weights are nan
    const Diagnosis diagnosis = diagnose(loss, model, options(steps));
    const std::string text = to_text(diagnosis);
    EXPECT_EQ(diagnosis.runs.size(), 1U) << text;
    EXPECT_FALSE(diagnosis.recommended) << text;
    EXPECT_EQ(diagnosis.candidate(Precision::kFloat32).problem, NumericProblem::kDivergence);
    ASSERT_EQ(diagnosis.issues.size(), 1U) << text;
    EXPECT_EQ(diagnosis.issues[0].kind, DiagnosisIssue::Kind::kDivergence);
    EXPECT_EQ(diagnosis.issues[0].evidence,
              "the gradient of the first step has inf or nan in float32 itself");
    EXPECT_EQ(text.find("65504"), std::string::npos) << text;
  }
}

TEST_F(Diagnose, a_precision_that_exceeds_the_memory_is_not_suited) {
  for (const bool also_bfloat16 : {false, true}) {
    const OwnJob job(0);
    const auto loss = [&](std::int64_t step) {
      const at::ScalarType type = job.model->encoder(job.batches[0].first).scalar_type();
      const bool fits = type == at::kFloat || (type == at::kBFloat16 && !also_bfloat16);
      TORCH_CHECK_WITH(OutOfMemoryError, fits, "CUDA out of memory");
      return job.loss(step);
    };
    const Diagnosis diagnosis = diagnose(loss, *job.model, options());
    const std::string text = to_text(diagnosis);
    for (const auto& [precision, fits] :
         {std::pair(Precision::kBFloat16, !also_bfloat16), std::pair(Precision::kFloat16, false)}) {
      const amp::PrecisionCandidate& candidate = diagnosis.candidate(precision);
      EXPECT_EQ(candidate.suited, fits) << text;
      EXPECT_EQ(candidate.problem, fits ? NumericProblem::kNone : NumericProblem::kMemory) << text;
      if (fits) continue;
      EXPECT_TRUE(best_run(diagnosis, precision).out_of_memory) << text;
      EXPECT_EQ(candidate.evidence, "its steps do not fit in the memory of the device");
    }
    ASSERT_TRUE(diagnosis.recommended) << text;
    EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
    EXPECT_TRUE(json::parse(to_json(diagnosis))["runs"].back()["out_of_memory"].get<bool>());
  }
  const OwnJob job(0);
  const auto loss = [](std::int64_t /*step*/) -> at::Tensor {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory");
    return {};
  };
  EXPECT_THROW(diagnose(loss, *job.model, options()), c10::OutOfMemoryError);
}

TEST_F(Diagnose, text_and_json_have_every_run) {
  const Diagnosis diagnosis = OwnJob(0, /*size=*/1e5).diagnosis();
  const std::string text = to_text(diagnosis);
  const json report = json::parse(to_json(diagnosis));
  ASSERT_EQ(report["runs"].size(), diagnosis.runs.size());
  for (std::size_t i = 0; i < diagnosis.runs.size(); ++i) {
    const std::string setting = to_string(diagnosis.runs[i].setting);
    EXPECT_NE(text.find(setting), std::string::npos) << text;
    EXPECT_EQ(report["runs"][i]["options"], setting);
    EXPECT_EQ(report["runs"][i]["losses"].size(), diagnosis.runs[i].losses.size());
  }
  const json float16 = report["candidates"].back();
  EXPECT_EQ(float16["problem"], "range") << report;
  EXPECT_NE(float16["options"].get<std::string>().find("encoder in float32"), std::string::npos);
}

TEST_F(Diagnose, arguments_are_checked) {
  const OwnJob job(0);
  const auto loss = [&](std::int64_t step) { return job.loss(step); };
  EXPECT_THROWS(InvalidArgument, "steps", diagnose(loss, *job.model, options(0)));
  EXPECT_THROWS(InvalidArgument, "loss of a step", diagnose({}, *job.model));
  torch::nn::Linear half(2, 2);
  half->to(at::kHalf);
  EXPECT_THROWS(InvalidArgument, "got Half of weight", diagnose(loss, half));
}

TEST(KeepFloat32, only_the_operations_of_its_modules_are_in_float32) {
  const OwnJob job(0);
  const at::Tensor x = job.batches[0].first;
  OwnModule& model = *job.model;
  const auto dtypes = [&] {
    const amp::Autocast autocast(at::kCPU, at::kHalf);
    const at::Tensor first = model.encoder(x), second = model.head(at::relu(first));
    return std::pair(first.scalar_type(), second.scalar_type());
  };
  {
    const amp::KeepFloat32 kept = amp::keep_float32(model, {"encoder"});
    EXPECT_EQ(dtypes(), std::pair(at::kFloat, at::kHalf));
    const amp::Autocast autocast(at::kCPU, at::kHalf);
    EXPECT_TRUE(at::equal(model.encoder(x),
                          at::linear(x.to(at::kDouble).to(at::kFloat),
                                     model.encoder->weight.to(at::kFloat), model.encoder->bias)));
  }
  EXPECT_EQ(dtypes(), std::pair(at::kHalf, at::kHalf));
}

TEST(KeepFloat32, a_product_after_its_module_is_in_float32_until_the_next_module) {
  const OwnJob job(0);
  const at::Tensor x = job.batches[0].first;
  OwnModule& model = *job.model;
  const amp::KeepFloat32 kept = amp::keep_float32(model, {"encoder"});
  for (int step = 0; step < 2; ++step) {
    at::Tensor product, loss;
    {
      const amp::PrecisionScope scope(Precision::kFloat16, at::kCPU);
      EXPECT_EQ(at::mm(x, x.t()).scalar_type(), at::kHalf) << "before the first module";
      const at::Tensor h = model.encoder(x);
      EXPECT_EQ(at::mm(h, h.t()).scalar_type(), at::kFloat);
      const at::Tensor y = model.head(h);
      EXPECT_EQ(at::mm(y, y.t()).scalar_type(), at::kHalf);
      loss = y.to(at::kFloat).sum();
    }
    loss.backward();
  }
}

TEST(KeepFloat32, destruction_on_another_thread_warns_and_ends_it) {
  const OwnJob job(0);
  const at::Tensor x = job.batches[0].first;
  // On its own thread: the leftover callback ends with the thread.
  std::thread([&] {
    auto kept = std::make_unique<amp::KeepFloat32>(amp::diagnosed_model(*job.model).parameters,
                                                   std::vector<std::string>{"encoder"});
    std::vector<std::string> texts;
    std::thread([&] {
      Warnings warnings;
      kept.reset();
      texts = warnings.texts;
    }).join();
    ASSERT_EQ(texts.size(), 1U);
    EXPECT_NE(texts[0].find("another thread"), std::string::npos) << texts[0];
    const amp::Autocast autocast(at::kCPU, at::kHalf);
    EXPECT_EQ(job.model->encoder(x).scalar_type(), at::kHalf);
    const amp::KeepFloat32 next = amp::keep_float32(*job.model, {"encoder"});
    EXPECT_EQ(job.model->encoder(x).scalar_type(), at::kFloat);
  }).join();
}

TEST(KeepFloat32, arguments_are_checked) {
  const OwnJob job(0);
  EXPECT_THROWS(InvalidArgument, "got 'decoder'", amp::keep_float32(*job.model, {"decoder"}));
  const amp::KeepFloat32 none = amp::keep_float32(*job.model, {});
  const amp::KeepFloat32 kept = amp::keep_float32(*job.model, {"head"});
  EXPECT_THROWS(LogicError, "one KeepFloat32 per thread",
                amp::keep_float32(*job.model, {"encoder"}));
}

}  // namespace
}  // namespace mezzo::test
