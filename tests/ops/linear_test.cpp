#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/ops/dense/blocked_product.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/batch_invariant.h"

#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

struct Sizes {
  std::int64_t rows, in, out;
};

/// Row and column counts below and above the block sizes of the products.
const std::vector<Sizes>& all_sizes() {
  static const std::vector<Sizes> all = {
      {1, 1, 1},   {3, 5, 2},      {0, 4, 3},     {4, 0, 3},     {17, 33, 16},   {64, 64, 64},
      {65, 31, 7}, {600, 129, 64}, {2100, 30, 9}, {70, 2100, 9}, {2500, 1030, 5}};
  return all;
}

struct Inputs {
  at::Tensor x, weight, bias;
};

Inputs make_inputs(const Sizes& s, at::ScalarType dtype, bool whole) {
  if (whole) {
    return {leaf(integers({s.rows, s.in}, dtype, 1)), leaf(integers({s.out, s.in}, dtype, 2)),
            leaf(integers({s.out}, dtype, 3))};
  }
  return {leaf(uniform({s.rows, s.in}, dtype, 1)), leaf(uniform({s.out, s.in}, dtype, 2)),
          leaf(uniform({s.out}, dtype, 3))};
}

std::string described(const Sizes& s, const DTypeInfo& dtype) {
  return fmt::format("{} [{}, {}] -> {}", dtype.name, s.rows, s.in, s.out);
}

at::Tensor in_double(const at::Tensor& t) {
  return t.detach().to(at::kDouble);
}
at::Tensor magnitude(const at::Tensor& t) {
  return in_double(t).abs();
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor out = x.matmul(weight.t());
  return bias.defined() ? out + bias : out;
}

/// Exact if `whole`, else within the bound of a sum of `terms`.
testing::AssertionResult agrees(const at::Tensor& got, const at::Tensor& value,
                                const at::Tensor& sums, std::int64_t terms, bool whole) {
  if (whole) return exact_rounded(got, value);
  return near(got, value, sum_bound(sums, static_cast<double>(terms) + 2, got.scalar_type()));
}

TEST(Linear, is_the_product_with_the_transposed_weight_plus_bias) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Sizes& s : all_sizes()) {
      for (const bool whole : {true, false}) {
        SCOPED_TRACE(described(s, dtype));
        const Inputs in = make_inputs(s, dtype.scalar, whole);
        for (const at::Tensor& bias : {in.bias, at::Tensor()}) {
          const at::Tensor out = mezzo::linear(in.x, in.weight, bias);
          EXPECT_EQ(out.scalar_type(), dtype.scalar);
          const auto value = product(in_double(in.x), in_double(in.weight),
                                     bias.defined() ? in_double(bias) : bias);
          const auto sums = product(magnitude(in.x), magnitude(in.weight),
                                    bias.defined() ? magnitude(bias) : bias);
          EXPECT_TRUE(agrees(out, value, sums, s.in, whole));
        }
      }
    }
  }
}

TEST(Linear, has_the_gradients_of_the_product) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Sizes& s : all_sizes()) {
      for (const bool whole : {true, false}) {
        SCOPED_TRACE(described(s, dtype));
        const Inputs in = make_inputs(s, dtype.scalar, whole);
        const std::vector<std::int64_t> sizes = {s.rows, s.out};
        const auto grad =
            whole ? integers(sizes, dtype.scalar, 4) : uniform(sizes, dtype.scalar, 4);
        mezzo::linear(in.x, in.weight, in.bias).backward(grad);
        const auto g = in_double(grad), a = magnitude(grad);
        EXPECT_TRUE(agrees(in.x.grad(), g.matmul(in_double(in.weight)),
                           a.matmul(magnitude(in.weight)), s.out, whole));
        EXPECT_TRUE(agrees(in.weight.grad(), g.t().matmul(in_double(in.x)),
                           a.t().matmul(magnitude(in.x)), s.rows, whole));
        EXPECT_TRUE(agrees(in.bias.grad(), g.sum(0), a.sum(0), s.rows, whole));
        EXPECT_EQ(in.weight.grad().scalar_type(), dtype.scalar);
      }
    }
  }
}

