#include "mezzo/amp/watch/watch.h"

#include <algorithm>
#include <optional>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/nn/model/model.h"

#include "support/graphs.h"
#include "support/tolerance.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kWatchOnCpu("Watch", "the CPU's operators");
const CpuOnlySuite kWatchTestOnCpu("WatchTest", "the CPU's operators");

using amp::Autocast;
using amp::Pass;
using amp::Watch;
using amp::WatchExit;
using amp::WatchReport;
using amp::WatchRow;

/// Two dense layers; all values are exact in float16.
struct Network {
  at::Tensor first = at::full({4, 4}, 0.25).requires_grad_();
  at::Tensor bias = at::ones({4}).requires_grad_();
  at::Tensor second = at::full({2, 4}, 0.5).requires_grad_();

  std::vector<std::pair<std::string, at::Tensor>> parameters() const {
    return {{"layers.0.weight", first}, {"layers.0.bias", bias}, {"layers.1.weight", second}};
  }

  at::Tensor forward(const at::Tensor& x) const {
    return at::linear(at::relu(at::linear(x, first, bias)), second);
  }

  /// A training step in `dtype`; returns the gradients.
  std::vector<at::Tensor> step(at::ScalarType dtype, double size = 1.0, double scale = 1.0) const {
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU, dtype);
      loss = forward(at::full({3, 4}, size)).to(at::kFloat).sum() * scale;
    }
    loss.backward();
    std::vector<at::Tensor> gradients{loss.detach()};
    for (const at::Tensor& parameter : {first, bias, second}) {
      gradients.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
    return gradients;
  }
};

/// The only row of an operation at a place; nullopt if there is no row.
std::optional<WatchRow> row_at(const WatchReport& report, const std::string& op,
                               const std::string& place, Pass pass = Pass::kForward) {
  const auto row_of_op =
      std::find_if(report.rows.begin(), report.rows.end(), [&](const WatchRow& row) {
        return row.op == op && row.place.name() == place && row.place.pass == pass;
      });
  return row_of_op == report.rows.end() ? std::nullopt : std::optional(*row_of_op);
}

bool has_op(const WatchReport& report, const std::string& op) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [&](const WatchRow& row) { return row.op == op; });
}

class WatchTest : public testing::Test {
 protected:
  const Network network;
  Watch watch{network.parameters()};
};

TEST_F(WatchTest, a_clean_run_left_no_range_and_counts_every_element) {
  for (int i = 0; i < 3; ++i) {
    network.step(at::kHalf);
    watch.next_step();
  }
  const WatchReport report = watch.report();
  EXPECT_EQ(report.steps, 3);
  EXPECT_FALSE(report.first_exit());
  const auto product = row_at(report, "aten::addmm", "layers.0");
  ASSERT_TRUE(product);
  EXPECT_EQ(product->dtype, at::kHalf);
  EXPECT_EQ(product->calls, 3);
  EXPECT_EQ(product->numbers.elements, 3 * 12);
  EXPECT_EQ(product->numbers.largest, 2.0);
  EXPECT_EQ(product->numbers.smallest_nonzero, 2.0);
  EXPECT_GT(product->nanoseconds, 0);
  EXPECT_GT(report.overhead_nanoseconds, 0);
  for (const WatchRow& row : report.rows) {
    EXPECT_EQ(row.numbers.non_finite(), 0) << row.op;
    EXPECT_EQ(row.underflowed, 0) << row.op;
    EXPECT_EQ(row.exits, 0) << row.op;
  }
}

TEST_F(WatchTest, operations_have_the_path_of_their_module_in_both_passes) {
  network.step(at::kHalf);
  const WatchReport report = watch.report();
  EXPECT_TRUE(row_at(report, "aten::relu", "after layers.0"));
  EXPECT_TRUE(row_at(report, "aten::mm", "layers.1"));
  EXPECT_TRUE(row_at(report, "aten::mm", "layers.1", Pass::kBackward));
  EXPECT_TRUE(row_at(report, "aten::mm", "layers.0", Pass::kBackward));
  EXPECT_TRUE(row_at(report, "aten::threshold_backward", "after layers.0", Pass::kBackward));
  const auto cast = row_at(report, "aten::_to_copy", "layers.1");
  ASSERT_TRUE(cast);
  EXPECT_TRUE(cast->is_cast);
  EXPECT_EQ(cast->dtype, at::kHalf);
}

TEST_F(WatchTest, wrappers_composites_views_and_allocations_are_not_counted) {
  network.step(at::kBFloat16);
  const WatchReport report = watch.report();
  for (const char* op : {"aten::linear", "aten::t", "aten::transpose", "aten::to", "aten::empty",
                         "aten::empty_strided", "aten::fill_", "aten::copy_", "aten::full"}) {
    EXPECT_FALSE(has_op(report, op)) << op;
  }
  const auto product = row_at(report, "aten::mm", "layers.1");
  ASSERT_TRUE(product);
  EXPECT_EQ(product->calls, 1);
}

