#include <ATen/core/dispatch/Dispatcher.h>

#include "mezzo/ops/ops.h"

#include "support/tensors.h"

namespace mezzo::test {
namespace {

at::Tensor ones(const std::vector<std::int64_t>& sizes, at::ScalarType dtype = at::kFloat) {
  return at::ones(sizes, on_device(dtype));
}

/// Five sources, seven destinations, three edges: no two counts are equal.
Topology five_seven() {
  return topology_of({0, 4, 2}, {6, 0, 0}, 5, 7);
}

void run_gspmm(const at::Tensor& lhs, const at::Tensor& rhs, BinaryOp op = BinaryOp::kMul) {
  gspmm(five_seven(), op, ReduceOp::kSum, lhs, rhs);
}

void run_gsddmm(const at::Tensor& lhs, const at::Tensor& rhs, BinaryOp op = BinaryOp::kMul) {
  gsddmm(five_seven(), op, lhs, rhs);
}

TEST(OpErrors, trailing_shapes_that_do_not_broadcast_are_both_shown) {
  EXPECT_ERROR(fragments("gspmm", "31", "42"), run_gspmm(ones({5, 31}), ones({3, 42})));
  EXPECT_ERROR(fragments("gsddmm", "31", "42"), run_gsddmm(ones({5, 31}), ones({7, 42})));
  EXPECT_ERROR(fragments("2,31", "8,31"), run_gsddmm(ones({5, 2, 31}), ones({7, 8, 31})));
}

TEST(OpErrors, a_sparse_operand_is_named) {
  const at::Tensor sparse = ones({5, 2}).to_sparse_csr();
  EXPECT_ERROR(fragments("gspmm", "lhs", "Sparse"), run_gspmm(sparse, ones({3, 1})));
  EXPECT_ERROR(fragments("gsddmm", "lhs", "Sparse"), run_gsddmm(sparse, ones({7, 2})));
}

TEST(OpErrors, operands_of_edges_share_one_dtype) {
  EXPECT_ERROR(fragments("gspmm", "onedtype", "lhsFloatandrhsHalf"),
               gspmm(five_seven(), BinaryOp::kMul, ReduceOp::kSum, ones({3, 2}),
                     ones({3, 2}, at::kHalf), Target::kEdge, Target::kEdge));
  EXPECT_ERROR(fragments("gsddmm", "lhsBFloat16andrhsFloat"),
               gsddmm(five_seven(), BinaryOp::kAdd, ones({3, 2}, at::kBFloat16), ones({3, 2}),
                      Target::kEdge, Target::kEdge));
}

TEST(OpErrors, an_absent_tensor_is_named) {
  const Topology g = five_seven();
  EXPECT_ERROR(fragments("edge_softmax", "logits"), edge_softmax(g, {}));
  EXPECT_ERROR(fragments("scaled_sum", "expectedx,gotanundefined"),
               scaled_sum(g, {}, ones({3}), {}, {}));
  EXPECT_ERROR(fragments("linear", "weight"), mezzo::linear(ones({3, 2}), {}));
  EXPECT_ERROR(fragments("gat_attention", "score_src", "undefined"),
               gat_attention(g, ones({5, 1, 2}), {}, ones({7, 1})));
  EXPECT_ERROR(fragments("gatv2_scores", "dst", "undefined"),
               gatv2_scores(g, ones({5, 1, 2}), {}, ones({1, 2})));
}

TEST(OpErrors, a_dot_needs_equal_last_dimensions) {
  for (const std::int64_t last : {42, 1}) {  // a dot does not broadcast size 1
    const auto both = fragments("31", std::to_string(last));
    EXPECT_ERROR(both, run_gsddmm(ones({5, 31}), ones({7, last}), BinaryOp::kDot));
    EXPECT_ERROR(both, run_gspmm(ones({5, 31}), ones({3, last}), BinaryOp::kDot));
  }
}

TEST(OpErrors, an_operand_of_another_row_count_is_named_with_both_counts) {
  EXPECT_ERROR(fragments("lhs", "5", "9"), run_gspmm(ones({9, 2}), ones({3, 2})));
  EXPECT_ERROR(fragments("rhs", "3", "9"), run_gspmm(ones({5, 2}), ones({9, 2})));
  EXPECT_ERROR(fragments("rhs", "7", "9"), run_gsddmm(ones({5, 2}), ones({9, 2})));
  EXPECT_ERROR("lhs", run_gspmm(ones({}), ones({3, 2})));
  EXPECT_ERROR(fragments("edge_softmax", "3", "9"), edge_softmax(five_seven(), ones({9, 2})));
}

TEST(OpErrors, an_operand_that_the_op_needs_must_be_there) {
  const auto attempt = [&](BinaryOp op, const std::optional<at::Tensor>& lhs,
                           const std::optional<at::Tensor>& rhs) {
    gspmm(five_seven(), op, ReduceOp::kSum, lhs, rhs);
  };
  EXPECT_ERROR("rhs", attempt(BinaryOp::kMul, ones({5, 2}), std::nullopt));
  EXPECT_ERROR("lhs", attempt(BinaryOp::kMul, std::nullopt, ones({3, 2})));
  EXPECT_ERROR("lhs", attempt(BinaryOp::kCopyLhs, std::nullopt, ones({3, 2})));
  EXPECT_ERROR("rhs", attempt(BinaryOp::kMul, ones({5, 2}), at::Tensor()));
  EXPECT_ERROR("gspmm", attempt(BinaryOp::kMul, std::nullopt, std::nullopt));
  EXPECT_ERROR("rhs", gsddmm(five_seven(), BinaryOp::kAdd, ones({5, 2}), std::nullopt));
  EXPECT_ERROR("edge_softmax", edge_softmax(five_seven(), at::Tensor()));
}

TEST(OpErrors, features_that_are_no_floating_point_numbers_are_refused) {
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    SCOPED_TRACE(c10::toString(type));
    EXPECT_ERROR(fragments("lhs", c10::toString(type), "float32"),
                 run_gspmm(ones({5, 2}, type), ones({3, 2}, type)));
    EXPECT_ERROR("gsddmm", run_gsddmm(ones({5, 2}, type), ones({7, 2}, type)));
    EXPECT_ERROR("edge_softmax", edge_softmax(five_seven(), ones({3, 2}, type)));
  }
}

TEST(OpErrors, operands_of_different_dtypes_are_refused_and_both_are_named) {
  struct Pair {
    at::ScalarType node, edge;
  };
  for (const Pair& one : {Pair{at::kFloat, at::kDouble}, Pair{at::kDouble, at::kFloat},
                          Pair{at::kBFloat16, at::kHalf}, Pair{at::kHalf, at::kBFloat16},
                          Pair{at::kFloat, at::kHalf}, Pair{at::kHalf, at::kDouble}}) {
    EXPECT_ERROR(fragments(c10::toString(one.node), c10::toString(one.edge)),
                 run_gspmm(ones({5, 2}, one.node), ones({3, 2}, one.edge)));
  }
  // Only edge operands may be float32 beside 16 bits.
  EXPECT_ERROR(fragments("Half", "Float"),
               run_gsddmm(ones({5, 2}, at::kHalf), ones({7, 2}, at::kFloat)));
}

TEST(OpErrors, an_operand_on_another_device_is_refused) {
  // The dispatcher may fail first: it has no kernel for the other device.
  const auto meta = [](std::int64_t rows) {
    return at::ones({rows, 2}, at::TensorOptions().device(at::kMeta));
  };
  EXPECT_TRUE(mentions(error_of<std::exception>([&] {
                         run_gspmm(meta(5), ones({3, 2}));
                       }),
                       "gspmm"));
  EXPECT_TRUE(mentions(error_of<std::exception>([&] {
                         run_gsddmm(ones({5, 2}), meta(7));
                       }),
                       "gsddmm"));
}

TEST(OpErrors, sparse_operands_are_refused) {
  const auto text = error_of<std::exception>([] {
    gspmm(five_seven(), BinaryOp::kCopyLhs, ReduceOp::kSum, ones({5, 2}).to_sparse(), std::nullopt);
  });
  EXPECT_TRUE(mentions(text, "gspmm"));
}

TEST(OpErrors, nothing_is_left_behind_by_an_error) {
  const auto x = leaf(ones({5, 2}));
  EXPECT_ERROR("rhs", run_gspmm(x, ones({9, 2})));
  const auto out = gspmm(five_seven(), BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
  out.sum().backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 6.0);
}

void expect_kernels(const char* name, std::initializer_list<c10::DispatchKey> keys) {
  const auto schema = c10::Dispatcher::singleton().findSchema({name, ""});
  ASSERT_TRUE(schema.has_value()) << name;
  for (const c10::DispatchKey key : keys) {
    EXPECT_TRUE(schema->hasKernelForDispatchKey(key)) << name << ", " << key;
  }
}

TEST(Dispatcher, knows_every_operator_by_its_name) {
  for (const char* name : {"mezzo::gspmm", "mezzo::gsddmm", "mezzo::scaled_sum",
                           "mezzo::edge_softmax", "mezzo::linear"}) {
    expect_kernels(name,
                   {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::Autograd});
  }
}

TEST(Dispatcher, every_operator_that_runs_on_the_cpu_is_registered_for_cuda) {
  std::size_t count = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto schema = c10::Dispatcher::singleton().findSchema(name);
    if (name.getNamespace() != "mezzo" || !schema ||
        !schema->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      continue;
    }
    EXPECT_TRUE(schema->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name.name;
    ++count;
  }
  EXPECT_GT(count, 15U);  // the public operators and the parts of their gradients
}

TEST(Dispatcher, has_an_autocast_rule_for_all_but_the_softmax) {
  for (const char* name : {"mezzo::gspmm", "mezzo::gsddmm", "mezzo::scaled_sum", "mezzo::linear"}) {
    expect_kernels(name, {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA});
  }
}

}  // namespace
}  // namespace mezzo::test