TEST(Linear, reads_strided_rows) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t scale : {1, 8}) {  // large products may be Mezzo's own
      SCOPED_TRACE(fmt::format("{} times {}", dtype.name, scale));
      const auto x = integers({24 * scale, 40 * scale}, dtype.scalar, 1).t();
      const auto weight =  // every second column
          integers({10 * scale, 48 * scale}, dtype.scalar, 2).slice(1, 0, 48 * scale, 2);
      const auto strided =  // a row stride above the row length
          integers({40 * scale, 30 * scale}, dtype.scalar, 3).slice(1, 3, 24 * scale + 3);
      const auto row = integers({1, 24 * scale}, dtype.scalar, 4).expand({40 * scale, -1});
      const auto bias = integers({10 * scale, 3}, dtype.scalar, 5).select(1, 1);
      for (const at::Tensor& rows : {x, strided, row}) {
        EXPECT_TRUE(exact_rounded(mezzo::linear(rows, weight, bias),
                                  product(in_double(rows), in_double(weight), in_double(bias))));
      }
    }
  }
}

TEST(Linear, long_sums_are_not_kept_in_sixteen_bits) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto ones = at::ones({3, 6000}, on_device(dtype.scalar));
    const auto out = mezzo::linear(ones, ones);
    EXPECT_TRUE(exact_rounded(out, at::full({3, 3}, 6000, at::kDouble)));
    const auto large =
        at::full({2, 2}, 300, on_device()).to(dtype.scalar);  // 300 * 300 exceeds float16
    const auto signs = numbers({300, -300, -300, 300}, dtype.scalar).reshape({2, 2});
    EXPECT_TRUE(exact(mezzo::linear(large, signs), at::zeros({2, 2})));
  }
}

TEST(BlockedProduct, has_the_same_bits_for_any_number_of_threads) {
  const int before = at::get_num_threads();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto x = uniform({2600, 1100}, dtype, 1).cpu();
    const auto factor = uniform({1100, 20}, dtype, 2).cpu();
    const auto gradient = uniform({2600, 20}, dtype, 3).cpu();
    // With so few rows, 2 and 3 threads split the columns, 12 threads the rows. The last panel of
    // 370 columns is short.
    const auto few = x.slice(0, 0, 300), some = few.slice(1, 0, 40);
    const auto weight = uniform({370, 1100}, dtype, 4).cpu();
    const auto bias = uniform({370}, dtype, 5).cpu();
    const auto products = [&] {
      using mezzo::detail::blocked_product;
      using mezzo::detail::blocked_transposed_product;
      return std::vector{blocked_product(x, factor, std::nullopt),
                         blocked_product(few, weight.t(), bias),
                         blocked_product(few, weight.t().contiguous(), bias),
                         blocked_transposed_product(gradient, x),
                         blocked_transposed_product(x, gradient),
                         blocked_transposed_product(few, some),
                         blocked_transposed_product(some, few)};
    };
    at::set_num_threads(1);
    const auto alone = products();
    EXPECT_TRUE(at::equal(alone[1], alone[2]));
    for (const int threads : {2, 3, 12}) {  // with 3, and with 12, threads share a side
      at::set_num_threads(threads);
      const auto shared = products();
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(at::equal(alone[i], shared[i]))
            << c10::toString(dtype) << ", " << threads << " threads, product " << i;
      }
    }
  }
  at::set_num_threads(before);
}

