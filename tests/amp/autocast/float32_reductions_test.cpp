#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/precision.h"

#include "support/warnings.h"

namespace mezzo::test {
namespace {

using amp::Float32Reductions;
using Reduction = at::CuBLASReductionOption;

/// The cuBLAS switches: host values, with or without a GPU.
struct CublasSwitches {
  Reduction float16 = Reduction::AllowReducedPrecisionWithSplitK;
  Reduction bfloat16 = Reduction::AllowReducedPrecisionWithSplitK;
  bool float16_accumulation = false;

  bool operator==(const CublasSwitches&) const = default;

  static CublasSwitches read() {
    const at::Context& context = at::globalContext();
    return {context.allowFP16ReductionCuBLAS(), context.allowBF16ReductionCuBLAS(),
            context.allowFP16AccumulationCuBLAS()};
  }
  void write() const {
    constexpr auto kReduced = Reduction::AllowReducedPrecisionWithSplitK;
    constexpr auto kNoSplit = Reduction::DisallowReducedPrecisionDisallowSplitK;
    at::Context& context = at::globalContext();
    context.setAllowFP16ReductionCuBLAS(float16 == kReduced, float16 != kNoSplit);
    context.setAllowBF16ReductionCuBLAS(bfloat16 == kReduced, bfloat16 != kNoSplit);
    context.setAllowFP16AccumulationCuBLAS(float16_accumulation);
  }
};

class Float32ReductionsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(CublasSwitches::read(), CublasSwitches()); }
  void TearDown() override { CublasSwitches().write(); }
};

TEST_F(Float32ReductionsTest, nothing_is_summed_in_16_bits_while_it_lives) {
  {
    const Float32Reductions scope;
    const CublasSwitches expected{Reduction::DisallowReducedPrecisionAllowSplitK,
                                  Reduction::DisallowReducedPrecisionAllowSplitK, false};
    EXPECT_EQ(CublasSwitches::read(), expected);
  }
  EXPECT_EQ(CublasSwitches::read(), CublasSwitches());
}

TEST_F(Float32ReductionsTest, the_end_restores_whatever_the_caller_had) {
  constexpr Reduction kOptions[] = {Reduction::AllowReducedPrecisionWithSplitK,
                                    Reduction::DisallowReducedPrecisionAllowSplitK,
                                    Reduction::DisallowReducedPrecisionDisallowSplitK};
  for (const Reduction float16 : kOptions) {
    for (const Reduction bfloat16 : kOptions) {
      for (const bool accumulation : {false, true}) {
        const CublasSwitches own{float16, bfloat16, accumulation};
        own.write();
        ASSERT_EQ(CublasSwitches::read(), own);
        {
          const Float32Reductions scope;
          const CublasSwitches inside = CublasSwitches::read();
          for (const Reduction option : {inside.float16, inside.bfloat16}) {
            EXPECT_NE(option, Reduction::AllowReducedPrecisionWithSplitK);
          }
          EXPECT_FALSE(inside.float16_accumulation);
          const auto splits = [](Reduction option) {
            return option != Reduction::DisallowReducedPrecisionDisallowSplitK;
          };
          EXPECT_EQ(splits(inside.float16), splits(float16));
          EXPECT_EQ(splits(inside.bfloat16), splits(bfloat16));
        }
        EXPECT_EQ(CublasSwitches::read(), own);
      }
    }
  }
}

TEST_F(Float32ReductionsTest, scopes_nest_and_end_by_exceptions) {
  try {
    const Float32Reductions outer;
    const CublasSwitches inside = CublasSwitches::read();
    { const Float32Reductions inner; }
    EXPECT_EQ(CublasSwitches::read(), inside);
    throw std::runtime_error("out of the scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(CublasSwitches::read(), CublasSwitches());
}

TEST_F(Float32ReductionsTest, a_16_bit_scope_on_cuda_holds_one_also_in_its_backward) {
  const Warnings warnings;  // without CUDA the region is disabled
  for (const amp::Precision precision : amp::kPrecisions) {
    for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
      const bool is_low =
          precision == amp::Precision::kBFloat16 || precision == amp::Precision::kFloat16;
      const Reduction expected = is_low && device == at::kCUDA
                                     ? Reduction::DisallowReducedPrecisionAllowSplitK
                                     : Reduction::AllowReducedPrecisionWithSplitK;
      amp::PrecisionScope scope(precision, device);
      EXPECT_EQ(CublasSwitches::read(), (CublasSwitches{expected, expected, false}));
      const at::Tensor x = at::ones({2}).requires_grad_();
      CublasSwitches backward;
      x.register_hook([&](const at::Tensor& /*gradient*/) { backward = CublasSwitches::read(); });
      scope.backward(x.sum());
      EXPECT_EQ(backward, (CublasSwitches{expected, expected, false}));
    }
    EXPECT_EQ(CublasSwitches::read(), CublasSwitches());
  }
}

}  // namespace
}  // namespace mezzo::test
