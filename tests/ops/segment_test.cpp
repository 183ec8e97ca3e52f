#include <functional>
#include <limits>

#include <c10/core/InferenceMode.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "tests/definitions/gather_mm.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

/// Some segments are empty, among them the last two.
at::Tensor mixed_lengths() {
  return ids({2, 3, 0, 4, 1, 0, 0});
}

std::int64_t total(const at::Tensor& lengths) {
  return lengths.sum().item<std::int64_t>();
}

/// The segment of each row, int64 [N].
at::Tensor segment_of_rows(const at::Tensor& lengths) {
  return at::arange(lengths.size(0), on_device()).repeat_interleave(lengths);
}

/// The graph with an edge from each row to its segment.
Topology as_graph(const at::Tensor& lengths) {
  return Topology::from_coo(at::arange(total(lengths), on_device()), segment_of_rows(lengths),
                            total(lengths), lengths.size(0));
}

/// Runs body(dtype, trailing dimensions) for all combinations.
void for_each_setting(
    const std::function<void(const DTypeInfo&, const std::vector<std::int64_t>&)>& body) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::vector<std::int64_t>& trailing :
         std::vector<std::vector<std::int64_t>>{{}, {1}, {3}, {2, 5}, {33}, {0}}) {
      SCOPED_TRACE(fmt::format("{} [N, {}]", dtype.name, fmt::join(trailing, ", ")));
      body(dtype, trailing);
    }
  }
}

TEST(SegmentReduce, of_ones_counts_and_leaves_empty_segments_zero) {
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Op>() {
      SCOPED_TRACE(fmt::format("{} {}", dtype.name, Op::name));
      const auto out =
          segment_reduce(Op::kind, ids({1, 0, 5, 4}), at::ones({10}, on_device(dtype.scalar)));
      EXPECT_EQ(out.scalar_type(), dtype.scalar);
      EXPECT_TRUE(
          exact(out, Op::kind == ReduceOp::kSum ? numbers({1, 0, 5, 4}) : numbers({1, 0, 1, 1})));
    });
  }
}

TEST(SegmentReduce, is_the_definition_in_value_and_gradient) {
  const Topology g = as_graph(mixed_lengths());
  for_each_setting([&](const DTypeInfo& dtype, const std::vector<std::int64_t>& trailing) {
    for_each(ReduceOps{}, [&]<class Op>() {
      SCOPED_TRACE(Op::name);
      const at::Tensor x = leaf(uniform(with_rows(10, trailing), dtype.scalar, 1));
      const at::Tensor out = segment_reduce(Op::kind, mixed_lengths(), x);
      const auto reference =
          gspmm_reference(g, BinaryOp::kCopyLhs, Op::kind, x.detach(), std::nullopt);
      EXPECT_TRUE(near(out, reference, dtype.scalar));
      const at::Tensor grad = uniform(out.sizes(), dtype.scalar, 2);
      out.backward(grad);
      const auto expected =
          gspmm_gradients(g, BinaryOp::kCopyLhs, Op::kind, x.detach(), std::nullopt, grad).lhs;
      EXPECT_EQ(x.grad().scalar_type(), dtype.scalar);
      EXPECT_TRUE(near(x.grad(), expected, dtype.scalar));
    });
  });
}

TEST(SegmentReduce, has_the_bits_of_message_passing_from_rows_to_segments) {
  const Topology g = as_graph(mixed_lengths());
  for_each_setting([&](const DTypeInfo& dtype, const std::vector<std::int64_t>& trailing) {
    for_each(ReduceOps{}, [&]<class Op>() {
      SCOPED_TRACE(Op::name);
      const at::Tensor x = leaf(uniform(with_rows(10, trailing), dtype.scalar, 1)), y = leaf(x);
      const at::Tensor out = segment_reduce(Op::kind, mixed_lengths(), x);
      const at::Tensor other = gspmm(g, BinaryOp::kCopyLhs, Op::kind, y, std::nullopt);
      EXPECT_TRUE(same_bits(out, other));
      const at::Tensor grad = uniform(out.sizes(), dtype.scalar, 2);
      out.backward(grad);
      other.backward(grad);
      EXPECT_TRUE(same_bits(x.grad(), y.grad()));
    });
  });
}

TEST(SegmentReduce, gradients_agree_with_finite_differences) {
  for_each(ReduceOps{}, [&]<class Op>() {
    EXPECT_TRUE(gradcheck(
        [](const std::vector<at::Tensor>& in) {
          return segment_reduce(Op::kind, mixed_lengths(), in[0]);
        },
        {uniform({10, 3}, at::kDouble, 1)}))
        << Op::name;
  });
}