TEST(BlockedProduct, of_any_layout_is_exact_on_whole_numbers) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto numbers_of = [&](at::IntArrayRef sizes, std::uint64_t seed) {
      return integers(sizes, dtype, seed).cpu();
    };
    const auto expect_product = [&](const at::Tensor& x, const at::Tensor& factor) {
      EXPECT_TRUE(exact_rounded(mezzo::detail::blocked_product(x, factor, std::nullopt),
                                at::mm(in_double(x), in_double(factor))));
    };
    const auto expect_transposed = [&](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_TRUE(exact_rounded(mezzo::detail::blocked_transposed_product(a, b),
                                at::mm(in_double(a).t(), in_double(b))));
    };
    expect_product(numbers_of({1, 70}, 1), numbers_of({70, 1}, 2));
    expect_product(numbers_of({70, 9}, 1).t(), numbers_of({33, 70}, 2).t());
    expect_product(numbers_of({1, 20}, 1).expand({300, 20}), numbers_of({20, 1}, 2));
    expect_product(numbers_of({5, 0}, 1), numbers_of({0, 3}, 2));
    expect_product(numbers_of({40, 30}, 1), numbers_of({1, 30}, 2).t());
    expect_product(numbers_of({40, 30}, 1), numbers_of({1, 30}, 2).expand({70, 30}).t());
    expect_product(numbers_of({0, 3}, 1), numbers_of({3, 2}, 2));
    expect_transposed(numbers_of({700, 1100}, 3), numbers_of({700, 3}, 4));  // heights in tiles
    expect_transposed(numbers_of({1, 7}, 3).expand({500, 7}), numbers_of({9, 500}, 4).t());
    expect_transposed(numbers_of({0, 4}, 3), numbers_of({0, 5}, 4));
    expect_transposed(numbers_of({4, 0}, 3), numbers_of({4, 5}, 4));
    expect_transposed(numbers_of({4, 5}, 3), numbers_of({4, 0}, 4));
    expect_transposed(numbers_of({8201, 5}, 3), numbers_of({8201, 9}, 4));  // 8 uneven groups
    expect_transposed(numbers_of({60, 30}, 3), numbers_of({60, 1100}, 4));
  }
}

TEST(BlockedProduct, refuses_operands_of_other_dtypes) {
  const auto half = at::ones({2, 2}, at::kHalf), single = at::ones({2, 2});
  const auto wide = at::ones({2, 2}, at::kDouble);
  EXPECT_ERROR("HalfandFloat", mezzo::detail::blocked_product(half, single, std::nullopt));
  EXPECT_ERROR("gotDouble", mezzo::detail::blocked_transposed_product(wide, wide));
}

TEST(Linear, gradients_agree_with_finite_differences) {
  EXPECT_TRUE(gradcheck(
      [](const std::vector<at::Tensor>& in) { return mezzo::linear(in[0], in[1], in[2]); },
      {uniform({5, 4}, at::kDouble, 1), uniform({3, 4}, at::kDouble, 2),
       uniform({3}, at::kDouble, 3)}));
}

TEST(Linear, refuses_what_does_not_fit_and_shows_both_shapes) {
  const auto x = at::ones({5, 30}, on_device(at::kFloat)),
             weight = at::ones({7, 40}, on_device(at::kFloat));
  EXPECT_ERROR(fragments("30", "40"), mezzo::linear(x, weight));
  EXPECT_ERROR("bias",
               mezzo::linear(x, at::ones({7, 30}, on_device()), at::ones({8}, on_device())));
  EXPECT_ERROR("weight", mezzo::linear(x, at::ones({30}, on_device())));
  EXPECT_ERROR("linear", mezzo::linear(x, at::ones({7, 30}, on_device(at::kDouble))));
  EXPECT_ERROR("weight[out,in],gotxfloat32[5,30]andweightfloat32[30]",
               mezzo::linear(x, at::ones({30}, on_device(at::kFloat))));
  EXPECT_ERROR("weight", mezzo::linear(x, at::ones({}, on_device())));
  EXPECT_ERROR("linear:expectedx[N,in]",
               mezzo::linear(at::ones({}, on_device(at::kFloat)), weight));
  EXPECT_ERROR("gotFloat,FloatandHalf", mezzo::linear(x, at::ones({7, 30}, on_device(at::kFloat)),
                                                      at::ones({7}, on_device(at::kHalf))));
}

