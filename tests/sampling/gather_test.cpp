#include "mezzo/sampling/gather.h"

#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kGatherOnCpu("Gather", "sampling on the CPU");

/// Ids in [0, bound), with repeats.
at::Tensor some_rows(std::int64_t count, std::int64_t bound, at::ScalarType dtype = at::kLong) {
  return integers({count}, at::kDouble, 5, 0, bound - 1).to(dtype);
}

/// Whether gather_rows equals indexing, bit for bit.
testing::AssertionResult gathers(const at::Tensor& table, const at::Tensor& rows) {
  const at::Tensor got = gather_rows(table, rows), expected = table.index_select(0, rows);
  if (!got.is_contiguous()) return testing::AssertionFailure() << "not contiguous";
  return same_bits(got, expected);
}

}  // namespace

TEST(Gather, rows_of_every_feature_dtype_keep_their_bits) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t width : {1, 3, 64, 500, 1433}) {
      const at::Tensor table = uniform({40, width}, dtype.scalar, 1);
      EXPECT_TRUE(gathers(table, some_rows(70, 40))) << dtype.name << ' ' << width;
      EXPECT_TRUE(gathers(table, some_rows(70, 40, at::kInt))) << dtype.name << ' ' << width;
    }
  }
}

TEST(Gather, numbers_that_are_not_finite_keep_their_bits) {
  at::Tensor table = uniform({8, 5}, at::kBFloat16, 1);
  table[3].fill_(std::numeric_limits<double>::quiet_NaN());
  table[4].fill_(-std::numeric_limits<double>::infinity());
  EXPECT_TRUE(gathers(table, ids({3, 4, 3, 0})));
}

TEST(Gather, other_dtypes_and_shapes_are_rows_of_bytes) {
  const at::Tensor rows = some_rows(30, 12);
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kShort, at::kByte, at::kBool}) {
    const at::Tensor table = integers({12}, at::kDouble, 2, 0, 1).to(dtype);
    const at::Tensor got = gather_rows(table, rows);
    EXPECT_EQ(got.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(got, table.index_select(0, rows)));
  }
  EXPECT_TRUE(gathers(uniform({12, 2, 3, 4}, at::kFloat, 3), rows));
}

TEST(Gather, no_ids_or_no_columns_give_an_empty_tensor) {
  EXPECT_EQ(gather_rows(uniform({12, 4}, at::kFloat, 3), ids({})).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(gather_rows(at::empty({12, 0}), ids({1, 2})).sizes(), at::IntArrayRef({2, 0}));
  EXPECT_EQ(gather_rows(at::empty({0, 4}), ids({})).sizes(), at::IntArrayRef({0, 4}));
}

TEST(Gather, tables_that_are_not_contiguous_are_gathered_too) {
  const at::Tensor table = uniform({6, 12}, at::kFloat, 4);
  EXPECT_TRUE(gathers(table.t(), ids({11, 0, 5})));
  EXPECT_TRUE(gathers(table.slice(1, 2, 7), ids({5, 0, 5})));
}

TEST(Gather, the_number_of_threads_changes_nothing) {
  const at::Tensor table = uniform({500, 256}, at::kFloat, 6), rows = some_rows(4000, 500);
  for (const int count : {1, 2, 5}) {
    const ThreadCount threads(count);
    EXPECT_TRUE(gathers(table, rows));
  }
}

TEST(Gather, the_result_shares_nothing_and_carries_no_gradient) {
  const at::Tensor table = leaf(uniform({4, 3}, at::kFloat, 7));
  const at::Tensor before = table.detach().clone();
  for (const at::Tensor& from : {table, table.t().contiguous().t()}) {
    at::Tensor rows = gather_rows(from, ids({0, 1, 2, 3}));
    EXPECT_FALSE(rows.requires_grad());
    rows.zero_();
    EXPECT_TRUE(same_bits(table, before));
  }
}

TEST(Gather, sparse_rows_stay_sparse_and_keep_their_dtype) {
  const at::Tensor dense =
      integers({9, 14}, at::kFloat, 8) * integers({9, 14}, at::kFloat, 9, 0, 1) + 0;  // no -0
  const at::Tensor rows = ids({8, 0, 3, 3, 7});
  const at::Tensor expected = dense.index_select(0, rows);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor csr = dense.to_sparse_csr();
    for (const at::ScalarType id_dtype : {at::kInt, at::kLong}) {
      const at::Tensor table =
          at::sparse_csr_tensor(csr.crow_indices().to(id_dtype), csr.col_indices().to(id_dtype),
                                csr.values().to(dtype), {9, 14}, dtype);
      for (const at::Tensor& row_ids : {rows, rows.to(at::kInt)}) {
        const at::Tensor gathered = gather_rows(table, row_ids);
        EXPECT_EQ(gathered.layout(), at::kSparseCsr);
        EXPECT_TRUE(same_bits(gathered.to_dense(), expected.to(dtype)));
      }
      EXPECT_EQ(gather_rows(table, ids({})).sizes(), at::IntArrayRef({0, 14}));
    }
  }
}

}  // namespace mezzo::test
