// libtorch's behaviour inside a region: the dtype of each operation, and which casts of weights are
// cached. These tests fail when libtorch changes its lists, which affects Mezzo's users.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "mezzo/amp/autocast/autocast.h"

#include "amp/autocast_operations.h"
#include "amp/autocast_support.h"
#include "support/devices.h"

namespace mezzo::test {
namespace {

using amp::Autocast;
using amp::kDisabled;
using at::Tensor;
using autocast_operations::kFloat32;
using autocast_operations::kLowered;
using autocast_operations::matrix;
using autocast_operations::Operation;

constexpr std::string_view kFloat32Only = "_grid_sampler_2d_cpu_fallback";

/// Runs every operation on a matrix of dtype `input` and expects results of dtype `expected`.
void expect_dtypes(const std::vector<Operation>& operations, at::ScalarType input,
                   at::ScalarType expected) {
  const Tensor x = matrix(input);
  for (const Operation& operation : operations) {
    // Has only a float32 kernel, with and without autocast.
    if (input == at::kDouble && operation.name == kFloat32Only) continue;
    SCOPED_TRACE(operation.name);
    EXPECT_NO_THROW(EXPECT_EQ(operation.run(x).scalar_type(), expected));
  }
}

/// Operations in float32 on CUDA but not on the CPU, and operations on no list.
const std::vector<Operation> kUntouched = {
    {"softmax", [](const Tensor& x) { return at::softmax(x, 1); }},
    {"log_softmax", [](const Tensor& x) { return at::log_softmax(x, 1); }},
    {"exp", [](const Tensor& x) { return at::exp(x); }},
    {"log", [](const Tensor& x) { return at::log(x); }},
    {"pow", [](const Tensor& x) { return at::pow(x, 2); }},
    {"sum", [](const Tensor& x) { return at::sum(x); }},
    {"cumsum", [](const Tensor& x) { return at::cumsum(x, 0); }},
    {"norm", [](const Tensor& x) { return at::norm(x); }},
    {"mean", [](const Tensor& x) { return at::mean(x); }},
    {"layer_norm", [](const Tensor& x) { return at::layer_norm(x, {4}); }},
    {"mv", [](const Tensor& x) { return at::mv(x, x[0]); }},
    {"addr", [](const Tensor& x) { return at::addr(x, x[0], x[0]); }},
    {"relu", [](const Tensor& x) { return at::relu(x); }},
    {"gelu", [](const Tensor& x) { return at::gelu(x); }},
    {"dropout", [](const Tensor& x) { return at::dropout(x, 0.5, true); }},
    {"index_select",
     [](const Tensor& x) { return at::index_select(x, 0, at::arange(4, on_device())); }},
    {"gather",
     [](const Tensor& x) {
       return at::gather(x, 0, at::zeros({4, 4}, on_device(at::kLong)));
     }},
    {"embedding", [](const Tensor& x) { return at::embedding(x, at::arange(4, on_device())); }},
};

TEST(AutocastRules, are_tested_for_every_operation_of_the_cpus_lists) {
  std::set<std::string> listed, known;
  for (const c10::OperatorName& op :
       c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::AutocastCPU)) {
    if (op.name.starts_with("aten::")) listed.insert(op.name.substr(6));
  }
  for (const auto* operations : {&kLowered, &kFloat32}) {
    for (const Operation& operation : *operations) known.insert(operation.name);
  }
  for (const auto* names : {&autocast_operations::kPromoted, &autocast_operations::kNotCalled}) {
    known.insert(names->begin(), names->end());
  }
  EXPECT_EQ(known, listed);
}

TEST(AutocastRules, products_and_convolutions_run_in_the_dtype_of_the_region) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast(test_device().type(), dtype);
    expect_dtypes(kLowered, at::kFloat, dtype);
  }
}

/// The operations of `all` with these names.
std::vector<Operation> named(const std::vector<Operation>& all,
                             const std::vector<std::string>& names) {
  std::vector<Operation> selected;
  for (const Operation& operation : all) {
    if (std::find(names.begin(), names.end(), operation.name) != names.end()) {
      selected.push_back(operation);
    }
  }
  EXPECT_EQ(selected.size(), names.size());
  return selected;
}

/// CUDA's additions to the CPU's lists, without decompositions, which reject 16 bits on CUDA.
const std::vector<std::string> kFloat32OnCuda = {"mse_loss",
                                                 "l1_loss",
                                                 "smooth_l1_loss",
                                                 "huber_loss",
                                                 "nll_loss",
                                                 "kl_div",
                                                 "poisson_nll_loss",
                                                 "soft_margin_loss",
                                                 "binary_cross_entropy_with_logits",
                                                 "cdist",
                                                 "prod"};
const std::vector<std::string> kTouchedOnCuda = {
    "softmax", "log_softmax", "exp", "log", "pow", "sum", "cumsum", "norm", "layer_norm"};