TEST(Linear, names_an_operand_of_a_layout_without_a_product) {
  const auto x = at::ones({5, 30}, on_device(at::kFloat)),
             weight = at::ones({7, 30}, on_device(at::kFloat));
  EXPECT_ERROR("linear:expectedxstridedorsparseCSR,gotSparse",
               mezzo::linear(x.to_sparse(), weight));
  for (const at::Tensor& rows : {x, x.to_sparse_csr()}) {
    EXPECT_ERROR("linear:expectedastridedweight,gotSparseCsr",
                 mezzo::linear(rows, weight.to_sparse_csr()));
    EXPECT_ERROR("linear:expectedastridedbias,gotSparse",
                 mezzo::linear(rows, weight, weight.select(1, 0).to_sparse()));
  }
}

TEST(Linear, has_rows_with_the_same_bits_in_any_number_in_a_batch_invariant_scope) {
  const BatchInvariant scope;
  const int threads = at::get_num_threads();
  for (const DTypeInfo& dtype : dtypes()) {
    if (dtype.scalar == at::kDouble) continue;
    for (const Sizes& s : all_sizes()) {
      SCOPED_TRACE(described(s, dtype));
      const Inputs in = make_inputs(s, dtype.scalar, /*whole=*/false);
      const at::Tensor all = mezzo::linear(in.x, in.weight, in.bias);
      at::set_num_threads(1);
      for (std::int64_t first = 0, count = 1; first < s.rows; first += count, count = count * 3) {
        count = std::min(count, s.rows - first);
        const at::Tensor part = mezzo::linear(in.x.narrow(0, first, count), in.weight, in.bias);
        EXPECT_TRUE(same_bits(part, all.narrow(0, first, count)));
      }
      at::set_num_threads(threads);
    }
  }
}

TEST(Linear, is_batch_invariant_only_in_the_thread_of_the_scope) {
  EXPECT_FALSE(BatchInvariant::is_enabled());
  {
    const BatchInvariant outer;
    { const BatchInvariant inner; }
    EXPECT_TRUE(BatchInvariant::is_enabled());
    std::thread([] { EXPECT_FALSE(BatchInvariant::is_enabled()); }).join();
  }
  EXPECT_FALSE(BatchInvariant::is_enabled());
}

/// A matrix with about a third of its entries; some rows and columns are empty.
at::Tensor sparse_rows(std::int64_t rows, std::int64_t columns, at::ScalarType dtype) {
  const auto dense = integers({rows, columns}, dtype, 1);
  const auto mask = integers({rows, columns}, at::kDouble, 5, 0, 2).eq(0);
  at::Tensor masked = dense * mask;
  masked[0].zero_();
  masked.select(1, columns - 1).zero_();
  return masked;
}

TEST(SparseLinear, sees_changes_in_place_where_none_are_counted) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::eye(2).to_sparse_csr(), identity = at::eye(2);
  EXPECT_TRUE(exact(mezzo::linear(x, identity), identity));
  x.col_indices().copy_(ids({1, 0}));
  EXPECT_TRUE(exact(mezzo::linear(x, identity), identity.flip(0)));
}

TEST(SparseLinear, is_the_product_of_the_dense_matrix_in_value_and_gradients) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Sizes& s : {Sizes{6, 9, 4}, Sizes{40, 100, 33}}) {
      SCOPED_TRACE(described(s, dtype));
      const at::Tensor dense = sparse_rows(s.rows, s.in, dtype.scalar);
      const Inputs in = make_inputs(s, dtype.scalar, true);
      const at::Tensor x = dense.to_sparse_csr();
      const at::Tensor out = mezzo::linear(x, in.weight, in.bias);
      EXPECT_EQ(out.layout(), at::kStrided);
      EXPECT_EQ(out.scalar_type(), dtype.scalar);
      EXPECT_TRUE(
          exact_rounded(out, product(in_double(dense), in_double(in.weight), in_double(in.bias))));
      const auto grad = integers({s.rows, s.out}, dtype.scalar, 4);
      out.backward(grad);
      EXPECT_TRUE(exact_rounded(in.weight.grad(), in_double(grad).t().matmul(in_double(dense))));
      EXPECT_TRUE(exact_rounded(in.bias.grad(), in_double(grad).sum(0)));
    }
  }
}

