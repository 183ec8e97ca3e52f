#include "mezzo/dist/data_parallel.h"

#include <memory>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include "mezzo/amp/scaler/grad_scaler.h"

#include "dist/processes.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::dist {
namespace {

using namespace mezzo::test;

constexpr std::int64_t kFeatures = 4, kRowsOfRank = 8;  // rows of each rank

/// y = x weight + bias, with a parameter that only some steps use.
struct Line : torch::nn::Module {
  explicit Line(double start) {
    weight = register_parameter("weight", at::full({kFeatures}, start, at::kFloat));
    bias = register_parameter("bias", at::full({1}, start, at::kFloat));
  }

  void add_extra() { extra = register_parameter("extra", at::zeros({2}, at::kFloat)); }
  at::Tensor forward(const at::Tensor& x) const { return at::matmul(x, weight) + bias; }

  at::Tensor weight, bias, extra;
};

/// Rows of one rank in [-1, 1).
struct Rows {
  at::Tensor x, y;
};

Rows rows_of(std::int64_t rank) {
  const auto draw = [rank](at::IntArrayRef sizes, std::uint64_t seed) {
    return filled(sizes, at::kFloat, [=](std::uint64_t i) {
      return 2 * random_uniform(seed, static_cast<std::uint64_t>(rank), i) - 1;
    });
  };
  return {draw({kRowsOfRank, kFeatures}, 1), draw({kRowsOfRank}, 2)};
}

at::Tensor loss_of(const Line& line, const Rows& rows) {
  return (line.forward(rows.x) - rows.y).square().mean() / 2;
}

/// Float64 gradient descent of one process on the rows of all ranks, with the magnitudes of the
/// terms rounded to float32 and of the terms sent.
struct JoinedDescent {
  static constexpr double kRate = 0.125;
  static constexpr int kSteps = 20;

  at::Tensor parameters = at::ones({kFeatures + 1}, at::kDouble);  // weight, then bias
  double rounded = 0, travelled = 0;

  explicit JoinedDescent(std::int64_t ranks) {
    std::vector<at::Tensor> x, y;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      x.push_back(rows_of(rank).x.to(at::kDouble));
      y.push_back(rows_of(rank).y.to(at::kDouble));
    }
    const at::Tensor targets = at::cat(y);
    const at::Tensor rows = at::cat({at::cat(x), at::ones({targets.size(0), 1}, at::kDouble)}, 1);
    const auto count = static_cast<double>(targets.size(0));
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor terms = at::matmul(rows.abs(), parameters.abs()) + targets.abs();
      const at::Tensor gradient_terms = at::matmul(rows.abs().t(), terms) / count;
      const at::Tensor error = at::matmul(rows, parameters) - targets;
      parameters = parameters - kRate * at::matmul(rows.t(), error) / count;
      rounded += (parameters.abs() + kRate * gradient_terms).norm().item<double>();
      travelled += (kRate * gradient_terms).norm().item<double>();
    }
  }

  /// A step with this rate does not increase the distance of two parameter vectors: the largest
  /// eigenvalue of rows^T rows / count is at most its trace, kFeatures + 1 < 1 / kRate. So errors
  /// of the steps at most add up in the Euclidean norm, which bounds each element.
  SumBound bound(double travel_epsilon) const {
    static_assert(kRate * (kFeatures + 1) < 1);
    constexpr double kTerms = 4 * kRowsOfRank + 2 * kFeatures + 16;
    const double limit = kTerms * info(at::kFloat).epsilon * rounded + travel_epsilon * travelled;
    return {
        .abs_sum = at::full({kFeatures + 1}, limit, at::kDouble), .terms = 0, .operand_epsilon = 1};
  }
};

void descend(const Line& line, double rate) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : line.parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad() * rate);
  }
}

/// This rank's parameters after JoinedDescent's steps.
at::Tensor parallel_descent(const ProcessGroup& group, DataParallelOptions options) {
  const auto line = std::make_shared<Line>(group.rank() == 0 ? 1.0 : 5.0);
  DataParallel parallel(line, group, options);
  const Rows rows = rows_of(group.rank());
  for (int step = 0; step < JoinedDescent::kSteps; ++step) {
    line->zero_grad();
    const at::Tensor loss = loss_of(*line, rows);
    parallel.prepare({loss});
    loss.backward();
    descend(*line, JoinedDescent::kRate);
  }
  return at::cat({line->weight, line->bias}).detach();
}

TEST(DataParallel, parameters_equal_those_of_one_process_on_the_joined_batch) {
  for (const std::int64_t ranks : {2, 4}) {
    on_ranks(ranks, [ranks](ProcessGroup& group) {
      const JoinedDescent joined(ranks);
      for (const bool find_unused : {false, true}) {
        for (const std::int64_t bytes : {1, 1 << 20}) {
          const at::Tensor own = parallel_descent(
              group, {.bucket_bytes = bytes, .find_unused_parameters = find_unused});
          require(near(own, joined.parameters, joined.bound(0)));
          const at::Tensor all = group.all_gather(own);
          require(at::equal(all, own.expand_as(all)), "the same bits on all ranks");
        }
      }
    });
  }
}