TEST(SegmentReduce, takes_no_segments_and_no_rows) {
  for_each(ReduceOps{}, [&]<class Op>() {
    SCOPED_TRACE(Op::name);
    for (const DTypeInfo& dtype : dtypes()) {
      const at::Tensor none = leaf(at::empty({0, 3}, on_device(dtype.scalar)));
      EXPECT_EQ(segment_reduce(Op::kind, ids({}), none).sizes(), at::IntArrayRef({0, 3}));
      const at::Tensor out = segment_reduce(Op::kind, ids({0, 0}), none);
      EXPECT_TRUE(exact(out, at::zeros({2, 3})));
      out.sum().backward();
      EXPECT_EQ(none.grad().sizes(), at::IntArrayRef({0, 3}));
    }
  });
}

TEST(SegmentReduce, of_seventy_thousand_rows_keeps_its_count_out_of_sixteen_bits) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor ones = at::ones({70000}, on_device(dtype.scalar));
    EXPECT_TRUE(exact(segment_reduce(ReduceOp::kMean, ids({70000}), ones), numbers({1})));
    EXPECT_TRUE(exact_rounded(segment_reduce(ReduceOp::kSum, ids({60000, 10000}), ones),
                              numbers({60000, 10000})));
  }
}

TEST(SegmentReduce, an_extreme_takes_its_first_row_and_lets_nan_win) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = leaf(numbers({-2, -2, -3, 7, nan, 8}, dtype.scalar));
    const at::Tensor out = segment_reduce(ReduceOp::kMax, ids({3, 3}), x);
    EXPECT_TRUE(exact(out, numbers({-2, nan})));
    out.backward(at::ones_like(out));
    EXPECT_TRUE(exact(x.grad(), numbers({1, 0, 0, 0, 1, 0})));
  }
}

TEST(SegmentReduce, reads_strided_rows_and_lengths) {
  const at::Tensor x = integers({4, 10}, at::kFloat, 1).t();
  const at::Tensor lengths = ids({3, 9, 0, 9, 7, 9}).slice(0, 0, 6, 2);
  EXPECT_TRUE(exact(
      segment_reduce(ReduceOp::kSum, lengths, x),
      at::stack({x.slice(0, 0, 3).sum(0), at::zeros({4}, on_device()), x.slice(0, 3).sum(0)})));
}

TEST(SegmentReduce, refuses_lengths_that_are_not_the_parts_of_the_rows) {
  const auto attempt = [](const at::Tensor& lengths, const at::Tensor& rows) {
    segment_reduce(ReduceOp::kSum, lengths, rows);
  };
  const at::Tensor x = at::ones({10, 2}, on_device(at::kFloat));
  EXPECT_ERROR(fragments("segment_reduce", "10", "9"), attempt(ids({4, 5}), x));
  EXPECT_ERROR("10", attempt(ids({}), x));
  EXPECT_ERROR("12", attempt(ids({12, -2}), x));
  EXPECT_ERROR("lengths", attempt(ids({11, -1}), x));
  EXPECT_ERROR("undefined", attempt(at::Tensor(), x));
  EXPECT_ERROR("int64", attempt(numbers({4, 6}, at::kFloat), x));
  EXPECT_ERROR("int32", attempt(ids({4, 6}).to(at::kInt), x));
  EXPECT_ERROR("[1,2]", attempt(ids({4, 6}).reshape({1, 2}), x));
  EXPECT_ERROR("x", attempt(ids({1}), at::ones({}, on_device(at::kFloat))));
  EXPECT_ERROR("x", attempt(ids({1}), at::Tensor()));
  EXPECT_ERROR("segment_reduce:dtypeofx:expected", attempt(ids({4, 6}), x.to(at::kLong)));
}

TEST(SegmentSoftmax, sums_to_one_in_every_segment_and_is_the_definition) {
  const Topology g = as_graph(mixed_lengths());
  for_each_setting([&](const DTypeInfo& dtype, const std::vector<std::int64_t>& trailing) {
    const at::Tensor x = uniform(with_rows(10, trailing), dtype.scalar, 1, -5, 5);
    const at::Tensor out = segment_softmax(mixed_lengths(), x);
    EXPECT_EQ(out.scalar_type(), dtype.scalar);
    const at::Tensor value = softmax_reference(g, x).value;
    EXPECT_TRUE(near(out, value, softmax_bound(value, 4, 10, dtype.scalar)));
  });
}

