#include "mezzo/amp/autocast/cpu_policy.h"

#include <cstdlib>
#include <functional>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/amp/precision.h"

#include "support/devices.h"
#include "support/errors.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kCpuPolicyOnCpu("CpuPolicy", "the policy of the CPU");

using amp::Autocast;
using amp::CpuPolicy;
using amp::CpuPolicyChoice;
using amp::OpClass;
using amp::Precision;
using amp::PrecisionScope;

/// Sets MEZZO_CPU_POLICY, which scopes read when they open.
class Forced {
 public:
  explicit Forced(const char* way) { setenv("MEZZO_CPU_POLICY", way, /*overwrite=*/1); }
  ~Forced() { unsetenv("MEZZO_CPU_POLICY"); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

/// An operator on float32 leaves: its result and the leaves' gradients.
struct Case {
  std::string name;
  std::vector<at::Tensor> leaves;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> run;
};

std::vector<Case> cases() {
  at::manual_seed(1);
  using Leaves = std::vector<at::Tensor>;
  const auto r = [](at::IntArrayRef shape) { return at::randn(shape); };
  return {
      {"conv1d",
       {r({2, 3, 9}), r({4, 3, 3})},
       [](const Leaves& t) { return at::conv1d(t[0], t[1]); }},
      {"conv2d",
       {r({2, 3, 6, 6}), r({4, 3, 3, 3}), r({4})},
       [](const Leaves& t) { return at::conv2d(t[0], t[1], t[2]); }},
      {"conv2d.padding",
       {r({2, 3, 6, 6}), r({4, 3, 3, 3})},
       [](const Leaves& t) { return at::conv2d(t[0], t[1], {}, 1, "same"); }},
      {"conv3d",
       {r({1, 2, 4, 4, 4}), r({3, 2, 2, 2, 2})},
       [](const Leaves& t) { return at::conv3d(t[0], t[1]); }},
      {"conv_transpose2d",
       {r({2, 3, 5, 5}), r({3, 4, 2, 2})},
       [](const Leaves& t) { return at::conv_transpose2d(t[0], t[1]); }},
      {"linear",
       {r({5, 8}), r({6, 8}), r({6})},
       [](const Leaves& t) { return at::linear(t[0], t[1], t[2]); }},
      {"matmul", {r({2, 5, 8}), r({8, 3})}, [](const Leaves& t) { return at::matmul(t[0], t[1]); }},
      {"mm", {r({5, 8}), r({8, 3})}, [](const Leaves& t) { return at::mm(t[0], t[1]); }},
      {"bmm", {r({2, 5, 8}), r({2, 8, 3})}, [](const Leaves& t) { return at::bmm(t[0], t[1]); }},
      {"addmm",
       {r({5, 3}), r({5, 8}), r({8, 3})},
       [](const Leaves& t) { return at::addmm(t[0], t[1], t[2]); }},
      {"baddbmm",
       {r({2, 5, 3}), r({2, 5, 8}), r({2, 8, 3})},
       [](const Leaves& t) { return at::baddbmm(t[0], t[1], t[2]); }},
      {"einsum",
       {r({5, 8}), r({8, 3})},
       [](const Leaves& t) {
         return at::einsum("ij,jk->ik", {t[0], t[1]});
       }},
      {"attention",
       {r({1, 2, 6, 8}), r({1, 2, 6, 8}), r({1, 2, 6, 8})},
       [](const Leaves& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2]); }},
  };
}

/// The result of `run` on new leaves, then each leaf's gradient of the sum of the result.
std::vector<at::Tensor> results(
    const Case& c, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& run) {
  std::vector<at::Tensor> leaves, all;
  for (const at::Tensor& leaf : c.leaves) leaves.push_back(leaf.clone().requires_grad_());
  all.push_back(run(leaves));
  all[0].sum().backward();
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                 const std::string& name) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << name << ' ' << i;
    EXPECT_TRUE(at::equal(got[i], expected[i])) << name << ' ' << i;
  }
}

/// Whether matrix products in the calling thread's bfloat16 region compute in float32 and round
/// once. x = 1 + 2^-8 is not a bfloat16 number and becomes 1 if cast before the product; its square
/// is nearer to 1 + 2^-7 than to 1.
bool products_are_float32() {
  const at::Tensor x = at::full({1, 1}, 1.00390625);
  const at::Tensor y = at::mm(x, x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  return y.item<float>() != 1.0F;
}

TEST(CpuPolicy, a_class_in_float32_rounds_only_its_result) {
  const Forced forced("float32");
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    const at::ScalarType dtype = precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf;
    for (const Case& c : cases()) {
      const auto got = results(c, [&](const auto& leaves) {
        const PrecisionScope scope(precision, at::kCPU);
        return c.run(leaves);
      });
      const auto expected = results(c, [&](const auto& leaves) { return c.run(leaves).to(dtype); });
      expect_same(got, expected, c.name);
    }
  }
}