TEST(DataParallel, bfloat16_traffic_stays_within_its_rounding) {
  for (const std::int64_t ranks : {2, 4}) {
    on_ranks(ranks, [ranks](ProcessGroup& group) {
      const JoinedDescent joined(ranks);
      const double epsilon = static_cast<double>(ranks) * info(at::kBFloat16).epsilon;
      const at::Tensor low = parallel_descent(group, {.traffic = GradientTraffic::kBFloat16});
      require(near(low, joined.parameters, joined.bound(epsilon)));
      require(!at::equal(low, parallel_descent(group, {})), "other bits than with float32 traffic");
      const at::Tensor all = group.all_gather(low);
      require(at::equal(all, low.expand_as(all)), "the same bits on all ranks");
    });
  }
}

/// Integer rows; their number is a power of two, so gradients at integer parameters are exact.
Rows whole_rows(std::int64_t rank, std::uint64_t batch) {
  const std::uint64_t seed = static_cast<std::uint64_t>(rank) * 10 + batch;
  return {integers({kRowsOfRank, kFeatures}, at::kFloat, seed),
          integers({kRowsOfRank}, at::kFloat, seed + 5)};
}

/// The gradient of the loss at weight 1 and bias 1.
at::Tensor whole_gradient(const Rows& rows) {
  const at::Tensor error = rows.x.sum(1) + 1 - rows.y;
  return at::matmul(rows.x.t(), error) / kRowsOfRank;
}

TEST(DataParallel, without_synchronisation_gradients_accumulate_on_their_own_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    const auto line = std::make_shared<Line>(1.0);
    DataParallel parallel(line, group);
    for (int repeat = 0; repeat < 3; ++repeat) {
      line->zero_grad();
      const Rows first = whole_rows(group.rank(), 0), second = whole_rows(group.rank(), 1);
      {
        const DataParallel::NoSync no_sync = parallel.no_sync();
        const at::Tensor loss = loss_of(*line, first);
        parallel.prepare({loss});
        loss.backward();
        require(exact(line->weight.grad(), whole_gradient(first)));
      }
      const at::Tensor loss = loss_of(*line, second);
      parallel.prepare({loss});
      loss.backward();
      at::Tensor expected = at::zeros({kFeatures});
      for (const std::int64_t rank : {0, 1}) {
        for (const std::uint64_t batch : {0, 1}) {
          expected = expected + whole_gradient(whole_rows(rank, batch)) / 2;
        }
      }
      require(exact(line->weight.grad(), expected));
    }
  });
}

TEST(DataParallel, unused_parameters_are_no_error_where_they_are_allowed) {
  on_ranks(2, [](ProcessGroup& group) {
    const auto line = std::make_shared<Line>(1.0);
    line->add_extra();
    DataParallel parallel(line, group, {.find_unused_parameters = true});
    // none, only rank 1, both, only rank 0, none: the set changes from step to step
    for (const auto& [on_first, on_second] : std::vector<std::pair<bool, bool>>{
             {false, false}, {false, true}, {true, true}, {true, false}, {false, false}}) {
      line->zero_grad();
      const bool used = group.rank() == 0 ? on_first : on_second;
      const Rows rows = whole_rows(group.rank(), 0);
      at::Tensor loss = loss_of(*line, rows);
      if (used) loss = loss + (group.rank() + 1) * line->extra.sum();
      parallel.prepare({loss});
      loss.backward();
      const double expected = ((on_first ? 1 : 0) + (on_second ? 2 : 0)) / 2.0;
      if (expected == 0) {
        require(!line->extra.grad().defined(), "no gradient where no rank has one");
      } else {
        require(exact(line->extra.grad(), at::full({2}, expected)));
      }
      const at::Tensor mean =
          (whole_gradient(whole_rows(0, 0)) + whole_gradient(whole_rows(1, 0))) / 2;
      require(exact(line->weight.grad(), mean));
    }
  });
}

TEST(DataParallel, an_unused_parameter_is_otherwise_named_by_the_backward) {
  on_ranks(2, [](ProcessGroup& group) {
    const auto line = std::make_shared<Line>(1.0);
    line->add_extra();
    DataParallel parallel(line, group);
    const at::Tensor loss = loss_of(*line, whole_rows(group.rank(), 0));
    parallel.prepare({loss});
    try {
      loss.backward();
      require(false, "an error");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      require(text.find("none of extra") != std::string::npos, text);
    }
    bool refused = false;
    try {
      parallel.prepare({loss_of(*line, whole_rows(group.rank(), 0))});
    } catch (const LogicError&) {
      refused = true;
    }
    require(refused, "no step after it");
  });
}