const std::vector<std::string> kUntouchedOnCuda = {"mean",         "relu",   "gelu",     "dropout",
                                                   "index_select", "gather", "embedding"};

TEST(AutocastRules, on_cuda_softmax_powers_sums_and_losses_run_in_float32) {
  if (on_cpu()) GTEST_SKIP() << "CUDA's lists";
  const Autocast autocast(at::kCUDA, at::kHalf);
  expect_dtypes(named(kFloat32, kFloat32OnCuda), at::kHalf, at::kFloat);
  expect_dtypes(named(kUntouched, kTouchedOnCuda), at::kHalf, at::kFloat);
  expect_dtypes(named(kUntouched, {"mv", "addr"}), at::kFloat, at::kHalf);
  expect_dtypes(named(kUntouched, kUntouchedOnCuda), at::kHalf, at::kHalf);
  expect_dtypes(named(kUntouched, kUntouchedOnCuda), at::kFloat, at::kFloat);
}

TEST(AutocastRules, losses_and_decompositions_of_16_bit_tensors_run_in_float32) {
  MEZZO_CPU_ONLY("the CPU's lists");
  const Autocast autocast(test_device().type(), at::kBFloat16);
  expect_dtypes(kFloat32, at::kBFloat16, at::kFloat);
}

TEST(AutocastRules, other_operations_run_in_the_dtype_that_arrives) {
  MEZZO_CPU_ONLY("the CPU's lists");
  const Autocast autocast(test_device().type(), at::kBFloat16);
  expect_dtypes(kUntouched, at::kBFloat16, at::kBFloat16);
  expect_dtypes(kUntouched, at::kFloat, at::kFloat);
}

TEST(AutocastRules, float64_stays_float64_in_every_operation) {
  MEZZO_CPU_ONLY("the CPU's lists");
  const Autocast autocast(test_device().type(), at::kBFloat16);
  for (const std::vector<Operation>* operations : {&kLowered, &kFloat32, &kUntouched}) {
    expect_dtypes(*operations, at::kDouble, at::kDouble);
  }
}

TEST(AutocastRules, a_disabled_region_leaves_float32_alone) {
  const Autocast outer(test_device().type(), at::kBFloat16);
  const Autocast off(test_device().type(), kDisabled);
  expect_dtypes(kLowered, at::kFloat, at::kFloat);
}

TEST(AutocastRules, a_float64_operand_beside_a_float32_one_is_the_callers_to_cast) {
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_THROW(at::mm(matrix(at::kDouble), matrix(at::kFloat)), c10::Error);
}

TEST(AutocastRules, concatenation_promotes_to_the_widest_operand) {
  const Tensor float32 = matrix(at::kFloat), bfloat16 = matrix(at::kBFloat16);
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_EQ(at::cat({bfloat16, float32}).scalar_type(), at::kFloat);
  EXPECT_EQ(at::stack({float32, bfloat16}).scalar_type(), at::kFloat);
  EXPECT_EQ(at::cat({bfloat16, bfloat16}).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::index_copy(float32, 0, at::arange(4, on_device()), bfloat16).scalar_type(),
            at::kFloat);
}

TEST(AutocastRules, promotion_refuses_a_third_dtype) {
  const Autocast autocast(test_device().type(), at::kHalf);
  EXPECT_THROW(at::cat({matrix(at::kHalf), matrix(at::kBFloat16)}), c10::Error);
}

TEST(AutocastRules, scattering_into_another_dtype_is_the_callers_to_cast) {
  const Tensor float32 = matrix(at::kFloat), bfloat16 = matrix(at::kBFloat16);
  const Tensor rows = at::arange(4, on_device()), entries = at::zeros({4, 4}, on_device(at::kLong));
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_THROW(at::index_add(float32, 0, rows, bfloat16), c10::Error);
  EXPECT_THROW(at::scatter_add(float32, 0, entries, bfloat16), c10::Error);
  EXPECT_THROW(at::scatter_reduce(float32, 0, entries, bfloat16, "amax"), c10::Error);
  EXPECT_EQ(at::index_add(float32, 0, rows, bfloat16.to(at::kFloat)).scalar_type(), at::kFloat);
}

TEST(AutocastRules, in_place_and_out_calls_are_not_cast) {
  const Tensor x = matrix(at::kFloat);
  const Autocast autocast(test_device().type(), at::kBFloat16);
  Tensor target = matrix(at::kFloat);
  EXPECT_EQ(target.addmm_(x, x).scalar_type(), at::kFloat);
  EXPECT_THROW(target.addmm_(x, x.to(at::kBFloat16)), c10::Error);
  EXPECT_EQ(at::mm_out(target, x, x).scalar_type(), at::kFloat);
}

