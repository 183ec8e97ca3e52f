#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/captured_step.h"
#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/graph/topology.h"
#include "mezzo/ops/dropout.h"
#include "mezzo/ops/ops.h"

#include "support/special_numbers.h"
#include "support/tolerance.h"

/// Mixed precision on a GPU compared with the CPU, and its device-independent implementations.
namespace mezzo::test {
namespace {

#define SKIP_WITHOUT_CUDA() \
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no CUDA device"

at::Device cuda() {
  return {at::kCUDA, 0};
}

/// Test values, equal on every device.
at::Tensor waves(at::IntArrayRef sizes, double phase, at::Device device) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  const at::Tensor steps = at::arange(count, at::kDouble);
  return at::sin(steps * 0.7 + phase).view(sizes).to(device, at::kFloat);
}

TEST(NumberCounts, by_operations_are_those_of_the_host) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const double largest = dtype == at::kHalf ? 65504.0 : 0x1p120;
    const at::Tensor mixed = at::tensor({0.0, -0.0, 1.0, -0x1p-20, 0x1p-140, largest, -largest / 15,
                                         kInf, -kInf, std::nan(""), 3.0},
                                        at::kDouble)
                                 .to(dtype);
    for (const at::Tensor& tensor :
         {mixed, mixed.slice(0, 7, 10), mixed.slice(0, 0, 2), mixed.slice(0, 0, 0),
          mixed.unsqueeze(0).expand({3, mixed.numel()}), mixed.to_sparse()}) {
      EXPECT_EQ(amp::count_numbers_by_operations(tensor), amp::count_numbers(tensor))
          << c10::toString(dtype) << " " << tensor.sizes();
    }
  }
  EXPECT_EQ(amp::count_numbers_by_operations(at::ones({2}, at::kLong)), amp::NumberCounts());
}

TEST(FusedSGD, keeps_the_flag_of_empty_buffers_where_it_lies) {
  const at::Tensor weight = at::ones({3}).requires_grad_();
  amp::FusedSGD optimizer({weight}, torch::optim::SGDOptions(1.0).momentum(0.5));
  const at::Tensor found_inf = at::ones({});
  weight.mutable_grad() = at::ones({3});
  optimizer.fused_step({}, found_inf);
  const auto& state =
      static_cast<const amp::FusedSGDState&>(*optimizer.state().at(weight.unsafeGetTensorImpl()));
  const void* const place = state.empty.const_data_ptr();
  EXPECT_EQ(state.empty.item<float>(), 1.0F);
  found_inf.zero_();
  optimizer.fused_step({}, found_inf);
  EXPECT_EQ(state.empty.const_data_ptr(), place) << "a captured step reads this number again";
  EXPECT_EQ(state.empty.item<float>(), 0.0F);
  optimizer.fused_step({}, found_inf);
  EXPECT_TRUE(exact(weight, at::full({3}, 1.0 - 1.0 - 1.5)));
}

TEST(GradScaler, tells_on_the_device_what_the_check_found) {
  amp::GradScaler scaler({.policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0})});
  EXPECT_FALSE(scaler.scale_tensor().defined());
  scaler.scale(at::zeros({}));
  const at::Tensor scale = scaler.scale_tensor();
  const at::Tensor weight = at::ones({2}).requires_grad_();
  amp::FusedSGD optimizer({weight}, torch::optim::SGDOptions(1.0));
  EXPECT_FALSE(scaler.found_inf(optimizer).defined());
  for (const double gradient : {8.0, kInf}) {
    weight.mutable_grad() = at::full({2}, gradient);
    scaler.step(optimizer);
    EXPECT_EQ(scaler.found_inf(optimizer).item<float>(), std::isinf(gradient) ? 1.0F : 0.0F);
    scaler.update();
    EXPECT_FALSE(scaler.found_inf(optimizer).defined());
  }
  EXPECT_EQ(scale.item<float>(), 2.0F) << "the tensor that update() changes in place";
  amp::GradScaler disabled({.enabled = false});
  disabled.scale(at::zeros({}));
  EXPECT_FALSE(disabled.scale_tensor().defined());
}

