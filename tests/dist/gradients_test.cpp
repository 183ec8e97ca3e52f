
#include <ATen/core/grad_mode.h>
#include <poll.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"

#include "dist/processes.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::dist {
namespace {

using namespace mezzo::test;

/// Parameters of several dtypes and layouts; the gradients of each rank are integers.
struct Gradients {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<at::Tensor>> by_rank;  // float64, [rank][parameter]

  Gradients(std::int64_t ranks, std::int64_t rank) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      parameters.push_back(at::zeros({3, 5}, dtype));
      parameters.push_back(at::zeros({5, 2}, dtype).t());
      parameters.push_back(at::zeros({}, dtype));
      parameters.push_back(at::zeros({0, 4}, dtype));
    }
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::vector<at::Tensor> gradients;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto seed = static_cast<std::uint64_t>(r * 100) + i;
        gradients.push_back(integers(parameters[i].sizes(), at::kDouble, seed) * 12);
      }
      by_rank.push_back(std::move(gradients));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& own = by_rank[static_cast<std::size_t>(rank)][i];
      parameters[i].mutable_grad() =
          own.to(parameters[i].scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
  }

  at::Tensor sum(std::size_t parameter) const {
    at::Tensor total = at::zeros_like(by_rank.front()[parameter]);
    for (const auto& gradients : by_rank) total = total + gradients[parameter];
    return total;
  }
};

/// A parameter [2] with the gradient [value, value], or without one if value is 0.
at::Tensor parameter_with(double value) {
  const at::Tensor parameter = at::zeros({2}, at::kFloat);
  if (value != 0) parameter.mutable_grad() = at::full({2}, value, at::kFloat);
  return parameter;
}

TEST(AllReduceGradients, whole_numbers_add_up_exactly_in_every_dtype_and_bucket_size) {
  for (const std::int64_t ranks : {2, 4}) {
    on_ranks(ranks, [ranks](ProcessGroup& group) {
      for (const std::int64_t bytes : {1, 64, 1 << 20}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
          const Gradients gradients(ranks, group.rank());
          all_reduce_gradients(gradients.parameters, group, {.op = op, .bucket_bytes = bytes});
          const double divisor = op == ReduceOp::kMean ? static_cast<double>(ranks) : 1;
          for (std::size_t i = 0; i < gradients.parameters.size(); ++i) {
            require(exact(gradients.parameters[i].grad(), gradients.sum(i) / divisor));
          }
        }
      }
    });
  }
}

TEST(AllReduceGradients, a_missing_gradient_counts_as_zeros_where_another_rank_has_one) {
  on_ranks(2, [](ProcessGroup& group) {
    const double own = group.rank() == 0 ? 6 : 0;
    const at::Tensor on_both = parameter_with(2), on_first = parameter_with(own),
                     on_none = parameter_with(0);
    all_reduce_gradients({on_none, on_first, on_both}, group);
    require(!on_none.grad().defined(), "no gradient where no rank has one");
    require(exact(on_first.grad(), at::full({2}, 3.0)));
    require(exact(on_both.grad(), at::full({2}, 2.0)));
  });
}

TEST(AllReduceGradients, a_parameter_listed_twice_is_reduced_once) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor parameter = parameter_with(1);
    all_reduce_gradients({parameter, parameter}, group, {.op = ReduceOp::kSum});
    require(exact(parameter.grad(), at::full({2}, 2.0)));
  });
}

/// A step of a wrapped descent from 1 with gradients that average over two ranks to 2 for `first`
/// (undefined on rank 1) and 3 for `second`. by_masters: reduces the gradients of the masters.
void require_wrapped_step(ProcessGroup& group, amp::ParameterRounding rounding,
                          std::int64_t accumulate, bool by_masters) {
  const at::Tensor first = at::ones({4}, at::kBFloat16).requires_grad_(),
                   second = at::ones({2, 3}, at::kBFloat16).requires_grad_();
  torch::optim::SGD inside(std::vector<at::Tensor>{first, second}, torch::optim::SGDOptions(0.125));
  amp::MixedPrecisionOptimizer optimizer = amp::enable_mixed_precision(
      inside,
      {.precision = amp::Precision::kFloat32, .accumulate = accumulate, .rounding = rounding});
  for (std::int64_t i = 0; i < accumulate; ++i) {
    at::Tensor loss = second.to(at::kFloat).sum() * (group.rank() == 0 ? 5 : 1);
    if (group.rank() == 0) loss = loss + first.to(at::kFloat).sum() * 4;
    optimizer.backward(loss);
  }
  all_reduce_gradients(
      by_masters ? optimizer.master_parameters() : std::vector<at::Tensor>{first, second}, group);
  optimizer.step();
  require(exact(first, at::full({4}, 0.75)));
  require(exact(second, at::full({2, 3}, 0.625)));
}