TEST(AutocastRules, a_dtype_that_the_caller_names_is_kept) {
  const Tensor x = matrix(at::kBFloat16);
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_EQ(at::prod(x, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::sum(x, at::kFloat).scalar_type(), at::kFloat);
}

bool is_kept(const Tensor& weight) {
  return cast_of(weight).is_same(cast_of(weight));
}

TEST(AutocastCache, keeps_casts_of_float32_leaves_that_require_gradients_only) {
  const Tensor weight = matrix(at::kFloat).requires_grad_();
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(is_kept(weight));
  EXPECT_FALSE(is_kept(matrix(at::kFloat))) << "without gradients";
  EXPECT_FALSE(is_kept(weight * 2)) << "not a leaf";
  EXPECT_FALSE(is_kept(weight.detach().t().requires_grad_())) << "a view";
  EXPECT_FALSE(is_kept(matrix(at::kHalf).requires_grad_())) << "not float32";
  EXPECT_FALSE(at::autocast::cached_cast(at::kHalf, weight, test_device().type())
                   .is_same(at::autocast::cached_cast(at::kHalf, weight, test_device().type())))
      << "not to the dtype of the region";
}

TEST(AutocastCache, two_products_share_one_cast_and_so_one_node_of_the_graph) {
  const Tensor weight = matrix(at::kFloat).requires_grad_();
  const auto cast_node = [&] { return at::mm(matrix(at::kFloat), weight).grad_fn()->next_edge(1); };
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    EXPECT_EQ(cast_node().function, cast_node().function);
  }
  const Autocast autocast(test_device().type(), at::kBFloat16, {.cache = false});
  EXPECT_NE(cast_node().function, cast_node().function);
}

TEST(AutocastCache, a_shared_cast_sums_the_gradients_of_its_uses) {
  const Tensor x = matrix(at::kFloat), weight = matrix(at::kFloat).requires_grad_();
  Tensor loss;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    loss = (at::mm(x, weight) + at::mm(x, weight)).sum();
  }
  loss.backward();
  EXPECT_TRUE(
      at::equal(weight.grad(), at::full({4, 4}, 3.0, on_device())));  // twice the column sums of x
}

TEST(AutocastCache, ends_with_the_outermost_region) {
  const Tensor weight = matrix(at::kFloat).requires_grad_();
  Tensor first;
  {
    const Autocast outer(test_device().type(), at::kBFloat16);
    first = cast_of(weight);
    { const Autocast inner(test_device().type(), at::kBFloat16); }
    { const Autocast off(test_device().type(), kDisabled); }
    EXPECT_TRUE(cast_of(weight).is_same(first));
  }
  const Autocast next(test_device().type(), at::kBFloat16);
  EXPECT_FALSE(cast_of(weight).is_same(first));
}

TEST(AutocastCache, a_changed_weight_is_seen_after_clear_cache) {
  Tensor weight = matrix(at::kFloat).requires_grad_();
  const Tensor zeros = at::zeros({4, 4}, on_device(at::kBFloat16));
  const Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_FALSE(at::equal(cast_of(weight), zeros));
  {
    const at::NoGradGuard no_grad;
    weight.zero_();
  }
  EXPECT_FALSE(at::equal(cast_of(weight), zeros)) << "libtorch's cache has learnt to see changes";
  Autocast::clear_cache();
  EXPECT_TRUE(at::equal(cast_of(weight), zeros));
}

TEST(AutocastCache, a_cast_made_without_gradients_serves_a_product_with_them) {
  const Tensor x = matrix(at::kFloat), weight = matrix(at::kFloat).requires_grad_();
  Tensor loss;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    Tensor evaluated;
    {
      const at::NoGradGuard no_grad;
      evaluated = cast_of(weight);
    }
    EXPECT_TRUE(cast_of(weight).is_same(evaluated));
    loss = at::mm(x, weight).sum();
  }
  loss.backward();
  ASSERT_TRUE(weight.grad().defined());
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4, 4}, 1.5, on_device())));
}

TEST(AutocastCache, inference_mode_keeps_no_casts_and_finds_none_that_it_made) {
  const Tensor weight = matrix(at::kFloat).requires_grad_();
  const Autocast autocast(test_device().type(), at::kBFloat16);
  {
    const c10::InferenceMode inference;
    EXPECT_FALSE(is_kept(weight));
    EXPECT_EQ(at::mm(weight, weight).scalar_type(), at::kBFloat16);
  }
  EXPECT_TRUE(at::mm(weight, weight).requires_grad());
}

TEST(AutocastCache, an_enabled_region_of_another_dtype_between_regions_makes_its_own_casts) {
  const Tensor weight = matrix(at::kFloat).requires_grad_();
  const Autocast outer(test_device().type(), at::kBFloat16);
  EXPECT_EQ(cast_of(weight).scalar_type(), at::kBFloat16);
  {
    const Autocast inner(test_device().type(), at::kHalf);
    EXPECT_EQ(cast_of(weight).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(cast_of(weight).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace mezzo::test