// --- Tests that need a GPU ---

TEST(AutocastCuda, casts_by_the_lists_of_cuda) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({4, 4}, cuda());
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const amp::Autocast autocast(at::kCUDA, dtype);
    const at::Tensor low = at::mm(x, x);
    EXPECT_EQ(low.scalar_type(), dtype);
    EXPECT_EQ(at::matmul(x, x).scalar_type(), dtype);
    EXPECT_EQ(at::linear(x, x).scalar_type(), dtype);
    for (const at::Tensor& result :
         {at::softmax(low, 1), at::log_softmax(low, 1), at::exp(low), at::pow(low, 2.0),
          at::sum(low), at::cumsum(low, 0), at::layer_norm(low, {4}), at::mse_loss(low, low)}) {
      EXPECT_EQ(result.scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::relu(low).scalar_type(), dtype);
    EXPECT_EQ(at::mm(x.to(at::kDouble), x.to(at::kDouble)).scalar_type(), at::kDouble);
    EXPECT_THROW(at::binary_cross_entropy(x, x), c10::Error);
    {
      const amp::Autocast off(at::kCUDA, amp::kDisabled);
      EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
    }
    const at::Tensor host = at::ones({2, 2});
    EXPECT_EQ(at::mm(host, host).scalar_type(), at::kFloat) << "the CPU is another device type";
  }
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
}

struct OptimizerKind {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make;
};

