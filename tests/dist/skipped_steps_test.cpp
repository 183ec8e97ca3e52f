#include <algorithm>
#include <array>

#include <torch/optim/sgd.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/dist/data_parallel.h"

#include "dist/processes.h"
#include "support/tensors.h"
#include "support/tolerance.h"

/// Which steps a descent with loss scaling skips, and its scales, in one process and in several.
namespace mezzo::dist {
namespace {

using namespace mezzo::test;

constexpr std::int64_t kJoinedRows = 32, kColumns = 4;
constexpr int kDescentSteps = 20;
constexpr double kDescentRate = 0.125;
constexpr double kFirstScale = 16;
constexpr std::int64_t kStepsToGrow = 3;

/// A step with an infinite target in one row of the joined batch; each of four processes has one
/// such step.
struct Overflow {
  int step;
  std::int64_t row;
};
constexpr std::array<Overflow, 4> kOverflows = {{{2, 0}, {3, 13}, {9, 20}, {16, 31}}};

const Overflow* overflow_of(int step) {
  const auto* const entry =
      std::find_if(kOverflows.begin(), kOverflows.end(),
                   [step](const Overflow& each) { return each.step == step; });
  return entry == kOverflows.end() ? nullptr : entry;
}

/// The joined batch. Inputs are multiples of 1/8 in [-1, 1), exact in 16 bits.
at::Tensor joined_inputs() {
  return filled({kJoinedRows, kColumns}, at::kFloat, [](std::uint64_t i) {
    return static_cast<double>(random_bits(21, 0, i) % 16) / 8 - 1;
  });
}

at::Tensor joined_targets(int step) {
  const at::Tensor targets = filled(
      {kJoinedRows}, at::kFloat, [](std::uint64_t i) { return 2 * random_uniform(22, 0, i) - 1; });
  if (const Overflow* overflow = overflow_of(step)) {
    targets[overflow->row].fill_(std::numeric_limits<float>::infinity());
  }
  return targets;
}

struct Descent {
  std::vector<int> skipped;
  std::vector<double> scales = {};  // after each step
  at::Tensor parameters = {};       // weight, then bias
};

/// Scales according to the dynamic rule for kOverflows, and a float64 descent that skips those
/// steps.
struct PlainDescent : Descent {
  double rounded = 0, gradients = 0;  // magnitudes of terms, for the bound

  PlainDescent() {
    double scale = kFirstScale;
    std::int64_t clean = 0;
    parameters = at::ones({kColumns + 1}, at::kDouble);
    const at::Tensor rows =
        at::cat({joined_inputs().to(at::kDouble), at::ones({kJoinedRows, 1}, at::kDouble)}, 1);
    for (int step = 0; step < kDescentSteps; ++step) {
      if (overflow_of(step) != nullptr) {
        skipped.push_back(step);
        scale /= 2;
        clean = 0;
      } else {
        const at::Tensor targets = joined_targets(step).to(at::kDouble);
        const at::Tensor terms = at::matmul(rows.abs(), parameters.abs()) + targets.abs();
        const at::Tensor sizes = kDescentRate * at::matmul(rows.abs().t(), terms) / kJoinedRows;
        const at::Tensor error = at::matmul(rows, parameters) - targets;
        parameters = parameters - kDescentRate * at::matmul(rows.t(), error) / kJoinedRows;
        rounded += (parameters.abs() + sizes).norm().item<double>();
        gradients += sizes.norm().item<double>();
        if (++clean == kStepsToGrow) {
          scale *= 2;
          clean = 0;
        }
      }
      scales.push_back(scale);
    }
  }