TEST(SegmentSoftmax, gradients_agree_with_finite_differences) {
  EXPECT_TRUE(gradcheck(
      [](const std::vector<at::Tensor>& in) { return segment_softmax(mixed_lengths(), in[0]); },
      {uniform({10, 3}, at::kDouble, 1)}));
}

TEST(SegmentSoftmax, refuses_lengths_that_do_not_add_up) {
  EXPECT_ERROR(fragments("segment_softmax", "10"),
               segment_softmax(ids({4, 5}), at::ones({10}, on_device())));
  EXPECT_ERROR("segment_softmax:dtypeofx:expected", segment_softmax(ids({4, 5}), ids({1, 2, 3})));
}

struct Widths {
  std::int64_t in, out;
};

const std::vector<Widths>& all_widths() {
  static const std::vector<Widths> all = {{1, 1}, {1, 256}, {256, 1}, {8, 3}, {33, 16}, {127, 40}};
  return all;
}

/// Many rows, few, one and none; the last relation is empty.
at::Tensor relation_lengths() {
  return ids({10, 15, 8, 0, 1, 9, 18, 24, 15, 0});
}

/// The relation of each of 100 rows, unsorted; 3 and 9 have no rows.
at::Tensor relation_of_rows() {
  const at::Tensor sorted = segment_of_rows(relation_lengths());
  return sorted.index_select(0, (at::arange(100, on_device()) * 37).remainder(100));
}

/// Row i of a times b[relation[i]], and the gradients.
Defined row_products(const at::Tensor& a, const at::Tensor& b, const at::Tensor& relation,
                     const at::Tensor& grad) {
  using definition::array_of;
  return definition::gather_mm(array_of(a), array_of(b), definition::ids_of(relation),
                               array_of(grad));
}

using GroupedProduct = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;

/// Compares value and gradients with the product of each row and its matrix: exactly for integers,
/// else within the bound of the sums.
void expect_row_products(const GroupedProduct& run, const at::Tensor& relation, Widths widths,
                         const DTypeInfo& dtype, bool whole) {
  const auto make = [&](at::IntArrayRef sizes, std::uint64_t seed) {
    return whole ? integers(sizes, dtype.scalar, seed) : uniform(sizes, dtype.scalar, seed);
  };
  const at::Tensor a = leaf(make({100, widths.in}, 1)),
                   b = leaf(make({10, widths.in, widths.out}, 2));
  const at::Tensor grad = make({100, widths.out}, 3);
  const at::Tensor out = run(a, b);
  out.backward(grad);
  EXPECT_EQ(out.scalar_type(), dtype.scalar);
  expect_defined(out, {a, b}, row_products(a, b, relation, grad), whole);
  EXPECT_TRUE(exact(b.grad()[3], at::zeros({widths.in, widths.out})));
  EXPECT_TRUE(exact(b.grad()[9], at::zeros({widths.in, widths.out})));
}

void expect_row_products(const GroupedProduct& run, const at::Tensor& relation) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Widths& widths : all_widths()) {
      for (const bool whole : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} -> {}", dtype.name, widths.in, widths.out));
        expect_row_products(run, relation, widths, dtype, whole);
      }
    }
  }
}

TEST(SegmentMm, multiplies_every_segment_by_its_matrix) {
  expect_row_products(
      [](const auto& a, const auto& b) { return segment_mm(a, b, relation_lengths()); },
      segment_of_rows(relation_lengths()));
}

TEST(GatherMm, multiplies_every_row_by_the_matrix_of_its_id) {
  expect_row_products(
      [](const auto& a, const auto& b) { return gather_mm(a, b, relation_of_rows()); },
      relation_of_rows());
}

TEST(GatherMm, of_sorted_ids_multiplies_segments) {
  const at::Tensor sorted = segment_of_rows(relation_lengths());
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    expect_row_products([&](const auto& a, const auto& b) { return gather_mm(a, b, sorted); },
                        sorted, {33, 16}, dtype, /*whole=*/true);
  }
}

TEST(SegmentMm, gradients_agree_with_finite_differences) {
  const at::Tensor a = uniform({6, 4}, at::kDouble, 1), b = uniform({4, 4, 3}, at::kDouble, 2);
  EXPECT_TRUE(gradcheck(
      [](const std::vector<at::Tensor>& in) {
        return segment_mm(in[0], in[1], ids({2, 0, 3, 1}));
      },
      {a, b}));
  EXPECT_TRUE(gradcheck(
      [](const std::vector<at::Tensor>& in) {
        return gather_mm(in[0], in[1], ids({3, 0, 3, 1, 0, 3}));
      },
      {a, b}));
}

