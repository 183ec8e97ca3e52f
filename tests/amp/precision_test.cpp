#include "mezzo/amp/precision.h"

#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "mezzo/kernels/backend.h"

#include "support/devices.h"
#include "support/errors.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kPrecisionScopeOnCpu("PrecisionScope", "the scope on the CPU");

using amp::Precision;
using amp::PrecisionScope;
using at::Float32Backend;
using at::Float32Op;

at::Float32Precision cuda_switch(Float32Op op) {
  return at::globalContext().float32Precision(Float32Backend::CUDA, op);
}

/// Resets libtorch's switches to their defaults.
struct DefaultSwitches {
  DefaultSwitches() { set(); }
  ~DefaultSwitches() { set(); }
  static void set() {
    at::Context& context = at::globalContext();
    context.setFloat32MatmulPrecision("highest");
    context.setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL,
                                at::Float32Precision::NONE);
    context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL,
                                at::Float32Precision::NONE);
    context.setFloat32Precision(Float32Backend::GENERIC, Float32Op::ALL,
                                at::Float32Precision::NONE);
    context.setAllowTF32CuDNN(true);
  }
};

TEST(Precision, names_and_parsing_are_inverse) {
  const std::vector<std::string_view> names = {"fp32", "tf32", "bf16", "fp16"};
  ASSERT_EQ(names.size(), amp::kPrecisions.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(amp::to_string(amp::kPrecisions[i]), names[i]);
    EXPECT_EQ(amp::parse_precision(names[i]), amp::kPrecisions[i]);
  }
  EXPECT_EQ(amp::parse_precision("BFloat16"), amp::Precision::kBFloat16);
  EXPECT_EQ(amp::parse_precision("float16"), amp::Precision::kFloat16);
  EXPECT_EQ(amp::parse_precision("float32"), amp::Precision::kFloat32);
}

TEST(Precision, an_unknown_name_is_an_error_that_lists_the_choices) {
  for (const char* text : {"", "half", "fp16 ", "float64"}) {
    EXPECT_THROWS(InvalidArgument, "is not one of fp32, tf32, bf16, fp16",
                  amp::parse_precision(text))
        << text;
  }
}

TEST(Precision, the_fastest_one_of_a_processor_without_vectors_is_float32) {
  const bool has_vectors = kernels::cpu_backend().name != "scalar";
  EXPECT_EQ(amp::fastest_precision(at::kCPU),
            has_vectors ? Precision::kBFloat16 : Precision::kFloat32);
}

TEST(PrecisionScope, makes_a_matrix_product_run_in_its_dtype) {
  const at::Tensor x = at::ones({4, 4});
  const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kFloat, at::kBFloat16, at::kHalf};
  for (std::size_t i = 0; i < amp::kPrecisions.size(); ++i) {
    const PrecisionScope scope(amp::kPrecisions[i], at::kCPU);
    EXPECT_EQ(at::mm(x, x).scalar_type(), dtypes[i]) << amp::to_string(amp::kPrecisions[i]);
  }
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(PrecisionScope, float32_and_tf32_switch_an_enclosing_autocast_off) {
  const at::Tensor x = at::ones({4, 4});
  const PrecisionScope outer(Precision::kBFloat16, at::kCPU);
  for (const Precision precision : {Precision::kFloat32, Precision::kTensorFloat32}) {
    const PrecisionScope inner(precision, at::kCPU);
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kBFloat16);
}

TEST(PrecisionScope, is_left_by_an_exception) {
  for (const Precision precision : amp::kPrecisions) {
    const DefaultSwitches switches;
    try {
      const PrecisionScope scope(precision, at::kCUDA);
      const PrecisionScope inner(precision, at::kCPU);
      throw std::runtime_error("in the scope");
    } catch (const std::runtime_error&) {
    }
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::NONE);
    EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
  }
}

TEST(PrecisionScope, tf32_on_the_cpu_is_float32_and_says_so_once) {
  {
    Warnings warnings;
    const c10::WarningUtils::WarnAlways always(true);
    const PrecisionScope scope(Precision::kTensorFloat32, at::kCPU);
    ASSERT_EQ(warnings.texts.size(), 1U);
    EXPECT_NE(warnings.texts[0].find("it is float32"), std::string::npos);
  }
  { const PrecisionScope scope(Precision::kTensorFloat32, at::kCPU); }
  Warnings warnings;
  const PrecisionScope scope(Precision::kTensorFloat32, at::kCPU);
  EXPECT_TRUE(warnings.texts.empty());
}

TEST(PrecisionScope, tf32_turns_both_families_of_switches_on_and_back) {
  const DefaultSwitches switches;
  at::Context& context = at::globalContext();
  {
    const PrecisionScope scope(Precision::kTensorFloat32, at::kCUDA);
    for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN}) {
      EXPECT_EQ(cuda_switch(op), at::Float32Precision::TF32);
    }
    EXPECT_TRUE(context.allowTF32CuBLAS());
    EXPECT_TRUE(context.allowTF32CuDNN());
    EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
    { const PrecisionScope again(Precision::kTensorFloat32, at::kCUDA); }
    EXPECT_TRUE(context.allowTF32CuBLAS());
  }
  EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::NONE);
  EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
  EXPECT_EQ(cuda_switch(Float32Op::RNN), at::Float32Precision::TF32);
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
}

