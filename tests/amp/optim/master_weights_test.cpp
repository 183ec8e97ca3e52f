#include <memory>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include "amp/scaler_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using amp::MasterWeights;
using amp::ParameterRounding;

constexpr auto kStored = ParameterRounding::kMasterWeights;
constexpr auto kStochastic = ParameterRounding::kStochastic;

at::Tensor parameter(std::int64_t count, double value, at::ScalarType dtype = at::kBFloat16) {
  return at::full({count}, value, on_device(dtype)).requires_grad_();
}

/// One step with `gradient` for every element of `weight`.
void step(torch::optim::Optimizer& optimizer, MasterWeights& masters, const at::Tensor& weight,
          double gradient, std::uint64_t number = 0) {
  weight.mutable_grad() = at::full_like(weight, gradient).detach();
  masters.collect_gradients();
  masters.begin_step();
  optimizer.step();
  masters.end_step(number);
}

const at::Tensor& member(const torch::optim::Optimizer& optimizer, std::size_t i = 0) {
  return optimizer.param_groups().at(0).params().at(i);
}

TEST(MasterWeights, updates_below_the_gap_add_up_where_plain_bfloat16_stalls) {
  // The gap of bfloat16 above 1 is 2^-7; each step is an eighth of half of it.
  constexpr double kUpdate = 0x1p-11;
  const at::Tensor plain = parameter(3, 1.0), stored = parameter(3, 1.0);
  torch::optim::SGD plain_optimizer = descent({plain}), optimizer = descent({stored});
  MasterWeights masters(optimizer, kStored);
  for (int i = 0; i < 64; ++i) {
    plain.mutable_grad() = at::full_like(plain, -kUpdate).detach();
    plain_optimizer.step();
    step(optimizer, masters, stored, -kUpdate);
  }
  EXPECT_TRUE(exact(plain, at::ones({3})));
  EXPECT_TRUE(exact(masters.masters().at(0), at::full({3}, 1 + 64 * kUpdate)));
  EXPECT_TRUE(exact(stored, at::full({3}, 1 + 64 * kUpdate)));
}

TEST(MasterWeights, stochastic_rounding_makes_the_same_progress_on_average) {
  constexpr std::int64_t kElements = 20'000;
  constexpr int kUpdates = 64;
  constexpr double kUpdate = 0x1p-11, kGap = 0x1p-7;
  const at::Tensor weight = parameter(kElements, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStochastic, /*seed=*/11);
  for (std::uint64_t i = 0; i < kUpdates; ++i) step(optimizer, masters, weight, -kUpdate, i);
  // Each step moves an element by one gap with probability update / gap.
  const double share = kUpdate / kGap;
  const double deviation = kGap * std::sqrt(share * (1 - share) * kUpdates / kElements);
  const double mean = weight.detach().to(at::kDouble).mean().item<double>();
  EXPECT_LE(std::abs(mean - (1 + kUpdates * kUpdate)), 5 * deviation);
}

TEST(MasterWeights, the_parameter_is_the_master_rounded_and_the_same_tensor) {
  const at::Tensor weight = leaf(uniform({40}, at::kHalf, 1));
  const void* const storage = weight.data_ptr();
  torch::optim::Adam optimizer(std::vector<at::Tensor>{weight}, 0.01);
  MasterWeights masters(optimizer, kStored);
  for (int i = 0; i < 5; ++i) {
    step(optimizer, masters, weight, 0.5);
    EXPECT_TRUE(exact_rounded(weight, masters.masters().at(0)));
  }
  EXPECT_TRUE(masters.parameters().at(0).is_same(weight));
  EXPECT_EQ(weight.data_ptr(), storage);
  EXPECT_EQ(weight.scalar_type(), at::kHalf);
  EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
}

TEST(MasterWeights, equals_float32_training_of_the_masters) {
  const at::Tensor weight = leaf(uniform({40}, at::kBFloat16, 2));
  const at::Tensor float32 = leaf(weight.detach().to(at::kFloat));
  torch::optim::Adam optimizer(std::vector<at::Tensor>{weight}, 0.01);
  torch::optim::Adam reference(std::vector<at::Tensor>{float32}, 0.01);
  MasterWeights masters(optimizer, kStored);
  for (int i = 0; i < 10; ++i) {
    step(optimizer, masters, weight, 1.0 / (1 << i));
    float32.mutable_grad() = at::full_like(float32, 1.0 / (1 << i)).detach();
    reference.step();
  }
  EXPECT_TRUE(same_bits(masters.masters().at(0), float32));
}