TEST(AllReduceGradients, wrapped_parameters_of_16_bits_move_alike_on_all_ranks) {
  on_ranks(2, [](ProcessGroup& group) {
    for (const amp::ParameterRounding rounding :
         {amp::ParameterRounding::kMasterWeights, amp::ParameterRounding::kStochastic}) {
      require_wrapped_step(group, rounding, /*accumulate=*/1, /*by_masters=*/false);
      require_wrapped_step(group, rounding, /*accumulate=*/1, /*by_masters=*/true);
      require_wrapped_step(group, rounding, /*accumulate=*/2, /*by_masters=*/true);
    }
  });
}

TEST(AllReduceGradients, infinities_reach_every_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    for (const GradientTraffic traffic : {GradientTraffic::kFloat32, GradientTraffic::kBFloat16}) {
      const double own = group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
      const at::Tensor parameter = parameter_with(own);
      all_reduce_gradients({parameter}, group, {.traffic = traffic});
      require(parameter.grad().isinf().all().item<bool>(), "inf on every rank");
    }
  });
}

TEST(AllReduceGradients, bfloat16_traffic_rounds_each_gradient_and_each_addition) {
  constexpr std::int64_t kRanks = 4, kSize = 64;
  on_ranks(kRanks, [](ProcessGroup& group) {
    at::Tensor sum = at::zeros({kSize}, at::kDouble), absolute = at::zeros({kSize}, at::kDouble);
    const at::Tensor parameter = at::zeros({kSize}, at::kFloat);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      const at::Tensor gradient = filled({kSize}, at::kFloat, [rank](std::uint64_t i) {
        return random_uniform(5, static_cast<std::uint64_t>(rank), i) - 0.5;
      });
      sum = sum + gradient;
      absolute = absolute + gradient.abs();
      if (rank == group.rank()) parameter.mutable_grad() = gradient.clone();
    }
    all_reduce_gradients({parameter}, group,
                         {.op = ReduceOp::kSum, .traffic = GradientTraffic::kBFloat16});
    // half an epsilon for each of `ranks` roundings, doubled for products of such errors
    const double error = static_cast<double>(kRanks) * info(at::kBFloat16).epsilon;
    require(
        near(parameter.grad(), sum, {.abs_sum = absolute, .terms = 0, .operand_epsilon = error}));
    const at::Tensor once = parameter.grad().to(at::kBFloat16).to(at::kFloat);
    require(at::equal(once, parameter.grad()), "sums that have travelled as bfloat16");
  });
}

TEST(AllReduceGradients, bfloat16_traffic_adds_in_bfloat16) {
  constexpr std::int64_t kRanks = 4, kSize = 256;
  on_ranks(kRanks, [](ProcessGroup& group) {
    // 256 + 1 is 256 in bfloat16. For any order of the ranks, three of four neighbors do not add
    // the 256 last. A float32 sum would be 259 for all, which rounds to 260.
    const at::Tensor parameter = at::zeros({kSize});
    const at::Tensor has_large = at::arange(kSize).remainder(kRanks).eq(group.rank());
    parameter.mutable_grad() = at::where(has_large, at::full({kSize}, 256.0), at::ones({kSize}));
    all_reduce_gradients({parameter}, group,
                         {.op = ReduceOp::kSum, .traffic = GradientTraffic::kBFloat16});
    const std::int64_t rounded_once = parameter.grad().eq(260).sum().item<std::int64_t>();
    require(rounded_once <= kSize / 2, fmt::format("{} sums of float32", rounded_once));
    require((parameter.grad() - 259).abs().le(3).all().item<bool>(), "sums");
  });
}

