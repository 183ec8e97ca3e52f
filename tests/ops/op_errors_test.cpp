#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

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

std::string gspmm_error(const at::Tensor& lhs, const at::Tensor& rhs,
                        BinaryOp op = BinaryOp::kMul) {
  return error_of([&] { gspmm(five_seven(), op, ReduceOp::kSum, lhs, rhs); });
}

std::string gsddmm_error(const at::Tensor& lhs, const at::Tensor& rhs,
                         BinaryOp op = BinaryOp::kMul) {
  return error_of([&] { gsddmm(five_seven(), op, lhs, rhs); });
}

testing::AssertionResult mentions_all(const std::string& text,
                                      const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (const auto found = mentions(text, part); !found) return found;
  }
  return testing::AssertionSuccess();
}

TEST(OpErrors, trailing_shapes_that_do_not_broadcast_are_both_shown) {
  EXPECT_TRUE(mentions_all(gspmm_error(ones({5, 31}), ones({3, 42})), {"gspmm", "31", "42"}));
  EXPECT_TRUE(mentions_all(gsddmm_error(ones({5, 31}), ones({7, 42})), {"gsddmm", "31", "42"}));
  EXPECT_TRUE(mentions_all(gsddmm_error(ones({5, 2, 31}), ones({7, 8, 31})), {"2,31", "8,31"}));
}

TEST(OpErrors, a_sparse_operand_is_named) {
  const at::Tensor sparse = ones({5, 2}).to_sparse_csr();
  EXPECT_TRUE(mentions_all(gspmm_error(sparse, ones({3, 1})), {"gspmm", "lhs", "Sparse"}));
  EXPECT_TRUE(mentions_all(gsddmm_error(sparse, ones({7, 2})), {"gsddmm", "lhs", "Sparse"}));
}

TEST(OpErrors, operands_of_edges_share_one_dtype) {
  const auto text = error_of([&] {
    gspmm(five_seven(), BinaryOp::kMul, ReduceOp::kSum, ones({3, 2}), ones({3, 2}, at::kHalf),
          Target::kEdge, Target::kEdge);
  });
  EXPECT_TRUE(mentions_all(text, {"gspmm", "onedtype", "lhsFloatandrhsHalf"}));
  EXPECT_TRUE(mentions_all(error_of([&] {
                             gsddmm(five_seven(), BinaryOp::kAdd, ones({3, 2}, at::kBFloat16),
                                    ones({3, 2}), Target::kEdge, Target::kEdge);
                           }),
                           {"gsddmm", "lhsBFloat16andrhsFloat"}));
}

TEST(OpErrors, an_absent_tensor_is_named) {
  const Topology g = five_seven();
  EXPECT_TRUE(mentions_all(error_of([&] { edge_softmax(g, {}); }), {"edge_softmax", "logits"}));
  EXPECT_TRUE(mentions_all(error_of([&] { scaled_sum(g, {}, ones({3}), {}, {}); }),
                           {"scaled_sum", "expectedx,gotanundefined"}));
  EXPECT_TRUE(mentions_all(error_of([&] {
                             mezzo::linear(ones({3, 2}), {});
                           }),
                           {"linear", "weight"}));
  EXPECT_TRUE(mentions_all(error_of([&] {
                             gat_attention(g, ones({5, 1, 2}), {}, ones({7, 1}));
                           }),
                           {"gat_attention", "score_src", "undefined"}));
  EXPECT_TRUE(mentions_all(error_of([&] {
                             gatv2_scores(g, ones({5, 1, 2}), {}, ones({1, 2}));
                           }),
                           {"gatv2_scores", "dst", "undefined"}));
}

TEST(OpErrors, a_dot_needs_equal_last_dimensions) {
  for (const std::int64_t last : {42, 1}) {  // a dot does not broadcast size 1
    const auto text = gsddmm_error(ones({5, 31}), ones({7, last}), BinaryOp::kDot);
    EXPECT_TRUE(mentions_all(text, {"31", std::to_string(last)}));
    const auto reduced = gspmm_error(ones({5, 31}), ones({3, last}), BinaryOp::kDot);
    EXPECT_TRUE(mentions_all(reduced, {"31", std::to_string(last)}));
  }
}

TEST(OpErrors, an_operand_of_another_row_count_is_named_with_both_counts) {
  EXPECT_TRUE(mentions_all(gspmm_error(ones({9, 2}), ones({3, 2})), {"lhs", "5", "9"}));
  EXPECT_TRUE(mentions_all(gspmm_error(ones({5, 2}), ones({9, 2})), {"rhs", "3", "9"}));
  EXPECT_TRUE(mentions_all(gsddmm_error(ones({5, 2}), ones({9, 2})), {"rhs", "7", "9"}));
  EXPECT_TRUE(mentions(gspmm_error(ones({}), ones({3, 2})), "lhs"));
  EXPECT_TRUE(mentions_all(error_of([] {
                             edge_softmax(five_seven(), ones({9, 2}));
                           }),
                           {"edge_softmax", "3", "9"}));
}