std::vector<OptimizerKind> optimizers() {
  using Parameters = std::vector<at::Tensor>;
  return {{"adam",
           [](Parameters p) {
             return std::make_unique<amp::FusedAdam>(
                 std::move(p), amp::FusedAdamOptions(0.01).weight_decay(0.1).amsgrad(true));
           }},
          {"adamw",
           [](Parameters p) {
             return std::make_unique<amp::FusedAdamW>(
                 std::move(p), amp::FusedAdamWOptions(0.01).weight_decay(0.1));
           }},
          {"sgd",
           [](Parameters p) {
             return std::make_unique<amp::FusedSGD>(std::move(p), torch::optim::SGDOptions(0.1));
           }},
          {"momentum", [](Parameters p) {
             return std::make_unique<amp::FusedSGD>(
                 std::move(p), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
           }}};
}

/// A two-layer network on fixed data, with a scaler for float16.
struct Training {
  Training(const OptimizerKind& optimizer_of, at::Device on, double initial_scale = 1024.0)
      : device(on),
        scaler({.device = on,
                .policy = amp::LossScalePolicy::dynamic(
                    {.initial_scale = initial_scale, .growth_interval = 5})}) {
    for (at::Tensor* parameter : {&first, &bias, &second}) {
      *parameter = parameter->to(device).detach().requires_grad_();
    }
    optimizer = optimizer_of.make({first, bias, second});
  }

  at::Tensor take_step(amp::Precision precision) {
    optimizer->zero_grad();
    at::Tensor loss;
    {
      const amp::PrecisionScope scope(precision, device);
      const at::Tensor hidden = at::relu(at::addmm(bias, x, first));
      loss = at::mse_loss(at::mm(hidden, second), target);
    }
    scaler.scale(loss).backward();
    scaler.step(*optimizer);
    scaler.update();
    return loss.detach();
  }

  at::Device device;
  amp::GradScaler scaler;
  at::Tensor first = waves({8, 16}, 0.1, at::kCPU), bias = waves({16}, 0.2, at::kCPU),
             second = waves({16, 4}, 0.3, at::kCPU);
  at::Tensor x = waves({32, 8}, 0.4, device), target = waves({32, 4}, 0.5, device);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

TEST(FusedOptimizersCuda, move_as_on_the_cpu) {
  SKIP_WITHOUT_CUDA();
  for (const OptimizerKind& kind : optimizers()) {
    std::vector<at::Tensor> here, there;
    for (const double phase : {0.1, 0.2}) {
      here.push_back(waves({5, 3}, phase, at::kCPU).requires_grad_());
      there.push_back(here.back().detach().to(cuda()).requires_grad_());
    }
    const auto on_cpu = kind.make(here), on_cuda = kind.make(there);
    for (int step = 0; step < 10; ++step) {
      // Every third step is skipped; gradients are scaled by 8.
      const double skip = step % 3 == 0 ? 1.0 : 0.0;
      for (std::size_t i = 0; i < here.size(); ++i) {
        here[i].mutable_grad() = waves({5, 3}, 0.3 * step, at::kCPU) * 8;
        there[i].mutable_grad() = here[i].grad().to(cuda());
      }
      dynamic_cast<amp::FusedStep&>(*on_cpu).fused_step(at::full({}, 8.0F), at::full({}, skip));
      dynamic_cast<amp::FusedStep&>(*on_cuda).fused_step(at::full({}, 8.0F, cuda()),
                                                         at::full({}, skip, cuda()).to(at::kFloat));
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(near(there[i], here[i].detach(), sum_bound(here[i].abs() + 1, 100, at::kFloat)))
          << kind.name;
    }
  }
}

TEST(GradScalerCuda, decides_on_the_device_and_moves_the_scale) {
  SKIP_WITHOUT_CUDA();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    amp::GradScaler scaler(
        {.device = cuda(),
         .policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0, .growth_interval = 2})});
    scaler.scale(at::zeros({}, cuda()));
    const at::Tensor other = at::ones({1}, cuda()).requires_grad_();
    const at::Tensor weight =
        at::ones({3}, at::TensorOptions(cuda()).dtype(dtype)).requires_grad_();
    amp::FusedSGD optimizer({other, weight}, torch::optim::SGDOptions(1.0));
    std::vector<double> scales;
    for (const double gradient : {8.0, kInf, 8.0, 8.0, -kInf}) {
      other.mutable_grad() = at::full({1}, 4.0, cuda());
      weight.mutable_grad() = at::full({3}, gradient, cuda()).to(dtype);
      scaler.unscale_(optimizer);
      EXPECT_EQ(scaler.found_inf(optimizer).device(), cuda());
      EXPECT_EQ(scaler.found_inf(optimizer).item<float>(), std::isinf(gradient) ? 1.0F : 0.0F);
      scaler.update();
      scales.push_back(scaler.get_scale());
    }
    EXPECT_EQ(scales, (std::vector<double>{4, 2, 2, 4, 2})) << c10::toString(dtype);
  }
}

TEST(StochasticRoundingCuda, draws_the_bits_of_the_cpu) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor values = waves({1003}, 0.1, at::kCPU);
  const at::Tensor here = at::empty({1003}, at::kBFloat16),
                   there = at::empty({1003}, at::TensorOptions(cuda()).dtype(at::kBFloat16));
  const amp::RoundingKey key{.seed = 5, .step = 7, .parameter = 1};
  amp::round_stochastically(values, here, key);
  amp::round_stochastically(values.to(cuda()), there, key);
  EXPECT_TRUE(exact(there, here));
}

TEST(MixedPrecisionCuda, masters_keep_what_a_bfloat16_parameter_cannot) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor weight =
      at::ones({4}, at::TensorOptions(cuda()).dtype(at::kBFloat16)).requires_grad_();
  amp::FusedSGD sgd({weight}, torch::optim::SGDOptions(0x1p-12));
  auto optimizer = amp::enable_mixed_precision(sgd, {.device = cuda()});
  for (int step = 0; step < 64; ++step) {
    optimizer.minimize([&] { return weight.to(at::kFloat).sum(); });
  }
  EXPECT_TRUE(exact(weight, at::full({4}, 1 - 64 * 0x1p-12)));
}

