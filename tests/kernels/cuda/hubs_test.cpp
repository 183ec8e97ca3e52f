// Splitting of long rows into chunks: for any number of edges, covers each edge of a long row once,
// with a separate partial result for each part.
#include "mezzo/kernels/cuda/sparse/hubs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/kernels/cuda_kernels.h"

#include "support/draw.h"

namespace mezzo::test {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace)

using cuda::Hub;
using cuda::HubPart;

constexpr std::int64_t kLongest = cuda::kMostChunks * cuda::kShortestChunk;  ///< shortest chunks

TEST(Hubs, chunks_grow_with_the_entries_so_that_their_number_does_not) {
  static_assert(cuda::chunk_length(0) == 1024);
  static_assert(cuda::chunk_length(kLongest) == 1024);
  static_assert(cuda::chunk_length(kLongest + 1) == 2048);
  static_assert(cuda::chunk_length(2 * kLongest) == 2048);
  static_assert(cuda::chunk_length(2 * kLongest + 1) == 4096);
  static_assert(cuda::num_chunks(kLongest) == cuda::kMostChunks);
  static_assert(cuda::num_chunks(kLongest + 1) == cuda::kMostChunks / 2 + 1);
  static_assert(cuda::num_chunks(std::int64_t{1} << 40) == cuda::kMostChunks);
}

/// Offsets of rows with lengths close to those of chunks, `num_entries` edges in total.
std::vector<std::int64_t> rows_about_chunks(Draw& draw, std::int64_t num_entries) {
  const std::int64_t length = cuda::chunk_length(num_entries);
  std::vector<std::int64_t> indptr = {0};
  while (indptr.back() < num_entries) {
    const std::int64_t to_boundary = length - indptr.back() % length;
    const std::int64_t count =
        draw.one_of<std::int64_t>({0, 1, length - 1, length, length + 1, 2 * length, 3 * length + 1,
                                   to_boundary, to_boundary + length, draw.below(6 * length)});
    indptr.push_back(std::min(indptr.back() + count, num_entries));
  }
  return indptr;
}

/// Checks that the parts of the long row, in chunk order, cover all its edges.
void check_parts(const Entries& entries, std::int64_t num_rows, std::int64_t num_entries,
                 const Hub& hub, std::set<std::int64_t>& places) {
  std::int64_t next = hub.range.begin;
  for (std::int64_t chunk = hub.first_chunk; chunk <= hub.last_chunk; ++chunk) {
    const std::int64_t place = cuda::hub_partial(hub, chunk);
    ASSERT_LT(place, cuda::num_partials(entries, num_entries));
    ASSERT_TRUE(places.insert(place).second) << "two parts at place " << place;
    const HubPart part =
        cuda::hub_part(entries, num_rows, num_entries, chunk, place % 2 != 0 ? 1 : 0);
    ASSERT_EQ(part.row, hub.row);
    ASSERT_EQ(part.partial, place);
    ASSERT_EQ(part.range.begin, next);
    next = part.range.end;
  }
  ASSERT_EQ(next, hub.range.end);
}

void check_chunks(Draw& draw, std::int64_t num_entries) {
  SCOPED_TRACE(num_entries);
  const std::vector<std::int64_t> indptr = rows_about_chunks(draw, num_entries);
  const auto num_rows = static_cast<std::int64_t>(indptr.size()) - 1;
  const Entries entries = {.indptr = indptr.data(), .first = {}, .second = {}};
  std::set<std::int64_t> hubs, begun, places;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (cuda::is_hub(cuda::entries_of(entries, row), cuda::chunk_length(num_entries)))
      hubs.insert(row);
  }
  std::size_t num_parts = 0;
  for (std::int64_t chunk = 0; chunk < cuda::num_chunks(num_entries); ++chunk) {
    for (const int side : {0, 1}) {
      if (cuda::hub_part(entries, num_rows, num_entries, chunk, side).row >= 0) ++num_parts;
    }
    const Hub hub = cuda::hub_beginning_in(entries, num_rows, num_entries, chunk);
    if (hub.row < 0) continue;
    ASSERT_TRUE(begun.insert(hub.row).second) << "hub " << hub.row << " begins twice";
    check_parts(entries, num_rows, num_entries, hub, places);
  }
  EXPECT_EQ(begun, hubs);
  EXPECT_EQ(num_parts, places.size());
}