TEST(SparseLinear, arbitrary_values_are_within_the_bound_of_one_rounding) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto mask = integers({30, 50}, at::kDouble, 5, 0, 2).eq(0);
    const at::Tensor dense = uniform({30, 50}, dtype.scalar, 1) * mask;
    const at::Tensor weight = leaf(uniform({20, 50}, dtype.scalar, 2));
    const at::Tensor out = mezzo::linear(dense.to_sparse_csr(), weight);
    EXPECT_TRUE(agrees(out, product(in_double(dense), in_double(weight), {}),
                       product(magnitude(dense), magnitude(weight), {}), 50, false));
    const auto grad = uniform({30, 20}, dtype.scalar, 4);
    out.backward(grad);
    EXPECT_TRUE(agrees(weight.grad(), in_double(grad).t().matmul(in_double(dense)),
                       magnitude(grad).t().matmul(magnitude(dense)), 30, false));
  }
}

TEST(SparseLinear, matrices_of_one_shape_and_other_positions_are_told_apart) {
  const auto weight = integers({4, 9}, at::kFloat, 2);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto mask = integers({6, 9}, at::kDouble, seed, 0, 2).eq(0);
    const at::Tensor dense = integers({6, 9}, at::kFloat, 10 + seed) * mask;
    EXPECT_TRUE(exact(mezzo::linear(dense.to_sparse_csr(), weight),
                      product(in_double(dense), in_double(weight), {})));
  }
}

TEST(SparseLinear, an_empty_matrix_gives_the_bias) {
  const auto x = at::zeros({3, 5}, on_device(at::kFloat)).to_sparse_csr();
  const auto bias = numbers({1, 2}, at::kFloat);
  EXPECT_TRUE(
      exact(mezzo::linear(x, at::ones({2, 5}, on_device(at::kFloat)), bias), bias.expand({3, 2})));
}

TEST(SparseLinear, sees_columns_that_were_written_in_place) {
  const at::Tensor dense = sparse_rows(4, 5, at::kFloat);
  const at::Tensor x = dense.to_sparse_csr(), weight = integers({3, 5}, at::kFloat, 7);
  EXPECT_TRUE(exact(mezzo::linear(x, weight), at::mm(dense, weight.t())));
  x.col_indices().zero_();
  const at::Tensor first = at::zeros_like(dense);
  first.select(1, 0).copy_(dense.sum(1));
  EXPECT_TRUE(exact(mezzo::linear(x, weight), at::mm(first, weight.t())));
}

TEST(SparseLinear, sees_that_index_tensors_serve_another_matrix) {
  // Matrices of the same tensors, which are overwritten later, like mini-batch buffers.
  const at::Tensor crow = ids({0, 1, 2}), col = ids({0, 1}), identity = at::eye(2, on_device());
  const auto matrix = [&] {
    return at::sparse_csr_tensor(crow, col, at::ones({2}, on_device()), {2, 2}, on_device());
  };
  const at::Tensor first = matrix();
  EXPECT_TRUE(exact(mezzo::linear(first, identity), identity));
  col.copy_(ids({1, 0}));
  EXPECT_TRUE(exact(mezzo::linear(matrix(), identity), identity.flip(0)));
  EXPECT_TRUE(exact(mezzo::linear(first, identity), identity.flip(0)));
  crow.copy_(ids({0, 2, 2}));
  EXPECT_TRUE(exact(mezzo::linear(first, identity), numbers({1, 1, 0, 0}).view({2, 2})));
}