TEST(CapturedStepCuda, equals_the_eager_step_bit_for_bit) {
  SKIP_WITHOUT_CUDA();
  for (const OptimizerKind& kind : optimizers()) {
    for (const amp::Precision precision :
         {amp::Precision::kFloat32, amp::Precision::kFloat16, amp::Precision::kBFloat16}) {
      // 2^30 overflows float16 at first: the device must skip and lower the scale.
      const double scale = precision == amp::Precision::kFloat16 ? 0x1p30 : 1024.0;
      Training eager(kind, cuda(), scale), replayed(kind, cuda(), scale);
      amp::CapturedStep step([&] { return replayed.take_step(precision); }, {.device = cuda()});
      for (int i = 0; i < 20; ++i) {
        const at::Tensor expected = eager.take_step(precision);
        ASSERT_TRUE(exact(step.replay(), expected)) << kind.name << " step " << i;
      }
      EXPECT_TRUE(exact(replayed.first, eager.first)) << kind.name;
      EXPECT_TRUE(exact(replayed.second, eager.second)) << kind.name;
      EXPECT_EQ(replayed.scaler.state_dict(), eager.scaler.state_dict()) << kind.name;
    }
  }
}

TEST(CapturedStepCuda, refuses_a_step_that_waits_for_the_device) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({4}, cuda());
  amp::CapturedStep step([&] { return at::full({}, x.sum().item<float>(), cuda()); });
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(step.replay());
  EXPECT_THROW(step.replay(), InvalidArgument);
  EXPECT_EQ((x + x).sum().item<float>(), 8.0F) << "the device works on";
}

/// libtorch's allocator and generator work as before: a draw, an empty cache, another capture.
void expect_working_device() {
  EXPECT_GT(at::rand({1000}, cuda()).max().item<float>(), 0.5F);
  EXPECT_NO_THROW(c10::getDeviceAllocator(at::kCUDA)->emptyCache());
  at::Tensor sum = at::zeros({}, cuda());
  amp::CapturedStep step([&] { return sum += 1 + 0 * at::rand({}, cuda()); }, {.warm_up = 1});
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(step.replay().item<float>(), static_cast<float>(i));
}

TEST(CapturedStepCuda, a_capture_that_fails_leaves_the_process_as_it_was) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({4}, cuda());
  const auto fail = [&](const std::function<at::Tensor()>& work) {
    amp::CapturedStep step(work, {.warm_up = 1});
    step.replay();
    EXPECT_ANY_THROW(step.replay());
    expect_working_device();
  };
  fail([&] { return at::full({}, (x + at::rand({4}, cuda())).sum().item<float>(), cuda()); });
  fail([&] {  // CUDA refuses the end of the capture
    try {
      at::rand({4}, cuda()).sum().item<float>();
    } catch (const c10::Error&) {
    }
    return x;
  });
  int calls = 0;
  fail([&] {  // CUDA accepts it
    const at::Tensor draw = at::rand({4}, cuda());
    if (++calls > 1) throw std::runtime_error("the step's own error");
    return draw;
  });
}

TEST(CapturedStepCuda, other_threads_may_allocate_meanwhile) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({4}, cuda());
  amp::CapturedStep step(
      [&] {
        std::thread([] { EXPECT_NO_THROW(at::empty({64 << 20}, cuda())); }).join();
        return x + x;
      },
      {.warm_up = 1});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.replay().sum().item<float>(), 8.0F);
}

TEST(CapturedStepCuda, draws_new_numbers_of_the_device_at_each_replay) {
  SKIP_WITHOUT_CUDA();
  amp::CapturedStep step([] { return at::rand({64}, cuda()); }, {.device = cuda(), .warm_up = 1});
  step.replay();
  const at::Tensor first = step.replay().clone();
  EXPECT_FALSE(at::equal(step.replay(), first));
}