TEST(MasterWeights, gradients_are_summed_in_float32_and_dropped) {
  const at::Tensor weight = parameter(2, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStored);
  set_gradient(weight, {1.0, 2.0});
  masters.collect_gradients();
  EXPECT_FALSE(weight.grad().defined());
  set_gradient(weight, {0x1p-12, 0x1p-12});
  masters.collect_gradients();
  const at::Tensor sum = member(optimizer).grad();
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(sum, numbers({1 + 0x1p-12, 2 + 0x1p-12})));
  masters.begin_step();
  masters.end_step(0);
  EXPECT_FALSE(member(optimizer).grad().defined());
}

TEST(MasterWeights, a_sparse_gradient_stays_sparse) {
  const at::Tensor weight = parameter(4, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStored);
  weight.mutable_grad() =
      at::sparse_coo_tensor(on_device(at::tensor({1, 3}, at::kLong)).view({1, 2}),
                            numbers({0.5, 0.25}, at::kBFloat16), {4});
  masters.collect_gradients();
  EXPECT_TRUE(member(optimizer).grad().is_sparse());
  masters.begin_step();
  optimizer.step();
  masters.end_step(0);
  EXPECT_TRUE(exact(weight, numbers({1.0, 0.5, 1.0, 0.75})));
}

TEST(MasterWeights, sparse_and_dense_gradients_add_up_in_either_order) {
  for (const bool sparse_first : {true, false}) {
    const at::Tensor weight = parameter(3, 1.0);
    torch::optim::SGD optimizer = descent({weight});
    MasterWeights masters(optimizer, kStored);
    for (const bool sparse : {sparse_first, !sparse_first}) {
      const at::Tensor gradient = numbers({0.0, 0.5, 0.0}, at::kBFloat16);
      weight.mutable_grad() = sparse ? gradient.to_sparse() : gradient;
      masters.collect_gradients();
    }
    EXPECT_TRUE(exact(member(optimizer).grad(), numbers({0.0, 1.0, 0.0})));
  }
}

TEST(MasterWeights, wide_parameters_stay_in_their_groups) {
  const at::Tensor bfloat16 = parameter(2, 1.0), single = leaf({1.0}),
                   twice = leaf({1.0}, at::kDouble);
  torch::optim::SGD optimizer = descent({single, bfloat16, twice});
  const MasterWeights masters(optimizer, kStored);
  EXPECT_EQ(masters.size(), 1U);
  EXPECT_TRUE(member(optimizer, 0).is_same(single) && member(optimizer, 2).is_same(twice));
  EXPECT_TRUE(masters.original(member(optimizer, 1)).is_same(bfloat16));
  EXPECT_TRUE(masters.original(single).is_same(single));
}

TEST(MasterWeights, state_follows_to_the_master_as_float32_and_back) {
  const at::Tensor weight = parameter(3, 1.0);
  torch::optim::Adam optimizer(std::vector<at::Tensor>{weight}, 0.01);
  set_gradient(weight, {1.0, -2.0, 3.0});
  optimizer.step();
  const auto state_of = [&](const at::Tensor& tensor) -> torch::optim::AdamParamState& {
    return static_cast<torch::optim::AdamParamState&>(
        *optimizer.state().at(tensor.unsafeGetTensorImpl()));
  };
  const at::Tensor before = state_of(weight).exp_avg().clone();
  {
    MasterWeights masters(optimizer, kStored);
    EXPECT_EQ(optimizer.state().count(weight.unsafeGetTensorImpl()), 0U);
    torch::optim::AdamParamState& state = state_of(masters.masters().at(0));
    EXPECT_EQ(state.step(), 1);
    EXPECT_EQ(state.exp_avg().scalar_type(), at::kFloat);
    EXPECT_EQ(state.exp_avg_sq().scalar_type(), at::kFloat);
    EXPECT_TRUE(exact(state.exp_avg(), before));
    step(optimizer, masters, weight, 1.0);
  }
  EXPECT_TRUE(member(optimizer).is_same(weight));
  EXPECT_EQ(state_of(weight).step(), 2);
  EXPECT_EQ(optimizer.state().size(), 1U);
}

TEST(MasterWeights, state_that_an_optimizer_makes_at_once_becomes_float32) {
  const at::Tensor weight = parameter(3, 1.0);
  torch::optim::Adagrad optimizer(std::vector<at::Tensor>{weight}, 0.01);
  MasterWeights masters(optimizer, kStochastic);
  step(optimizer, masters, weight, 1.0);
  const auto& state = static_cast<torch::optim::AdagradParamState&>(
      *optimizer.state().at(member(optimizer).unsafeGetTensorImpl()));
  EXPECT_EQ(state.sum().scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(state.sum(), at::ones({3})));
}