TEST(DataParallel, a_backward_that_was_not_prepared_is_refused) {
  on_ranks(2, [](ProcessGroup& group) {
    const auto line = std::make_shared<Line>(1.0);
    const Rows rows = whole_rows(group.rank(), 0);
    {
      DataParallel parallel(line, group);
      for (int step = 0; step < 2; ++step) {
        bool refused = false;
        try {
          loss_of(*line, rows).backward();
        } catch (const LogicError&) {
          refused = true;
        }
        require(refused, "an error");
        line->zero_grad();
        const at::Tensor loss = loss_of(*line, rows);
        parallel.prepare({loss});
        loss.backward();
      }
    }
    line->zero_grad();
    loss_of(*line, rows).backward();  // plain again
    require(exact(line->weight.grad(), whole_gradient(rows)));
  });
}

TEST(DataParallel, a_rank_whose_backward_fails_is_named_by_the_others) {
  const auto endings = run_group(3, std::chrono::minutes(5), [](ProcessGroup& group) {
    auto line = std::make_shared<Line>(1.0);
    dist::DataParallel parallel(line, group);
    if (group.rank() == 2) ::raise(SIGKILL);
    const at::Tensor loss = loss_of(*line, rows_of(group.rank()));
    if (group.rank() == 1) group.barrier();
    parallel.prepare({loss});
    loss.backward();
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_FALSE(endings[rank].good || endings[rank].out_of_time);
    // The other survivor may have ended before this rank checked.
    const std::string& message = endings[rank].message;
    EXPECT_TRUE(message.find("no answer from rank 2") != std::string::npos ||
                message.find(fmt::format("no answer from ranks {}, 2", 1 - rank)) !=
                    std::string::npos)
        << message;
  }
}

TEST(DataParallel, a_backward_that_fails_does_not_wait_for_other_ranks) {
  const auto endings = run_group(2, std::chrono::minutes(5), [](ProcessGroup& group) {
    const at::Tensor processes =
        group.all_gather(at::full({}, static_cast<std::int64_t>(::getpid()), at::kLong));
    const auto line = std::make_shared<Line>(1.0);
    DataParallel parallel(line, group, {.bucket_bytes = 1, .find_unused_parameters = true});
    if (group.rank() == 1) {
      const auto first = static_cast<pid_t>(processes[0].item<std::int64_t>());
      while (::kill(first, 0) == 0) ::usleep(5000);  // until it has ended
      return;
    }
    // Backward runs in reverse order of creation: the sum of bias has started by then.
    const at::Tensor failing = 2 * line->weight;
    failing.register_hook([](const at::Tensor&) { throw std::runtime_error("the user's own"); });
    const at::Tensor sum = failing.sum();
    const at::Tensor loss = (2 * line->bias).sum() + sum;
    parallel.prepare({loss});
    loss.backward();
  });
  EXPECT_TRUE(has(endings[0].message, "the user's own")) << endings[0].message;
  EXPECT_FALSE(endings[0].out_of_time);
  EXPECT_TRUE(endings[1].good) << endings[1].message;
}

TEST(DataParallel, wrong_arguments_are_refused) {
  const auto line = std::make_shared<Line>(1.0);
  const ProcessGroup alone;
  EXPECT_THROW(DataParallel(nullptr, alone), InvalidArgument);
  EXPECT_THROW(DataParallel(line, alone, {.bucket_bytes = 0}), InvalidArgument);
  EXPECT_THROW(DataParallel(std::make_shared<torch::nn::Module>(), alone), InvalidArgument);
  DataParallel parallel(line, alone);
  EXPECT_THROW(parallel.prepare({}), InvalidArgument);
  EXPECT_THROW(parallel.prepare({at::ones({})}), InvalidArgument);
}

TEST(SynchronizedScaler, all_ranks_skip_where_one_meets_an_infinity) {
  on_ranks(2, [](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    const double own_scale = first ? 1024 : 8;
    amp::GradScaler scaler(synchronized(
        {.policy = amp::LossScalePolicy::dynamic({.initial_scale = own_scale})}, group));
    synchronize(scaler, group);
    require(scaler.get_scale() == 1024, "the scale of rank 0");
    at::Tensor weight = at::ones({1}).requires_grad_();
    torch::optim::SGD optimizer(std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(1));
    for (const std::int64_t overflows : {1, -1, 0, -1}) {  // rank that overflows; -1: none
      optimizer.zero_grad();
      const double factor =
          overflows == group.rank() ? std::numeric_limits<double>::infinity() : 0.25;
      scaler.scale(weight * factor).sum().backward();
      const amp::StepOutcome outcome = scaler.step(optimizer);
      scaler.update();
      const bool skipped = outcome == amp::StepOutcome::kSkipped;
      require(skipped == (overflows >= 0), "skipped on all ranks or on none");
    }
    require(scaler.get_scale() == 256, "halved twice");
    require(scaler.skipped_steps() == 2, "two steps skipped");
    require(weight.item<double>() == 0.5, "two steps made");
  });
}

TEST(SynchronizedScaler, scalers_of_different_kinds_are_refused_on_every_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    amp::GradScaler scaler({.enabled = group.rank() == 0});
    bool refused = false;
    try {
      synchronize(scaler, group);
    } catch (const InvalidArgument&) {
      refused = true;
    }
    require(refused, "an error");
  });
}

}  // namespace
}  // namespace mezzo::dist