TEST(CapturedStepCuda, dropout_drops_anew_in_each_replay_and_the_gradient_alike) {
  SKIP_WITHOUT_CUDA();
  constexpr std::int64_t kCount = 1 << 16;
  at::manual_seed(7);
  const at::Tensor x = at::ones({kCount}, cuda()).requires_grad_();
  amp::CapturedStep step(
      [&] {
        x.mutable_grad().reset();
        const at::Tensor out = mezzo::feature_dropout(x, 0.25, /*training=*/true);
        out.sum().backward();
        return at::stack({out.detach(), x.grad()});
      },
      {.device = cuda(), .warm_up = 1});
  const auto expect_share = [](const at::Tensor& chosen, double share) {
    const double five_sigma = 5 * std::sqrt(share * (1 - share) / kCount);
    EXPECT_NEAR(chosen.to(at::kDouble).mean().item<double>(), share, five_sigma);
  };
  std::vector<at::Tensor> seen;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor now = step.replay().clone();
    EXPECT_TRUE(exact(now[1], now[0])) << "step " << i;
    const at::Tensor mask = at::ne(now[0], 0);
    expect_share(mask, 0.75);
    for (const at::Tensor& before : seen) {  // independent: both keep an element, or neither
      expect_share(at::eq(mask, before), 0.75 * 0.75 + 0.25 * 0.25);
    }
    seen.push_back(mask);
  }
}

TEST(CapturedStepCuda, dropout_of_the_attention_too) {
  SKIP_WITHOUT_CUDA();
  const at::TensorOptions ids = at::TensorOptions(cuda()).dtype(at::kLong);
  const at::Tensor edges = at::arange(400, ids);
  const Topology g = Topology::from_coo(edges.remainder(20), edges.remainder(19), 20, 19);
  at::manual_seed(7);
  const at::Tensor z = waves({20, 4, 8}, 0.1, cuda()).to(at::kDouble).requires_grad_();
  const at::Tensor src = waves({20, 4}, 0.2, cuda()).to(at::kDouble);
  const at::Tensor dst = waves({19, 4}, 0.3, cuda()).to(at::kDouble);
  amp::CapturedStep step(
      [&] {
        z.mutable_grad().reset();
        const at::Tensor out = gat_attention(g, z, src, dst, {.dropout = 0.5, .training = true});
        const at::Tensor sum = (out * out.detach()).sum();
        sum.backward();
        return at::stack({sum.detach(), (z.detach() * z.grad()).sum()});
      },
      {.device = cuda()});
  // An output has at most 22 edges, logits in a range of 4 and, as |z| <= 1, the magnitude 2.
  SumBound bound = softmax_bound(at::scalar_tensor(19 * 32 * 2.0 * 2.0, at::kDouble), 22 + 20 * 32,
                                 4, at::kDouble);
  bound.terms *= 2;  // forward and gradient
  std::vector<double> sums;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor now = step.replay().cpu();
    sums.push_back(now[0].item<double>());
    // Attention is linear in z: the products are equal only if the same elements are dropped.
    EXPECT_TRUE(near(now[1], now[0], bound)) << "step " << i;
    for (int j = 0; j < i; ++j) EXPECT_NE(sums[static_cast<std::size_t>(j)], sums.back()) << i;
  }
}

TEST(CapturedStepCuda, dropout_draws_what_eager_steps_draw_on_the_device) {
  SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({1000}, cuda());
  const auto draw = [&] { return mezzo::feature_dropout(x, 0.5, /*training=*/true); };
  at::manual_seed(7);
  amp::CapturedStep step(draw, {.device = cuda(), .warm_up = 2});
  std::vector<at::Tensor> captured;
  for (int i = 0; i < 6; ++i) captured.push_back(step.replay().clone());
  at::manual_seed(7);
  const mezzo::detail::DeviceDraws draws;
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(exact(captured[static_cast<std::size_t>(i)], draw())) << "step " << i;
  }
}

}  // namespace
}  // namespace mezzo::test