TEST(CpuPolicy, in_16_bits_or_off_it_is_autocast_bit_for_bit) {
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    const at::ScalarType dtype = precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf;
    for (const Case& c : cases()) {
      const auto expected = results(c, [&](const auto& leaves) {
        const Autocast region(at::kCPU, dtype);
        return c.run(leaves);
      });
      expect_same(results(c,
                          [&](const auto& leaves) {
                            const Forced forced("16bit");
                            const PrecisionScope scope(precision, at::kCPU);
                            return c.run(leaves);
                          }),
                  expected, c.name);
      expect_same(results(c,
                          [&](const auto& leaves) {
                            const Forced forced("float32");
                            const PrecisionScope scope(precision, at::kCPU,
                                                       {.cpu_policy = CpuPolicy::kOff});
                            return c.run(leaves);
                          }),
                  expected, c.name + " off");
    }
  }
}

// A bfloat16 sum of ones ends at 256, a float16 one at 2048, in each thread.
TEST(CpuPolicy, layer_norm_adds_the_gradients_of_its_bias_in_float32) {
  constexpr std::int64_t kRows = 4096;
  const ThreadCount one(1);
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    const at::ScalarType dtype = precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf;
    const at::Tensor bias = leaf(at::zeros({2})), weight = at::ones({2});
    const auto run = [&](at::ScalarType rows, CpuPolicy policy) {
      const PrecisionScope scope(precision, at::kCPU, {.cpu_policy = policy});
      return at::layer_norm(at::ones({kRows, 2}, rows), {2}, weight, bias);
    };
    const auto gradient = [&](const at::Tensor& out) {
      return torch::autograd::grad({out}, {bias}, {at::ones_like(out)})[0][0].item<float>();
    };
    const at::Tensor rows = run(dtype, CpuPolicy::kMeasure);
    EXPECT_EQ(rows.scalar_type(), dtype);
    EXPECT_EQ(gradient(rows), kRows);
    EXPECT_LT(gradient(run(dtype, CpuPolicy::kOff)), kRows);  // else the rule can go
    EXPECT_EQ(run(at::kFloat, CpuPolicy::kMeasure).scalar_type(), at::kFloat);
  }
}

TEST(CpuPolicy, float64_and_integers_pass_as_under_autocast) {
  const Forced forced("float32");
  const PrecisionScope scope(Precision::kFloat16, at::kCPU);
  const at::Tensor x = at::ones({2, 2}, at::kDouble), i = at::ones({2, 2}, at::kLong);
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kDouble);
  EXPECT_EQ(at::mm(i, i).scalar_type(), at::kLong);
  const at::Tensor half = at::ones({2, 2}, at::kHalf);
  EXPECT_EQ(at::mm(half, at::ones({2, 2})).scalar_type(), at::kHalf);
}

TEST(CpuPolicy, recurrent_layers_keep_the_dtypes_of_autocast) {
  const Forced forced("float32");
  const auto run = [] {
    const at::Tensor x = at::ones({3, 2, 4}), h = at::zeros({1, 2, 5});
    const std::vector<at::Tensor> weights = {at::full({20, 4}, 0.1), at::full({20, 5}, 0.1),
                                             at::zeros({20}), at::zeros({20})};
    return std::get<0>(at::lstm(x, {h, h}, weights, /*has_biases=*/true, /*num_layers=*/1,
                                /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false,
                                /*batch_first=*/false));
  };
  const at::Tensor reference = run();
  {
    const PrecisionScope scope(Precision::kBFloat16, at::kCPU);
    const at::Tensor got = run();
    EXPECT_EQ(got.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(got, reference.to(at::kBFloat16)));
  }
  // libtorch's 16-bit layer needs AVX-512BW.
  if (!at::hasMKLDNN() || !__builtin_cpu_supports("avx512bw")) return;
  const Autocast region(at::kCPU, at::kBFloat16);
  EXPECT_EQ(run().scalar_type(), at::kBFloat16);
}