TEST(SegmentMm, long_sums_are_not_kept_in_sixteen_bits) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor a = at::ones({3, 6000}, on_device(dtype.scalar)),
                     b = at::ones({2, 6000, 2}, on_device(dtype.scalar));
    const at::Tensor expected = at::full({3, 2}, 6000, on_device(at::kDouble));
    EXPECT_TRUE(exact_rounded(segment_mm(a, b, ids({1, 2})), expected));
    EXPECT_TRUE(exact_rounded(gather_mm(a, b, ids({1, 0, 1})), expected));
  }
}

TEST(SegmentMm, gives_a_gradient_to_the_one_operand_that_wants_it) {
  const at::Tensor a = integers({5, 3}, at::kFloat, 1), b = integers({2, 3, 4}, at::kFloat, 2);
  const at::Tensor lengths = ids({2, 3}), idx = ids({1, 0, 0, 1, 1});
  for (const bool gather : {false, true}) {
    const auto run = [&](const at::Tensor& x, const at::Tensor& y) {
      return gather ? gather_mm(x, y, idx) : segment_mm(x, y, lengths);
    };
    const at::Tensor both_a = leaf(a), both_b = leaf(b), one_a = leaf(a), one_b = leaf(b);
    run(both_a, both_b).sum().backward();  // a gradient with strides of 0
    run(one_a, b).sum().backward();
    run(a, one_b).sum().backward();
    EXPECT_TRUE(exact(one_a.grad(), both_a.grad()));
    EXPECT_TRUE(exact(one_b.grad(), both_b.grad()));
    EXPECT_FALSE(run(a, b).requires_grad());
    const c10::InferenceMode inference;
    EXPECT_TRUE(exact(run(a, b), run(both_a, both_b)));
  }
}

TEST(SegmentMm, reads_strided_operands) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor a = integers({8, 7}, dtype.scalar, 1).t();  // [7, 8]
    const at::Tensor b =
        integers({5, 16, 3}, dtype.scalar, 2).permute({2, 1, 0}).slice(1, 0, 16, 2);
    const at::Tensor lengths = ids({2, 9, 1, 9, 4, 9}).slice(0, 0, 6, 2);
    const at::Tensor idx = ids({2, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 1, 0}).slice(0, 0, 14, 2);
    const auto expected = [&](const at::Tensor& relation) {
      return row_products(a, b, relation, at::zeros({7, 3})).out;
    };
    EXPECT_TRUE(agrees(segment_mm(a, b, lengths), expected(segment_of_rows(lengths)), true));
    EXPECT_TRUE(agrees(gather_mm(a, b, idx), expected(idx), true));
  }
}

TEST(SegmentMm, takes_no_rows_no_matrices_and_no_columns) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto run = [&](std::int64_t rows, std::int64_t matrices, std::int64_t in,
                         std::int64_t out) {
      const at::Tensor a = leaf(at::ones({rows, in}, on_device(dtype.scalar)));
      const at::Tensor b = leaf(at::ones({matrices, in, out}, on_device(dtype.scalar)));
      at::Tensor lengths = at::zeros({matrices}, on_device(at::kLong));
      if (matrices > 0) lengths[matrices - 1] = rows;
      for (const at::Tensor& product :
           {segment_mm(a, b, lengths), gather_mm(a, b, at::zeros({rows}, on_device(at::kLong)))}) {
        EXPECT_TRUE(exact(product, at::full({rows, out}, static_cast<double>(in))));
        product.sum().backward();
        EXPECT_EQ(a.grad().sizes(), a.sizes());
        EXPECT_EQ(b.grad().sizes(), b.sizes());
      }
    };
    run(0, 3, 4, 5);
    run(0, 0, 4, 5);
    run(6, 2, 0, 5);
    run(6, 2, 4, 0);
  }
}