TEST(MasterWeights, stochastic_rounding_holds_no_copy_between_steps) {
  const at::Tensor weight = parameter(8, 1.0);
  torch::optim::Adam optimizer(std::vector<at::Tensor>{weight}, 0.01);
  MasterWeights masters(optimizer, kStochastic);
  EXPECT_TRUE(masters.masters().empty());
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(member(optimizer).sizes(), weight.sizes());
    EXPECT_EQ(member(optimizer).storage().nbytes(), sizeof(float));
    step(optimizer, masters, weight, 1.0, i);
    EXPECT_EQ(optimizer.state().size(), 1U);
  }
  EXPECT_LT(weight.detach().max().item<double>(), 1.0);
}

TEST(MasterWeights, a_parameter_written_from_outside_replaces_its_master) {
  const at::Tensor weight = parameter(2, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStored);
  step(optimizer, masters, weight, -0x1p-12);
  weight.detach().copy_(weight.detach().clone());  // equal values: the low bits stay
  masters.begin_step();
  EXPECT_TRUE(exact(masters.masters().at(0), at::full({2}, 1 + 0x1p-12)));
  weight.detach().fill_(4.0);
  step(optimizer, masters, weight, 1.0);
  EXPECT_TRUE(exact(weight, at::full({2}, 3.0)));
  weight.set_data(at::full({2}, 8.0, on_device(at::kBFloat16)));
  step(optimizer, masters, weight, 1.0);
  EXPECT_TRUE(exact(weight, at::full({2}, 7.0)));
}

TEST(MasterWeights, elements_written_from_outside_replace_theirs_alone) {
  const at::Tensor weight = parameter(3, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStored);
  step(optimizer, masters, weight, -0x1p-12);
  weight.detach().select(0, 1).fill_(4.0);
  weight.detach().select(0, 2).fill_(std::nan(""));
  masters.follow_parameters();
  EXPECT_TRUE(exact(masters.masters().at(0), numbers({1 + 0x1p-12, 4.0, std::nan("")})));
  EXPECT_TRUE(exact(weight, numbers({1.0, 4.0, std::nan("")})));
}

TEST(MasterWeights, adopts_parameters_that_are_added_later) {
  const at::Tensor first = parameter(2, 1.0), second = parameter(2, 1.0, at::kHalf);
  torch::optim::SGD optimizer = descent({first});
  MasterWeights masters(optimizer, kStored);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({second}));
  masters.adopt();
  ASSERT_EQ(masters.size(), 2U);
  step(optimizer, masters, second, 0.5);
  EXPECT_TRUE(exact(second, at::full({2}, 0.5)));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({first}));
  EXPECT_THROWS(InvalidArgument, "a second time", masters.adopt());
}

TEST(MasterWeights, restores_masters_and_with_them_the_parameters) {
  const at::Tensor weight = parameter(2, 1.0);
  torch::optim::SGD optimizer = descent({weight});
  MasterWeights masters(optimizer, kStored);
  masters.restore({at::full({2}, 2 + 0x1p-12, on_device())});
  EXPECT_TRUE(exact(weight, at::full({2}, 2.0)));
  masters.begin_step();
  EXPECT_TRUE(exact(masters.masters().at(0), at::full({2}, 2 + 0x1p-12)));
  const std::vector<std::vector<at::Tensor>> wrongs = {
      {}, {at::ones({3}, on_device())}, {at::ones({2}, on_device(at::kDouble))}};
  for (const std::vector<at::Tensor>& wrong : wrongs) {
    EXPECT_FALSE(masters.fits(wrong));
    EXPECT_THROWS(InvalidArgument, "expected 1", masters.restore(wrong));
  }
}

TEST(MasterWeights, float16_parameters_are_not_rounded_stochastically) {
  const at::Tensor bfloat16 = parameter(2, 1.0), half = parameter(2, 1.0, at::kHalf);
  torch::optim::SGD optimizer = descent({bfloat16, half});
  EXPECT_THROWS(InvalidArgument, "float16", const MasterWeights masters(optimizer, kStochastic));
  EXPECT_TRUE(member(optimizer).is_same(bfloat16)) << "nothing is changed before the error";
}

}  // namespace
}  // namespace mezzo::test