TEST(Hubs, parts_are_the_hubs_whatever_the_length_of_chunks) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    for (const std::int64_t entries : {std::int64_t{1025}, std::int64_t{70'000}, kLongest,
                                       kLongest + 1, 3 * kLongest + draw.below(kLongest)}) {
      check_chunks(draw, entries);
    }
  }
}

template <class Args>
std::int64_t workspace_of(const Args& args, std::int64_t num_entries) {
  return std::get<CudaKernel<Args>>(*mezzo_cuda_kernels()).workspace(args, num_entries);
}

struct Reduced {
  std::vector<float> out;
  std::int64_t launches = 0, workspace_bytes = 0;
};

/// Reduces rows of these lengths, three features of each edge.
Reduced reduced(ReduceOp reduce, const std::vector<std::int64_t>& lengths,
                std::int64_t longest_row) {
  constexpr std::int64_t kFeatures = 3;
  std::vector<std::int64_t> indptr = {0};
  for (const std::int64_t length : lengths) indptr.push_back(indptr.back() + length);
  const std::int64_t num_entries = indptr.back();
  std::vector<float> x(static_cast<std::size_t>(num_entries * kFeatures));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) - 4;
  Reduced result;
  result.out.assign(lengths.size() * kFeatures, -1000);
  std::vector<std::int64_t> edges(result.out.size());
  SpmmArgs args;
  args.entries = {.indptr = indptr.data(), .first = {}, .second = {}, .longest_row = longest_row};
  args.row_end = static_cast<std::int64_t>(lengths.size());
  args.lhs = {.data = x.data(), .is_accum = false, .access = Access::kSecond, .length = kFeatures};
  args.layout.inner = kFeatures;
  args.reduce = reduce;
  args.out = result.out.data();
  args.out_length = kFeatures;
  args.arg = traits_of(reduce).selects ? edges.data() : nullptr;
  args.arg_is_int64 = true;
  result.workspace_bytes = workspace_of(args, num_entries);
  std::vector<double> workspace(static_cast<std::size_t>(result.workspace_bytes) / 8 + 1);
  const std::int64_t before = cuda::num_emulated_launches();
  std::get<CudaKernel<SpmmArgs>>(*mezzo_cuda_kernels())
      .run(args, {.stream = nullptr,
                  .workspace = result.workspace_bytes > 0 ? workspace.data() : nullptr,
                  .num_entries = num_entries});
  result.launches = cuda::num_emulated_launches() - before;
  return result;
}

TEST(Hubs, take_launches_and_memory_only_if_some_row_may_be_longer_than_a_chunk) {
  constexpr std::int64_t kUnknown = -1;
  for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
    for (const std::int64_t longest : {700, 1024, 1025, 2300}) {
      SCOPED_TRACE(longest);
      const std::vector<std::int64_t> lengths = {600, longest, 0, 5};
      const Reduced known = reduced(reduce, lengths, longest);
      const Reduced unknown = reduced(reduce, lengths, kUnknown);
      EXPECT_EQ(known.launches, longest > 1024 ? 3 : 1);
      EXPECT_EQ(known.workspace_bytes > 0, longest > 1024);
      EXPECT_EQ(unknown.launches, 3);
      EXPECT_GT(unknown.workspace_bytes, 0);
      EXPECT_EQ(known.out, unknown.out);
    }
    EXPECT_EQ(reduced(reduce, {600, 424}, kUnknown).launches, 1);
  }
}

// The graph of Reddit, two heads of 256: chunks of 1024 edges would take 462 MB.
TEST(Hubs, what_chunks_store_stays_small_on_a_large_graph) {
  constexpr std::int64_t kEntries = 114'615'892, kMost = 120'000'000;
  const std::int64_t indptr = 0;
  AttentionArgs forward;
  forward.entries.indptr = &indptr;
  forward.dtype = DType::kFloat16;
  forward.heads = 2;
  forward.features = 256;
  EXPECT_LE(workspace_of(forward, kEntries), kMost);
  AttentionGradArgs backward;
  backward.entries = forward.entries;
  backward.dtype = forward.dtype;
  backward.heads = 2;
  backward.features = 256;
  backward.head_end = 2;
  EXPECT_LE(workspace_of(backward, kEntries), kMost);
  backward.head_begin = 1;
  EXPECT_LE(workspace_of(backward, kEntries), kMost / 2);
}

}  // namespace
}  // namespace mezzo::test
