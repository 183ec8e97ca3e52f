#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/kernels/cuda_kernels.h"

#include "kernels/guarded.h"

namespace mezzo::test {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kTableRows = 50;

/// Bytes that differ between and within rows; `shift` bytes after an aligned address.
GuardedBytes bytes_of_table(std::int64_t row_bytes, std::int64_t shift) {
  GuardedBytes table(static_cast<std::size_t>(kTableRows * row_bytes + shift));
  for (std::size_t i = 0; i < table.size(); ++i) {
    table.data()[i] = static_cast<std::byte>(i * 37 % 251);
  }
  return table;
}

template <class Id>
void expect_rows(const std::vector<Id>& ids, std::int64_t row_bytes, std::int64_t shift) {
  SCOPED_TRACE(testing::Message() << ids.size() << " rows of " << row_bytes << " bytes, shift "
                                  << shift << ", ids of " << sizeof(Id));
  const GuardedBytes table = bytes_of_table(row_bytes, shift);
  const auto* first = table.data() + shift;
  const auto count = static_cast<std::int64_t>(ids.size());
  GuardedBytes out(static_cast<std::size_t>(count * row_bytes));
  const CudaGatherArgs args{.table = first,
                            .ids = {ids.data(), sizeof(Id) == sizeof(std::int64_t)},
                            .num_rows = count,
                            .row_bytes = row_bytes,
                            .out = out.data()};
  std::get<CudaKernel<CudaGatherArgs>>(*mezzo_cuda_kernels()).run(args, {});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int64_t>(ids[static_cast<std::size_t>(i)]);
    ASSERT_EQ(std::memcmp(out.data() + i * row_bytes, first + id * row_bytes,
                          static_cast<std::size_t>(row_bytes)),
              0)
        << "row " << i;
  }
}

template <class Id>
std::vector<Id> some_ids(std::int64_t count) {
  std::vector<Id> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<Id>(i * 17 % kTableRows));
  return ids;
}

TEST(CudaGather, copies_rows_of_any_length_at_any_address) {
  for (const std::int64_t row_bytes : {1, 2, 4, 6, 8, 10, 16, 32, 48, 130, 512, 1204, 9632}) {
    for (const std::int64_t shift : {0, 1, 2, 4, 8}) {
      expect_rows(some_ids<std::int32_t>(70), row_bytes, shift);
      expect_rows(some_ids<std::int64_t>(3), row_bytes, shift);
    }
  }
}

TEST(CudaGather, of_no_rows_or_empty_ones_does_nothing) {
  expect_rows(std::vector<std::int32_t>(), 16, 0);
  expect_rows(some_ids<std::int32_t>(5), 0, 0);
}

}  // namespace
}  // namespace mezzo::test