TEST(AllReduceGradients, numbers_beside_the_gradients_are_exact_in_any_traffic) {
  on_ranks(3, [](ProcessGroup& group) {
    for (const std::int64_t bytes : {1, 1 << 20}) {
      const at::Tensor parameter = parameter_with(3.0 * static_cast<double>(group.rank()));
      const at::Tensor beside = at::tensor({1001.0, 0x1p-20}, at::kFloat);
      all_reduce_gradients(
          {parameter}, group,
          {.bucket_bytes = bytes, .traffic = GradientTraffic::kBFloat16, .beside = beside});
      require(at::equal(beside, at::tensor({3003.0, 3 * 0x1p-20}, at::kFloat)), "sums");
      require(at::equal(parameter.grad(), at::full({2}, 3.0)), "a mean");
    }
  });
}

TEST(AllReduceGradients, bfloat16_traffic_leaves_float64_and_float16_exact) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor float64 = at::zeros({1}, at::kDouble), half = at::zeros({1}, at::kHalf);
    float64.mutable_grad() = at::full({1}, 1 + 0x1p-40, at::kDouble);
    half.mutable_grad() = at::full({1}, 1 + 0x1p-10, at::kHalf);
    all_reduce_gradients({float64, half}, group, {.traffic = GradientTraffic::kBFloat16});
    require(exact(float64.grad(), at::full({1}, 1 + 0x1p-40, at::kDouble)));
    require(exact(half.grad(), at::full({1}, 1 + 0x1p-10, at::kDouble)));
  });
}

TEST(AllReduceGradients, numbers_beside_the_gradients_are_summed_and_not_divided) {
  on_ranks(3, [](ProcessGroup& group) {
    for (const std::int64_t bytes : {1, 1 << 20}) {
      at::Tensor parameter = at::zeros({4});
      parameter.mutable_grad() = at::full({4}, 3.0 * static_cast<double>(group.rank()));
      const at::Tensor beside = at::tensor({1.0, static_cast<double>(group.rank())}, at::kFloat);
      all_reduce_gradients({parameter}, group, {.bucket_bytes = bytes, .beside = beside});
      require(at::equal(parameter.grad(), at::full({4}, 3.0)), "a mean");
      require(at::equal(beside, at::tensor({3.0, 3.0}, at::kFloat)), "sums");
    }
  });
}

TEST(AllReduceGradients, a_sparse_gradient_is_refused_on_every_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor parameter = parameter_with(1);
    if (group.rank() == 1) parameter.mutable_grad() = at::ones({2}).to_sparse();
    try {
      all_reduce_gradients({parameter_with(1), parameter}, group);
      require(false, "an error");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      require(text.find("parameter 1") != std::string::npos, text);
    }
  });
}

TEST(AllReduceGradients, wrong_options_are_refused) {
  const ProcessGroup alone;
  EXPECT_THROW(all_reduce_gradients({}, alone, {.op = ReduceOp::kMax}), InvalidArgument);
  EXPECT_THROW(all_reduce_gradients({}, alone, {.bucket_bytes = 0}), InvalidArgument);
  EXPECT_THROW(all_reduce_gradients({at::Tensor()}, alone), InvalidArgument);
}

TEST(AllReduceGradients, one_process_keeps_its_gradients) {
  const at::Tensor parameter = parameter_with(3);
  all_reduce_gradients({parameter}, ProcessGroup());
  EXPECT_TRUE(exact(parameter.grad(), at::full({2}, 3.0)));
}

TEST(AllReduceGradients, what_is_done_meanwhile_is_done_once) {
  const auto calls_of = [](const std::vector<at::Tensor>& parameters, const ProcessGroup& group,
                           std::int64_t bucket_bytes) {
    int calls = 0;
    all_reduce_gradients(parameters, group,
                         {.bucket_bytes = bucket_bytes, .meanwhile = [&calls] { ++calls; }});
    return calls;
  };
  const ProcessGroup alone;
  EXPECT_EQ(calls_of({parameter_with(1), parameter_with(2)}, alone, 1), 1);
  EXPECT_EQ(calls_of({}, alone, 1), 1);
  on_ranks(2, [&](ProcessGroup& group) {
    for (const std::int64_t bytes : {1, 1 << 20}) {
      require(calls_of({}, group, bytes) == 1, "one call without parameters");
      require(calls_of({parameter_with(0)}, group, bytes) == 1, "one call without gradients");
      require(
          calls_of({parameter_with(1), parameter_with(2), parameter_with(3)}, group, bytes) == 1,
          "one call whatever the buckets");
    }
  });
}