TEST_F(WatchTest, works_outside_autocast) {
  network.forward(at::ones({3, 4})).sum().backward();
  const WatchReport report = watch.report();
  const auto product = row_at(report, "aten::addmm", "layers.0");
  ASSERT_TRUE(product);
  EXPECT_EQ(product->dtype, at::kFloat);
  EXPECT_FALSE(has_op(report, "aten::_to_copy"));
}

TEST_F(WatchTest, names_the_cast_that_a_large_feature_overflows) {
  network.step(at::kHalf);
  watch.next_step();
  network.step(at::kHalf, 1e5);
  const auto exit = watch.report().first_exit();
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->op, "aten::_to_copy");
  EXPECT_EQ(exit->place.name(), "layers.0");
  EXPECT_EQ(exit->place.pass, Pass::kForward);
  EXPECT_EQ(exit->dtype, at::kHalf);
  EXPECT_EQ(exit->step, 1);
  EXPECT_EQ(exit->inf, 12);
  EXPECT_EQ(exit->largest_input, 1e5);
}

TEST_F(WatchTest, names_the_product_that_overflows_and_not_what_follows) {
  network.step(at::kHalf, 50000.0);  // 4 x 0.25 x 50000 fits; 4 x 0.5 x 50000 does not
  const WatchReport report = watch.report();
  ASSERT_EQ(report.exits.size(), 1);
  EXPECT_EQ(report.exits[0].op, "aten::mm");
  EXPECT_EQ(report.exits[0].place.name(), "layers.1");
  EXPECT_EQ(row_at(report, "aten::addmm", "layers.0")->numbers.near_top, 12);
}

TEST_F(WatchTest, names_an_overflow_in_the_backward) {
  network.step(at::kHalf, 1.0, 1e6);
  const auto exit = watch.report().first_exit();
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->op, "aten::_to_copy");
  EXPECT_EQ(exit->place.name(), "after layers.1");
  EXPECT_EQ(exit->place.pass, Pass::kBackward);
  EXPECT_EQ(exit->step, 0);
}

TEST_F(WatchTest, notes_the_first_exit_of_each_step) {
  for (const double size : {1e5, 1.0, 1e5}) {
    network.step(at::kHalf, size);
    watch.next_step();
  }
  std::vector<std::int64_t> steps;
  for (const WatchExit& exit : watch.report().exits) steps.push_back(exit.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 2}));
}

TEST_F(WatchTest, counts_the_gradients_that_a_tiny_loss_flushes_to_zero) {
  network.step(at::kHalf, 1.0, 1e-9);
  const WatchReport report = watch.report();
  const auto cast = row_at(report, "aten::_to_copy", "after layers.1", Pass::kBackward);
  ASSERT_TRUE(cast);
  EXPECT_EQ(cast->underflowed, 6);
  EXPECT_EQ(cast->numbers.zeros, 6);
  // The inputs are zero already: no new underflow.
  EXPECT_EQ(row_at(report, "aten::mm", "layers.0", Pass::kBackward)->underflowed, 0);
  EXPECT_FALSE(report.first_exit());
}

TEST(Watch, a_nan_from_infinities_is_not_a_new_exit_but_one_from_finite_numbers_is) {
  const at::Tensor infinite = at::full({2}, std::numeric_limits<float>::infinity());
  const at::Tensor zero = at::zeros({2});
  Watch watch({});
  at::sub(infinite, infinite);
  EXPECT_FALSE(watch.report().first_exit());
  at::div(zero, zero);
  const auto exit = watch.report().first_exit();
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->op, "aten::div");
  EXPECT_EQ(exit->nan, 2);
  EXPECT_EQ(exit->inf, 0);
}

TEST(Watch, an_infinity_that_the_caller_asks_for_is_no_exit) {
  const at::Tensor scores = at::zeros({3});
  const at::Tensor mask = at::tensor({1, 0, 1}).to(at::kBool);
  Watch watch({});
  at::masked_fill(scores, mask, -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(watch.report().first_exit());
}

TEST(Watch, sees_in_place_operations_and_judges_them_by_what_they_found) {
  at::Tensor x = at::full({2}, 1e30F);
  Watch watch({});
  x.mul_(1e30);
  x.mul_(2.0);
  const WatchReport report = watch.report();
  const auto row = row_at(report, "aten::mul_", "model");
  ASSERT_TRUE(row);
  EXPECT_EQ(row->calls, 2);
  EXPECT_EQ(row->exits, 1);
}

TEST(Watch, passes_over_integers_empty_and_undefined_tensors_and_reads_sparse_values) {
  const at::Tensor sparse = at::full({3, 3}, 2.0).to_sparse();
  Watch watch({{"weight", at::Tensor()}});
  at::add(at::ones({2}, at::kLong), 1);
  at::mul(sparse, 2.0);
  at::relu(at::empty({0, 4}));
  const WatchReport report = watch.report();
  EXPECT_FALSE(has_op(report, "aten::add"));
  const auto product = row_at(report, "aten::mul", "model");
  ASSERT_TRUE(product);
  EXPECT_EQ(product->numbers.elements, 9);
  EXPECT_EQ(product->numbers.largest, 4.0);
  EXPECT_EQ(row_at(report, "aten::relu", "model")->numbers.elements, 0);
}

TEST(Watch, gradients_off_is_a_pass_of_its_own) {
  const Network network;
  const at::NoGradGuard no_grad;
  Watch watch(network.parameters());
  network.forward(at::ones({3, 4}));
  EXPECT_TRUE(row_at(watch.report(), "aten::addmm", "layers.0", Pass::kNoGrad));
}

TEST_F(WatchTest, a_user_scope_names_what_uses_no_parameter) {
  {
    RECORD_USER_SCOPE("encoder");
    at::exp(network.forward(at::ones({3, 4})));
    at::tanh(at::ones({2}));
  }
  const WatchReport report = watch.report();
  EXPECT_TRUE(row_at(report, "aten::addmm", "layers.0"));
  EXPECT_TRUE(row_at(report, "aten::tanh", "encoder"));
}

TEST(Watch, changes_no_bit_of_a_step_nor_the_autocast_state) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Network network;
    const std::vector<at::Tensor> plain = network.step(dtype, 1.1, 3.3);
    const auto parameters = network.parameters();
    const auto watch = std::make_optional<Watch>(parameters);
    const std::vector<at::Tensor> watched = network.step(dtype, 1.1, 3.3);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], watched[i]));
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

