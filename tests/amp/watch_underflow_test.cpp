#include <algorithm>
#include <optional>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/ops/ops.h"

#include "support/devices.h"
#include "support/tensors.h"

/// Which zeros amp::Watch counts as underflow. float16's smallest positive number is 2^-24; 2^-25
/// and less round to 0.
namespace mezzo::test {
namespace {

const CpuOnlySuite kWatchUnderflowOnCpu("WatchUnderflow", "the CPU's operators");

using amp::Pass;
using amp::Watch;
using amp::WatchReport;
using amp::WatchRow;

at::Tensor half(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(at::kHalf);
}

/// The only float16 row of an operation in a pass; nullopt if there is no row.
std::optional<WatchRow> row_of(const WatchReport& report, const std::string& op,
                               Pass pass = Pass::kForward) {
  const auto row_of_op =
      std::find_if(report.rows.begin(), report.rows.end(), [&](const WatchRow& row) {
        return row.op == op && row.place.pass == pass && row.dtype == at::kHalf;
      });
  return row_of_op == report.rows.end() ? std::nullopt : std::optional(*row_of_op);
}

/// Zeros of one operation, and how many of them are underflow.
using Zeros = std::pair<std::int64_t, std::int64_t>;

template <class Call>
Zeros zeros_of(const std::string& op, Call call) {
  const Watch watch({});
  call();
  const auto row = row_of(watch.report(), op);
  return row ? Zeros(row->numbers.zeros, row->underflowed) : Zeros(-1, -1);
}

TEST(WatchUnderflow, tells_underflow_in_a_product_from_honest_zeros) {
  const at::Tensor tiny = at::full({2, 2}, 0x1p-14).to(at::kHalf);
  const at::Tensor half_zero = at::tensor({1.0, 0.0, 1.0, 0.0}).view({2, 2}).to(at::kHalf);
  for (const bool judge : {true, false}) {
    Watch watch({}, {.check_underflow = judge});
    at::mm(tiny, tiny);
    at::mul(half_zero, tiny);
    const WatchReport report = watch.report();
    const auto product = row_of(report, "aten::mm");
    ASSERT_TRUE(product);
    EXPECT_EQ(product->numbers.zeros, 4);
    EXPECT_EQ(product->underflowed, judge ? 4 : 0);
    EXPECT_EQ(row_of(report, "aten::mul")->numbers.zeros, 2);
    EXPECT_EQ(row_of(report, "aten::mul")->underflowed, 0);
  }
}

TEST(WatchUnderflow, is_judged_in_powers_and_exponentials) {
  const at::Tensor bases = half({0x1p-14, 0.0, 1.0});
  EXPECT_EQ(zeros_of("aten::pow", [&] { at::pow(bases, 2.0); }), Zeros(2, 1));
  const at::Tensor logits = half({-18.0, 0.0});  // e^-18 is 1.02 * 2^-26
  EXPECT_EQ(zeros_of("aten::exp", [&] { at::exp(logits); }), Zeros(1, 1));
  EXPECT_EQ(zeros_of("aten::sigmoid", [&] { at::sigmoid(logits); }), Zeros(1, 1));
  EXPECT_EQ(zeros_of("aten::_softmax", [&] { at::softmax(logits, 0); }), Zeros(1, 1));
  EXPECT_EQ(zeros_of("aten::mean", [&] { at::mean(half({0x1p-24, 0.0, 0.0, 0.0})); }), Zeros(1, 1));
}

TEST(WatchUnderflow, is_judged_in_their_gradients_which_name_a_dtype_too) {
  const auto softmax = [] {  // y (g - sum of g y): 2^-27 and -2^-27
    at::_softmax_backward_data(half({0x1p-14, 0.0}), half({0x1p-13, 1.0}), 0, at::kHalf);
  };
  EXPECT_EQ(zeros_of("aten::_softmax_backward_data", softmax), Zeros(2, 2));
  const auto log_softmax = [] {  // g - e^y times the sum of g
    at::_log_softmax_backward_data(half({0.0, 0x1p-4}), half({-18.0, -18.0}), 0, at::kHalf);
  };
  EXPECT_EQ(zeros_of("aten::_log_softmax_backward_data", log_softmax), Zeros(1, 1));
  const auto sigmoid = [] { at::sigmoid_backward(half({0x1p-14, 1.0}), half({0x1p-14, 1.0})); };
  EXPECT_EQ(zeros_of("aten::sigmoid_backward", sigmoid), Zeros(2, 1));
  const auto tanh = [] { at::tanh_backward(half({0x1p-15, 1.0}), half({0x1.ffcp-1, 1.0})); };
  EXPECT_EQ(zeros_of("aten::tanh_backward", tanh), Zeros(2, 1));
}

TEST(WatchUnderflow, is_judged_in_the_softmax_of_edges) {
  const Topology topology = topology_of({0, 1}, {0, 0}, 2, 1);
  const at::Tensor logits = half({-18.0, 0.0});
  EXPECT_EQ(zeros_of("mezzo::edge_softmax", [&] { edge_softmax(topology, logits); }), Zeros(1, 1));
}

TEST(WatchUnderflow, is_judged_in_every_gradient_of_a_convolution) {
  struct Row {
    double input, kernel;
    std::int64_t underflowed;
  };
  // The output's gradient is 2^-14, so the gradient of the four inputs is 2^-14 * kernel, and the
  // gradient of the kernel is 2^-12 * input.
  for (const auto& [input, kernel, underflowed] :
       {Row{1.0, 1.0, 0}, Row{1.0, 0x1p-14, 4}, Row{0x1p-14, 1.0, 1}, Row{0x1p-14, 0x1p-14, 5}}) {
    const at::Tensor x = at::full({1, 1, 2, 2}, input, at::kHalf).requires_grad_();
    const at::Tensor weight = at::full({1, 1, 1, 1}, kernel, at::kHalf).requires_grad_();
    const Watch watch({{"conv.weight", weight}});
    at::conv2d(x, weight).backward(at::full({1, 1, 2, 2}, 0x1p-14, at::kHalf));
    const auto row = row_of(watch.report(), "aten::convolution_backward", Pass::kBackward);
    ASSERT_TRUE(row);
    EXPECT_EQ(row->place.name(), "conv");
    EXPECT_EQ(row->calls, 1);
    EXPECT_EQ(row->underflowed, underflowed) << input << ' ' << kernel;
  }
}

}  // namespace
}  // namespace mezzo::test