TEST(AllReduceGradients, what_is_done_meanwhile_does_not_wait_for_other_ranks) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  on_ranks(2, [&ends](ProcessGroup& group) {
    const at::Tensor parameter = parameter_with(static_cast<double>(group.rank() + 1));
    bool has_grad_mode = false;
    GradientOptions options{.op = ReduceOp::kSum};
    if (group.rank() == 0) {
      options.meanwhile = [&] {
        has_grad_mode = at::GradMode::is_enabled();
        require(::write(ends[1], "!", 1) == 1, "a byte for rank 1");
      };
    } else {
      // Sends nothing before rank 0 has started to send.
      pollfd begun{.fd = ends[0], .events = POLLIN, .revents = 0};
      constexpr int kMilliseconds = 15000;
      require(::poll(&begun, 1, kMilliseconds) == 1, "rank 0 begins before rank 1 has come");
    }
    all_reduce_gradients({parameter}, group, options);
    require(exact(parameter.grad(), at::full({2}, 3.0)));
    require(group.rank() != 0 || has_grad_mode, "the caller's gradient mode");
  });
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(AllReduceGradients, what_fails_meanwhile_is_thrown_there_with_the_gradients_reduced) {
  on_ranks(2, [](ProcessGroup& group) {
    for (const std::int64_t bytes : {1, 1 << 20}) {
      const at::Tensor first = parameter_with(static_cast<double>(group.rank() + 1)),
                       second = parameter_with(group.rank() == 0 ? 0 : 4);
      GradientOptions options{.op = ReduceOp::kSum, .bucket_bytes = bytes};
      if (group.rank() == 0) options.meanwhile = [] { throw std::out_of_range("no batch"); };
      bool failed = false;
      try {
        all_reduce_gradients({first, second}, group, options);
      } catch (const std::out_of_range&) {
        failed = true;
      }
      require(failed == (group.rank() == 0), "an error on rank 0 alone");
      require(exact(first.grad(), at::full({2}, 3.0)));
      require(exact(second.grad(), at::full({2}, 4.0)));
      require(group.all_reduce(1.0, ReduceOp::kSum) == 2, "a group that goes on");
    }
  });
}

/// Parameters and buffers that differ between ranks.
struct Mixed : torch::nn::Module {
  Mixed(std::int64_t rank, std::int64_t columns) {
    const auto seed = static_cast<std::uint64_t>(rank);
    weight = register_parameter("weight", integers({2, columns}, at::kFloat, seed).t());
    low = register_parameter("low", integers({4}, at::kBFloat16, seed + 50));
    steps = register_buffer("steps", at::full({}, rank, at::kLong));
    flags = register_buffer("flags", at::full({3}, rank % 2, at::kBool));
  }
  at::Tensor weight, low, steps, flags;
};

TEST(BroadcastParameters, gives_every_rank_the_parameters_and_buffers_of_rank_0) {
  on_ranks(3, [](ProcessGroup& group) {
    Mixed own(group.rank(), 3);
    const Mixed first(0, 3);
    broadcast_parameters(own, group);
    require(exact(own.weight, first.weight));
    require(exact(own.low, first.low));
    require(exact(own.steps, first.steps));
    require(at::equal(own.flags, first.flags), "flags");
    require(own.weight.requires_grad(), "a parameter still");
  });
}

TEST(BroadcastParameters, another_shape_is_refused_on_every_rank_with_its_rank) {
  on_ranks(3, [](ProcessGroup& group) {
    Mixed own(group.rank(), group.rank() == 2 ? 4 : 3);
    try {
      broadcast_parameters(own, group);
      require(false, "an error");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      require(text.find("on ranks 2") != std::string::npos, text);
    }
  });
}

TEST(Metrics, counts_and_sums_of_all_ranks_give_one_share_and_one_mean) {
  on_ranks(2, [](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    const Correct all = sum_over_ranks(first ? Correct{3, 4} : Correct{0, 8}, group);
    require(all.correct == 3 && all.count == 12 && all.share() == 0.25, "3 of 12");
    require(mean_over_ranks(first ? 6 : 0, first ? 3 : 0, group) == 2, "a mean of 2");
    require(std::isnan(sum_over_ranks({}, group).share()), "no share of nothing");
  });
}

}  // namespace
}  // namespace mezzo::dist