TEST(Watch, leaves_the_cast_cache_and_the_random_numbers_alone) {
  const Network network;
  const at::Tensor x = at::ones({3, 4});
  at::manual_seed(7);
  const at::Tensor drawn = at::dropout(at::ones({64}), 0.5, /*train=*/true);
  Watch watch(network.parameters());
  {
    const Autocast autocast(at::kCPU, at::kHalf);
    network.forward(x);
    network.forward(x);
  }
  const auto cast = row_at(watch.report(), "aten::_to_copy", "layers.1");
  ASSERT_TRUE(cast);
  EXPECT_EQ(cast->calls, 1);  // one cast for two forwards
  at::manual_seed(7);
  EXPECT_TRUE(same_bits(at::dropout(at::ones({64}), 0.5, /*train=*/true), drawn));
}

TEST(Watch, records_nothing_before_or_after_its_life) {
  const Network network;
  ASSERT_FALSE(at::hasThreadLocalCallbacks());
  {
    Watch first(network.parameters());
    EXPECT_TRUE(at::hasThreadLocalCallbacks());
    {
      Watch second(network.parameters());
      network.step(at::kHalf);
      EXPECT_EQ(second.report().rows.size(), first.report().rows.size());
    }
    EXPECT_TRUE(at::hasThreadLocalCallbacks());
    const Watch moved = std::move(first);
    network.step(at::kHalf);
    EXPECT_EQ(row_at(moved.report(), "aten::addmm", "layers.0")->calls, 2);
  }
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  network.step(at::kHalf);
}

TEST_F(WatchTest, sees_its_own_thread_alone) {
  std::thread([&] { network.forward(at::ones({3, 4})); }).join();
  EXPECT_TRUE(watch.report().rows.empty());
}

TEST(Watch, an_end_on_another_thread_warns_and_stops_the_recording) {
  const Network network;
  auto watch = std::make_optional<Watch>(network.parameters());
  std::vector<std::string> warnings;
  std::thread([&] {
    const Warnings collected;
    watch.reset();
    warnings = collected.texts;
  }).join();
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("another thread"), std::string::npos);
  network.step(at::kHalf);
  { const Watch next(network.parameters()); }  // removes the leftover callback
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

TEST(Watch, a_shared_parameter_has_its_first_name_and_a_slice_that_of_its_part) {
  const at::Tensor both = at::ones({2, 4, 4});
  const at::Tensor x = at::ones({3, 4});
  Watch watch({{"tied.weight", both[0]}, {"other.weight", both[0]}, {"last.weight", both[1]}});
  at::mm(x, both[0]);
  at::mm(x, both[1].t());
  const WatchReport report = watch.report();
  EXPECT_TRUE(row_at(report, "aten::mm", "tied"));
  EXPECT_TRUE(row_at(report, "aten::mm", "last"));
  EXPECT_FALSE(row_at(report, "aten::mm", "other"));
}

TEST(Watch, gives_the_layers_of_a_graph_model_their_paths) {
  const Graph graph = graph_of({0, 1, 2, 3, 0}, {1, 2, 3, 0, 2}, 4);
  nn::ModelOptions options;
  options.in_features = 5;
  options.out_features = 3;
  nn::Model model(options);
  Watch watch = amp::watch(model);
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    model->forward(graph, at::ones({4, 5})).to(at::kFloat).sum().backward();
  }
  const WatchReport report = watch.report();
  for (const std::string path : {"layer0", "layer1"}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      EXPECT_TRUE(std::any_of(report.rows.begin(), report.rows.end(), [&](const WatchRow& row) {
        return row.place.path == path && !row.place.after && row.place.pass == pass;
      })) << path;
    }
  }
  EXPECT_TRUE(std::any_of(report.rows.begin(), report.rows.end(), [](const WatchRow& row) {
    return row.op.starts_with("mezzo::") && row.dtype == at::kBFloat16;
  }));
}

}  // namespace
}  // namespace mezzo::test