TEST(PrecisionScope, tf32_restores_what_the_caller_had_set) {
  const DefaultSwitches switches;
  at::Context& context = at::globalContext();

  context.setAllowTF32CuDNN(false);
  { const PrecisionScope scope(Precision::kTensorFloat32, at::kCUDA); }
  EXPECT_FALSE(context.allowTF32CuDNN());

  context.setFloat32MatmulPrecision("medium");
  { const PrecisionScope scope(Precision::kTensorFloat32, at::kCUDA); }
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::MEDIUM);
  context.setFloat32MatmulPrecision("highest");

  // Read only the newer switches: reading the older ones throws before, inside and after.
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, at::Float32Precision::IEEE);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::RNN, at::Float32Precision::TF32);
  {
    const PrecisionScope scope(Precision::kTensorFloat32, at::kCUDA);
    EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
  }
  EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::IEEE);
  EXPECT_EQ(cuda_switch(Float32Op::RNN), at::Float32Precision::TF32);
}

TEST(PrecisionScope, a_switch_that_inherited_inherits_again) {
  const DefaultSwitches switches;
  at::Context& context = at::globalContext();
  context.setFloat32Precision(Float32Backend::GENERIC, Float32Op::ALL, at::Float32Precision::IEEE);
  { const PrecisionScope scope(Precision::kTensorFloat32, at::kCUDA); }
  EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::IEEE);
  context.setFloat32Precision(Float32Backend::GENERIC, Float32Op::ALL, at::Float32Precision::TF32);
  EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::TF32);
}

TEST(PrecisionScope, float32_turns_both_families_of_switches_off_and_back) {
  const DefaultSwitches switches;
  at::Context& context = at::globalContext();
  const auto expect_float32 = [&] {
    for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN}) {
      EXPECT_EQ(cuda_switch(op), at::Float32Precision::IEEE);
    }
    EXPECT_FALSE(context.allowTF32CuBLAS());
    EXPECT_FALSE(context.allowTF32CuDNN());
    EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  };
  {
    const PrecisionScope scope(Precision::kFloat32, at::kCUDA);
    expect_float32();
    {
      const PrecisionScope inner(Precision::kTensorFloat32, at::kCUDA);
      EXPECT_TRUE(context.allowTF32CuBLAS());
      const PrecisionScope innermost(Precision::kFloat32, at::kCUDA);
      expect_float32();
    }
    expect_float32();
  }
  EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::NONE);
  EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
  EXPECT_EQ(cuda_switch(Float32Op::RNN), at::Float32Precision::TF32);
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_TRUE(context.allowTF32CuDNN());
}

TEST(PrecisionScope, float32_restores_what_the_caller_had_set) {
  const DefaultSwitches switches;
  at::Context& context = at::globalContext();
  for (const auto& [name, precision] : {std::pair{"high", at::Float32MatmulPrecision::HIGH},
                                        std::pair{"medium", at::Float32MatmulPrecision::MEDIUM}}) {
    context.setFloat32MatmulPrecision(name);
    const auto on_cpu = context.float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL);
    {
      const PrecisionScope scope(Precision::kFloat32, at::kCUDA);
      EXPECT_FALSE(context.allowTF32CuBLAS()) << name;
      EXPECT_EQ(context.float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL), on_cpu);
    }
    EXPECT_TRUE(context.allowTF32CuBLAS()) << name;
    EXPECT_EQ(context.float32MatmulPrecision(), precision) << name;
    EXPECT_EQ(context.float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL), on_cpu) << name;
  }
}

TEST(PrecisionScope, other_scopes_leave_the_switches_alone) {
  const DefaultSwitches switches;
  for (const auto& [precision, device] :
       {std::pair{Precision::kBFloat16, at::kCUDA}, std::pair{Precision::kFloat32, at::kCPU}}) {
    Warnings warnings;  // without CUDA the bfloat16 region is disabled
    const PrecisionScope scope(precision, device);
    EXPECT_EQ(cuda_switch(Float32Op::MATMUL), at::Float32Precision::NONE);
    EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
  }
}

TEST(PrecisionScope, backward_runs_outside_the_region_under_the_switches) {
  const DefaultSwitches switches;
  const at::Tensor x = at::ones({4, 4}).requires_grad_();
  const auto backward = [&](Precision precision, at::DeviceType device) {
    PrecisionScope scope(precision, device);
    const at::Tensor y = at::mm(x, x);
    bool was_enabled = true;
    at::Float32Precision convolutions = at::Float32Precision::NONE;
    y.register_hook([&](const at::Tensor& /*gradient*/) {
      was_enabled = at::autocast::is_autocast_enabled(at::kCPU);
      convolutions = cuda_switch(Float32Op::CONV);
    });
    scope.backward(y.sum());
    EXPECT_FALSE(was_enabled) << amp::to_string(precision);
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat) << "the region has ended";
    return convolutions;
  };
  backward(Precision::kBFloat16, at::kCPU);
  at::globalContext().setAllowTF32CuDNN(false);
  EXPECT_EQ(backward(Precision::kTensorFloat32, at::kCUDA), at::Float32Precision::TF32);
  at::globalContext().setAllowTF32CuDNN(true);
  EXPECT_EQ(backward(Precision::kFloat32, at::kCUDA), at::Float32Precision::IEEE);
  EXPECT_EQ(cuda_switch(Float32Op::CONV), at::Float32Precision::TF32);
}

TEST(PrecisionScope, a_device_without_autocast_takes_float32_only) {
  { const PrecisionScope scope(Precision::kFloat32, at::kMeta); }
  EXPECT_THROW(PrecisionScope(Precision::kFloat16, at::kMeta), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::test
