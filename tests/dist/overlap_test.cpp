#include <atomic>
#include <memory>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include "mezzo/dist/data_parallel.h"

#include "dist/processes.h"

/// Whether DataParallel communicates during the backward pass.
namespace mezzo::dist {
namespace {

using namespace mezzo::test;

/// Number of all-reduces that this process has started, counted in libtorch's dispatcher.
std::atomic<int> sums_begun = 0;

/// Counts them while alive.
class SumCount {
 public:
  SumCount() {
    sums_begun = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (std::string_view(function.name()) == "c10d::allreduce_") ++sums_begun;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~SumCount() { at::removeCallback(handle_); }
  SumCount(const SumCount&) = delete;
  SumCount& operator=(const SumCount&) = delete;

 private:
  at::CallbackHandle handle_ = 0;
};

/// Two layers; the backward of the first one runs last.
struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    first = register_parameter("first", at::ones({kSize, kSize}));
    last = register_parameter("last", at::ones({kSize, kSize}));
  }

  static constexpr std::int64_t kSize = 4;
  at::Tensor first, last;
};

/// For each of three steps: all-reduces started when the backward reached the first layer, and at
/// its end.
struct SumsOfSteps {
  std::vector<int> before_first_layer, at_end;
};

SumsOfSteps count_sums(const ProcessGroup& group, std::int64_t bucket_bytes) {
  const auto layers = std::make_shared<TwoLayers>();
  DataParallel parallel(layers, group, {.bucket_bytes = bucket_bytes});
  const at::Tensor x = at::full({2, TwoLayers::kSize}, static_cast<double>(group.rank() + 1));
  SumsOfSteps sums;
  for (int step = 0; step < 3; ++step) {
    layers->zero_grad();
    const at::Tensor hidden = at::matmul(x, layers->first);
    int before = -1;
    hidden.register_hook([&before](const at::Tensor& /*gradient*/) { before = sums_begun; });
    const at::Tensor loss = at::matmul(hidden, layers->last).sum();
    parallel.prepare({loss});
    const SumCount counting;
    loss.backward();
    sums.before_first_layer.push_back(before);
    sums.at_end.push_back(sums_begun);
    // d loss / d last = hidden^T 1, and hidden is kSize * (rank + 1) everywhere: the mean over two
    // ranks with two rows each.
    require(layers->last.grad().eq(2 * TwoLayers::kSize * 1.5).all().item<bool>(), "a mean");
  }
  return sums;
}

void require_sums(const std::vector<int>& got, const std::vector<int>& expected) {
  require(got == expected, fmt::format("sums {}, got {}", expected, got));
}

/// The first step has one bucket, until the order of the gradients is known.
TEST(Overlap, the_last_layers_bucket_is_under_way_before_the_first_layers_backward) {
  on_ranks(2, [](ProcessGroup& group) {
    const SumsOfSteps sums = count_sums(group, 1);
    require_sums(sums.before_first_layer, {0, 1, 1});
    require_sums(sums.at_end, {1, 2, 2});
  });
}

TEST(Overlap, one_bucket_for_both_layers_waits_for_the_first_one) {
  on_ranks(2, [](ProcessGroup& group) {
    const SumsOfSteps sums = count_sums(group, 1 << 20);
    require_sums(sums.before_first_layer, {0, 0, 0});
    require_sums(sums.at_end, {1, 1, 1});
  });
}

}  // namespace
}  // namespace mezzo::dist