TEST(SparseLinear, refuses_a_gradient_to_the_values) {
  const at::Tensor x = sparse_rows(4, 5, at::kFloat).to_sparse_csr();
  x.set_requires_grad(true);
  EXPECT_ERROR("values", mezzo::linear(x, at::ones({2, 5}, on_device(at::kFloat))));
}

TEST(FeatureDropout, is_the_identity_where_nothing_is_dropped) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto dense = integers({6, 5}, dtype.scalar, 1);
    const auto sparse = sparse_rows(6, 5, dtype.scalar).to_sparse_csr();
    EXPECT_TRUE(same_bits(mezzo::feature_dropout(dense, 0.5, /*training=*/false), dense));
    EXPECT_TRUE(same_bits(mezzo::feature_dropout(dense, 0, /*training=*/true), dense));
    for (const bool training : {true, false}) {
      const auto out = mezzo::feature_dropout(sparse, training ? 0 : 0.5, training);
      EXPECT_TRUE(same_bits(out.values(), sparse.values()));
    }
  }
}

TEST(FeatureDropout, drops_or_doubles_every_stored_value_and_keeps_the_layout) {
  at::manual_seed(1);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto dense = at::ones({200, 100}, on_device(dtype.scalar));
    const auto sparse = dense.to_sparse_csr();
    const auto out = mezzo::feature_dropout(sparse, 0.5, /*training=*/true);
    ASSERT_EQ(out.layout(), at::kSparseCsr);
    EXPECT_TRUE(at::equal(out.crow_indices(), sparse.crow_indices()));
    EXPECT_TRUE(at::equal(out.col_indices(), sparse.col_indices()));
    EXPECT_EQ(out.values().scalar_type(), dtype.scalar);
    for (const at::Tensor& values : {out.values(), mezzo::feature_dropout(dense, 0.5, true)}) {
      const auto count = values.ne(0).sum().item<std::int64_t>();
      EXPECT_TRUE(exact(values.eq(0).logical_or(values.eq(2)), at::ones(values.sizes())));
      // 20000 fair draws: six standard deviations are 6 * sqrt(20000) / 2.
      EXPECT_LT(std::abs(static_cast<double>(count) - 10000), 3 * std::sqrt(20000.0));
    }
  }
}

TEST(FeatureDropout, of_everything_is_zero) {
  const auto sparse = sparse_rows(6, 5, at::kFloat).to_sparse_csr();
  EXPECT_TRUE(
      exact(mezzo::feature_dropout(sparse, 1, true).values(), at::zeros(sparse.values().sizes())));
  const at::Tensor integers = at::ones({2, 2}, on_device(at::kLong));
  EXPECT_ERROR("dropout", mezzo::feature_dropout(integers, 1, true));
}

TEST(FeatureDropout, refuses_a_probability_outside_the_unit_interval) {
  const auto x = at::ones({2, 2}, on_device(at::kFloat));
  EXPECT_ERROR("1.5", mezzo::feature_dropout(x, 1.5, true));
  EXPECT_ERROR("-0.1", mezzo::feature_dropout(x, -0.1, true));
  EXPECT_ERROR("nan", mezzo::feature_dropout(x, std::nan(""), true));
}

TEST(FeatureDropout, refuses_what_has_no_rows_to_drop_from_in_evaluation_too) {
  const auto x = at::ones({2, 2}, on_device(at::kFloat));
  for (const bool training : {false, true}) {
    EXPECT_ERROR("dropout:expectedxstridedorsparseCSR,gotanundefinedtensor",
                 mezzo::feature_dropout({}, 0.5, training));
    EXPECT_ERROR("dropout:expectedxstridedorsparseCSR,gotSparse",
                 mezzo::feature_dropout(x.to_sparse(), 0.5, training));
  }
}

}  // namespace
}  // namespace mezzo::test