TEST(SegmentMm, takes_lengths_on_the_cpu_and_keeps_no_hold_of_them) {
  const at::Tensor lengths = relation_lengths();
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    std::vector<at::Tensor> results;
    for (const bool on_host : {false, true}) {
      const at::Tensor own_lengths = on_host ? lengths.cpu().clone() : lengths.clone();
      const at::Tensor a = leaf(integers({100, 8}, dtype.scalar, 1)),
                       b = leaf(integers({10, 8, 3}, dtype.scalar, 2));
      const at::Tensor out = segment_mm(a, b, own_lengths);
      own_lengths.zero_();  // the backward has its own copy
      out.backward(integers({100, 3}, dtype.scalar, 3));
      results.insert(results.end(), {out, a.grad(), b.grad()});
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(results[i].device(), results[i + 3].device());
      EXPECT_TRUE(same_bits(results[i], results[i + 3])) << i;
    }
  }
  if (on_cpu()) return;
  const at::Tensor host_a = at::ones({100, 8}, at::kFloat), host_b = at::ones({10, 8, 3});
  EXPECT_ERROR("segment_mm:expectedlengthsoncpu,astherows,orontheCPU,gotcuda",
               segment_mm(host_a, host_b, lengths));
}

TEST(SegmentMm, refuses_what_does_not_fit) {
  const at::Tensor a = at::ones({10, 3}, on_device(at::kFloat)),
                   b = at::ones({2, 3, 4}, on_device(at::kFloat));
  const auto attempt = [&](const at::Tensor& x, const at::Tensor& y, const at::Tensor& lengths) {
    segment_mm(x, y, lengths);
  };
  EXPECT_ERROR("got9", attempt(a, b, ids({4, 5})));
  EXPECT_ERROR("lengths", attempt(a, b, ids({-1, 11})));
  EXPECT_ERROR("[2]", attempt(a, b, ids({4, 5, 1})));
  EXPECT_ERROR("int64", attempt(a, b, ids({4, 6}).to(at::kInt)));
  EXPECT_ERROR("[2,5,4]", attempt(a, at::ones({2, 5, 4}, on_device()), ids({4, 6})));
  EXPECT_ERROR("[3,4]", attempt(a, at::ones({3, 4}, on_device()), ids({4, 6})));
  EXPECT_ERROR("Double", attempt(a, b.to(at::kDouble), ids({4, 6})));
  EXPECT_ERROR("float16", attempt(a.to(at::kInt), b.to(at::kInt), ids({4, 6})));
  EXPECT_ERROR("undefined", attempt(a, at::Tensor(), ids({4, 6})));
}

TEST(GatherMm, refuses_ids_out_of_range_and_names_the_first) {
  const at::Tensor a = at::ones({3, 3}, on_device(at::kFloat)),
                   b = at::ones({2, 3, 4}, on_device(at::kFloat));
  const auto attempt = [&](const at::Tensor& idx) { gather_mm(a, b, idx); };
  EXPECT_ERROR(fragments("gather_mm", "got2atposition1"), attempt(ids({0, 2, 5})));
  EXPECT_ERROR("got-1", attempt(ids({0, -1, 1})));
  EXPECT_ERROR("[3]", attempt(ids({0, 1})));
  EXPECT_ERROR("int64", attempt(ids({0, 1, 1}).to(at::kInt)));
  EXPECT_ERROR("idx", gather_mm(a, at::ones({0, 3, 4}, on_device()), ids({0, 0, 0})));
}

TEST(SegmentAutocast, casts_rows_and_matrices_and_leaves_the_softmax) {
  const at::Tensor a = leaf(integers({10, 3}, at::kFloat, 1));
  const at::Tensor b = leaf(integers({2, 3, 4}, at::kFloat, 2));
  const at::Tensor lengths = ids({4, 6}), idx = ids({1, 0, 0, 0, 0, 1, 1, 1, 1, 1});
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    std::vector<at::Tensor> results;
    {
      const amp::Autocast region(test_device().type(), dtype.scalar);
      results = {segment_mm(a, b, lengths), gather_mm(a, b, idx),
                 segment_reduce(ReduceOp::kSum, lengths, a),
                 segment_mm(a.to(dtype.scalar), b, lengths)};
      EXPECT_EQ(segment_softmax(lengths, a).scalar_type(), at::kFloat);
    }
    const std::vector<at::Tensor> expected = {segment_mm(a, b, lengths), gather_mm(a, b, idx),
                                              segment_reduce(ReduceOp::kSum, lengths, a),
                                              segment_mm(a, b, lengths)};
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].scalar_type(), dtype.scalar) << i;
      EXPECT_TRUE(exact(results[i], expected[i])) << i;
    }
    results[0].sum().backward();
    EXPECT_EQ(a.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(b.grad().scalar_type(), at::kFloat);
  }
}

}  // namespace
}  // namespace mezzo::test