TEST(CpuPolicy, an_autocast_region_inside_is_pytorchs_and_its_end_restores_the_policy) {
  const Forced forced("float32");
  const PrecisionScope scope(Precision::kBFloat16, at::kCPU);
  EXPECT_TRUE(products_are_float32());
  {
    const Autocast region(at::kCPU, at::kBFloat16);
    EXPECT_FALSE(products_are_float32());
    {
      const PrecisionScope inner(Precision::kBFloat16, at::kCPU);
      EXPECT_TRUE(products_are_float32());
    }
    EXPECT_FALSE(products_are_float32());
  }
  {
    const Autocast disabled(at::kCPU, amp::kDisabled);
    EXPECT_EQ(at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(), at::kFloat);
  }
  {
    const PrecisionScope off(Precision::kBFloat16, at::kCPU, {.cpu_policy = CpuPolicy::kOff});
    EXPECT_FALSE(products_are_float32());
  }
  EXPECT_TRUE(products_are_float32());
}

TEST(CpuPolicy, ends_with_its_scope_also_by_an_exception) {
  const Forced forced("float32");
  const Autocast region(at::kCPU, at::kBFloat16);
  try {
    const PrecisionScope scope(Precision::kBFloat16, at::kCPU);
    throw std::runtime_error("as a user's code might");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(products_are_float32());
}

TEST(CpuPolicy, concerns_its_thread_and_those_that_take_its_state) {
  const Forced forced("float32");
  const PrecisionScope scope(Precision::kBFloat16, at::kCPU);
  bool other = true, carried = false, nested = true;
  const at::ThreadLocalState state;
  std::thread([&] {
    {
      const Autocast region(at::kCPU, at::kBFloat16);
      other = products_are_float32();
    }
    const at::ThreadLocalStateGuard guard(state);
    carried = products_are_float32();
    const Autocast region(at::kCPU, at::kBFloat16);
    nested = products_are_float32();
  }).join();
  EXPECT_FALSE(other);
  EXPECT_TRUE(carried);
  EXPECT_FALSE(nested);
}

TEST(CpuPolicy, a_choice_is_measured_once_by_the_rule_it_states) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const OpClass op_class : amp::kOpClasses) {
      const CpuPolicyChoice choice = amp::cpu_policy_choice(op_class, dtype);
      EXPECT_TRUE(choice.measured);
      EXPECT_GT(choice.float32_seconds, 0);
      EXPECT_EQ(choice.float32,
                choice.sixteen_bit_seconds * amp::kCpuPolicyGain > choice.float32_seconds);
      EXPECT_EQ(amp::cpu_policy_choice(op_class, dtype).float32_seconds, choice.float32_seconds);
      EXPECT_NE(to_string(choice).find(to_string(op_class)), std::string::npos);
    }
  }
  EXPECT_EQ(amp::cpu_policy_report().size(), 2 * amp::kOpClasses.size());
}

TEST(CpuPolicy, measuring_leaves_the_callers_random_numbers_and_modes_alone) {
  at::manual_seed(7);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(7);
  const c10::InferenceMode inference;
  const PrecisionScope scope(Precision::kFloat16, at::kCPU);
  EXPECT_EQ(at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(), at::kHalf);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(CpuPolicy, threads_that_ask_at_once_get_one_choice) {
  std::vector<CpuPolicyChoice> choices(4);
  std::vector<std::thread> threads;
  for (CpuPolicyChoice& choice : choices) {
    threads.emplace_back(
        [&] { choice = amp::cpu_policy_choice(OpClass::kMatrixProduct, at::kBFloat16); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CpuPolicyChoice& choice : choices) {
    EXPECT_EQ(choice.sixteen_bit_seconds, choices[0].sixteen_bit_seconds);
  }
}

TEST(CpuPolicy, the_environment_decides_without_measuring) {
  for (const bool float32 : {false, true}) {
    const Forced forced(float32 ? "float32" : "16bit");
    const CpuPolicyChoice choice = amp::cpu_policy_choice(OpClass::kConvolution, at::kHalf);
    EXPECT_EQ(choice.float32, float32);
    EXPECT_FALSE(choice.measured);
    EXPECT_NE(to_string(choice).find("MEZZO_CPU_POLICY"), std::string::npos);
  }
}

TEST(CpuPolicy, bad_input_is_an_error_before_anything_opens) {
  {
    const Forced forced("fast");
    EXPECT_THROWS(InvalidArgument, "MEZZO_CPU_POLICY: 'fast' is not one of measure, 16bit, float32",
                  const PrecisionScope scope(Precision::kBFloat16, at::kCPU));
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  EXPECT_THROWS(InvalidArgument, "expected dtype BFloat16 or Half, got Float",
                amp::cpu_policy_choice(OpClass::kConvolution, at::kFloat));
}

}  // namespace
}  // namespace mezzo::test