TEST(OpErrors, an_operand_that_the_op_needs_must_be_there) {
  const auto missing = [](BinaryOp op, const std::optional<at::Tensor>& lhs,
                          const std::optional<at::Tensor>& rhs) {
    return error_of([&] { gspmm(five_seven(), op, ReduceOp::kSum, lhs, rhs); });
  };
  EXPECT_TRUE(mentions(missing(BinaryOp::kMul, ones({5, 2}), std::nullopt), "rhs"));
  EXPECT_TRUE(mentions(missing(BinaryOp::kMul, std::nullopt, ones({3, 2})), "lhs"));
  EXPECT_TRUE(mentions(missing(BinaryOp::kCopyLhs, std::nullopt, ones({3, 2})), "lhs"));
  EXPECT_TRUE(mentions(missing(BinaryOp::kMul, ones({5, 2}), at::Tensor()), "rhs"));
  EXPECT_TRUE(mentions(missing(BinaryOp::kMul, std::nullopt, std::nullopt), "gspmm"));
  EXPECT_ERROR("rhs", gsddmm(five_seven(), BinaryOp::kAdd, ones({5, 2}), std::nullopt));
  EXPECT_ERROR("edge_softmax", edge_softmax(five_seven(), at::Tensor()));
}

TEST(OpErrors, features_that_are_no_floating_point_numbers_are_refused) {
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    SCOPED_TRACE(c10::toString(type));
    EXPECT_TRUE(mentions_all(gspmm_error(ones({5, 2}, type), ones({3, 2}, type)),
                             {"lhs", c10::toString(type), "float32"}));
    EXPECT_TRUE(mentions(gsddmm_error(ones({5, 2}, type), ones({7, 2}, type)), "gsddmm"));
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
    const auto text = gspmm_error(ones({5, 2}, one.node), ones({3, 2}, one.edge));
    EXPECT_TRUE(mentions_all(text, {c10::toString(one.node), c10::toString(one.edge)}));
  }
  // Only edge operands may be float32 beside 16 bits.
  const auto nodes = gsddmm_error(ones({5, 2}, at::kHalf), ones({7, 2}, at::kFloat));
  EXPECT_TRUE(mentions_all(nodes, {"Half", "Float"}));
}

TEST(OpErrors, an_operand_on_another_device_is_refused) {
  // The dispatcher may fail first: it has no kernel for the other device.
  const auto elsewhere = at::ones({5, 2}, at::TensorOptions().device(at::kMeta));
  const auto text = error_of<std::exception>([&] {
    gspmm(five_seven(), BinaryOp::kMul, ReduceOp::kSum, elsewhere, ones({3, 2}));
  });
  EXPECT_TRUE(mentions(text, "gspmm"));
  const auto second = error_of<std::exception>([&] {
    gsddmm(five_seven(), BinaryOp::kMul, ones({5, 2}),
           at::ones({7, 2}, at::TensorOptions().device(at::kMeta)));
  });
  EXPECT_TRUE(mentions(second, "gsddmm"));
}

TEST(OpErrors, sparse_operands_are_refused) {
  const auto text = error_of<std::exception>([] {
    gspmm(five_seven(), BinaryOp::kCopyLhs, ReduceOp::kSum, ones({5, 2}).to_sparse(), std::nullopt);
  });
  EXPECT_TRUE(mentions(text, "gspmm"));
}

TEST(OpErrors, nothing_is_left_behind_by_an_error) {
  const auto x = leaf(ones({5, 2}));
  EXPECT_TRUE(mentions(gspmm_error(x, ones({9, 2})), "rhs"));
  const auto out = gspmm(five_seven(), BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
  out.sum().backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 6.0);
}

TEST(Dispatcher, knows_every_operator_by_its_name) {
  for (const char* name : {"mezzo::gspmm", "mezzo::gsddmm", "mezzo::scaled_sum",
                           "mezzo::edge_softmax", "mezzo::linear"}) {
    const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) << name;
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name;
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) << name;
  }
}

TEST(Dispatcher, every_operator_that_runs_on_the_cpu_is_registered_for_cuda) {
  std::size_t count = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto found = c10::Dispatcher::singleton().findSchema(name);
    if (name.getNamespace() != "mezzo" || !found ||
        !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      continue;
    }
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name.name;
    ++count;
  }
  EXPECT_GT(count, 15U);  // the public operators and the parts of their gradients
}

TEST(Dispatcher, has_an_autocast_rule_for_all_but_the_softmax) {
  for (const char* name : {"mezzo::gspmm", "mezzo::gsddmm", "mezzo::scaled_sum", "mezzo::linear"}) {
    const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) << name;
    EXPECT_TRUE(found->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA)) << name;
  }
}

}  // namespace
}  // namespace mezzo::test