  /// A step with this rate does not increase the distance of two parameter vectors: the largest
  /// eigenvalue of rows^T rows / count is at most its trace, kColumns + 1 < 1 / kDescentRate. So
  /// the errors of the steps at most add up. In 16 bits each term of a gradient is rounded eight
  /// times by half an epsilon: weight, product, sum, bias and prediction, the error, its product
  /// with the input and the sum over rows. Two more cover products of such errors and float16's
  /// subnormals, off by 2^-25 of a scale of at least 4.
  SumBound bound(at::ScalarType storage) const {
    static_assert(kDescentRate * (kColumns + 1) < 1);
    constexpr double kTerms = kJoinedRows + 2 * kColumns + 16, kRoundings = 10;
    double limit = kTerms * info(at::kFloat).epsilon * rounded;
    if (storage != at::kFloat) {
      limit += kRoundings / 2 * info(storage).epsilon * gradients;
    }
    return {
        .abs_sum = at::full({kColumns + 1}, limit, at::kDouble), .terms = 0, .operand_epsilon = 1};
  }
};

/// This rank's part of the descent: its rows of the joined batch, a loss divided by the total
/// count, and summed gradients. `storage`: dtype of activations and their gradients; parameters
/// are float32.
Descent shared_descent(const ProcessGroup& group, at::ScalarType storage) {
  at::Tensor weight = at::ones({kColumns}).requires_grad_();
  at::Tensor bias = at::ones({1}).requires_grad_();
  torch::optim::SGD optimizer(std::vector<at::Tensor>{weight, bias},
                              torch::optim::SGDOptions(kDescentRate));
  amp::GradScaler scaler(
      synchronized({.policy = amp::LossScalePolicy::dynamic(
                        {.initial_scale = kFirstScale, .growth_interval = kStepsToGrow})},
                   group));
  const std::int64_t count = kJoinedRows / group.world_size(), first = count * group.rank();
  const at::Tensor inputs = joined_inputs().narrow(0, first, count).to(storage);
  Descent descent;
  for (int step = 0; step < kDescentSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor prediction = (inputs * weight.to(storage)).sum(1) + bias.to(storage);
    const at::Tensor error =
        prediction.to(at::kFloat) - joined_targets(step).narrow(0, first, count);
    scaler.scale(error.square().sum() / (2 * kJoinedRows)).backward();
    all_reduce_gradients({weight, bias}, group, {.op = ReduceOp::kSum});
    if (scaler.step(optimizer) == amp::StepOutcome::kSkipped) descent.skipped.push_back(step);
    scaler.update();
    descent.scales.push_back(scaler.get_scale());
  }
  descent.parameters = at::cat({weight, bias}).detach();
  return descent;
}

void require_same_steps(const Descent& got, const Descent& expected) {
  require(got.skipped == expected.skipped,
          fmt::format("skipped {}, got {}", expected.skipped, got.skipped));
  require(got.scales == expected.scales,
          fmt::format("scales {}, got {}", expected.scales, got.scales));
}

TEST(SkippedSteps, one_process_skips_the_steps_with_an_infinity_in_the_joined_batch) {
  const PlainDescent plain;
  EXPECT_EQ(plain.skipped, (std::vector<int>{2, 3, 9, 16}));
  // In a fork, because a process that has run a backward cannot fork working children.
  EXPECT_TRUE(all_good(run_processes(1, [&plain](std::int64_t /*rank*/) {
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Descent one = shared_descent(ProcessGroup(), storage);
      require_same_steps(one, plain);
      require(near(one.parameters, plain.parameters, plain.bound(storage)));
    }
  })));
}

TEST(SkippedSteps, several_processes_skip_the_steps_that_one_does_on_the_joined_batch) {
  for (const std::int64_t ranks : {2, 4}) {
    on_ranks(ranks, [](ProcessGroup& group) {
      const PlainDescent plain;
      for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Descent one = shared_descent(ProcessGroup(), storage);
        const Descent own = shared_descent(group, storage);
        require_same_steps(one, plain);
        require_same_steps(own, one);
        require(near(own.parameters, plain.parameters, plain.bound(storage)));
        const at::Tensor all = group.all_gather(own.parameters);
        require(at::equal(all, own.parameters.expand_as(all)), "the same bits on all ranks");
      }
    });
  }
}

}  // namespace
}  // namespace mezzo::dist
