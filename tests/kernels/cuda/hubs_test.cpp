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

constexpr std::int64_t kLongest = cuda::kMostPieces * cuda::kShortestPiece;  ///< shortest chunks

TEST(Hubs, pieces_grow_with_the_slots_so_that_their_number_does_not) {
  static_assert(cuda::piece_length(0) == 1024);
  static_assert(cuda::piece_length(kLongest) == 1024);
  static_assert(cuda::piece_length(kLongest + 1) == 2048);
  static_assert(cuda::piece_length(2 * kLongest) == 2048);
  static_assert(cuda::piece_length(2 * kLongest + 1) == 4096);
  static_assert(cuda::num_pieces(kLongest) == cuda::kMostPieces);
  static_assert(cuda::num_pieces(kLongest + 1) == cuda::kMostPieces / 2 + 1);
  static_assert(cuda::num_pieces(std::int64_t{1} << 40) == cuda::kMostPieces);
}

/// Offsets of rows with lengths close to those of chunks, `num_slots` edges in total.
std::vector<std::int64_t> rows_about_pieces(Draw& draw, std::int64_t num_slots) {
  const std::int64_t length = cuda::piece_length(num_slots);
  std::vector<std::int64_t> indptr = {0};
  while (indptr.back() < num_slots) {
    const std::int64_t to_boundary = length - indptr.back() % length;
    const std::int64_t count =
        draw.one_of<std::int64_t>({0, 1, length - 1, length, length + 1, 2 * length, 3 * length + 1,
                                   to_boundary, to_boundary + length, draw.below(6 * length)});
    indptr.push_back(std::min(indptr.back() + count, num_slots));
  }
  return indptr;
}

/// Checks that the parts of the long row, in chunk order, cover all its edges.
void check_parts(const Slots& slots, std::int64_t num_rows, std::int64_t num_slots, const Hub& hub,
                 std::set<std::int64_t>& places) {
  std::int64_t next = hub.range.begin;
  for (std::int64_t piece = hub.first_piece; piece <= hub.last_piece; ++piece) {
    const std::int64_t place = cuda::hub_partial(hub, piece);
    ASSERT_LT(place, cuda::num_partials(slots, num_slots));
    ASSERT_TRUE(places.insert(place).second) << "two parts at place " << place;
    const HubPart part = cuda::hub_part(slots, num_rows, num_slots, piece, place % 2 != 0 ? 1 : 0);
    ASSERT_EQ(part.row, hub.row);
    ASSERT_EQ(part.partial, place);
    ASSERT_EQ(part.range.begin, next);
    next = part.range.end;
  }
  ASSERT_EQ(next, hub.range.end);
}

void check_pieces(Draw& draw, std::int64_t num_slots) {
  SCOPED_TRACE(num_slots);
  const std::vector<std::int64_t> indptr = rows_about_pieces(draw, num_slots);
  const auto num_rows = static_cast<std::int64_t>(indptr.size()) - 1;
  const Slots slots = {.indptr = indptr.data(), .first = {}, .second = {}};
  std::set<std::int64_t> hubs, found, places;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (cuda::is_hub(cuda::slots_of(slots, row), cuda::piece_length(num_slots))) hubs.insert(row);
  }
  std::size_t num_parts = 0;
  for (std::int64_t piece = 0; piece < cuda::num_pieces(num_slots); ++piece) {
    for (const int side : {0, 1}) {
      if (cuda::hub_part(slots, num_rows, num_slots, piece, side).row >= 0) ++num_parts;
    }
    const Hub hub = cuda::hub_beginning_in(slots, num_rows, num_slots, piece);
    if (hub.row < 0) continue;
    ASSERT_TRUE(found.insert(hub.row).second) << "hub " << hub.row << " begins twice";
    check_parts(slots, num_rows, num_slots, hub, places);
  }
  EXPECT_EQ(found, hubs);
  EXPECT_EQ(num_parts, places.size());
}

TEST(Hubs, parts_are_the_hubs_whatever_the_length_of_pieces) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    for (const std::int64_t slots : {std::int64_t{1025}, std::int64_t{70'000}, kLongest,
                                     kLongest + 1, 3 * kLongest + draw.below(kLongest)}) {
      check_pieces(draw, slots);
    }
  }
}

template <class Args>
std::int64_t workspace_of(const Args& args, std::int64_t num_slots) {
  return std::get<CudaKernel<Args>>(*mezzo_cuda_kernels()).workspace(args, num_slots);
}

// The graph of Reddit, two heads of 256: chunks of 1024 edges would take 462 MB.
TEST(Hubs, what_pieces_store_stays_small_on_a_large_graph) {
  constexpr std::int64_t kSlots = 114'615'892, kMost = 120'000'000;
  const std::int64_t indptr = 0;
  AttentionArgs forward;
  forward.slots.indptr = &indptr;
  forward.dtype = DType::kFloat16;
  forward.heads = 2;
  forward.features = 256;
  EXPECT_LE(workspace_of(forward, kSlots), kMost);
  AttentionGradArgs backward;
  backward.slots = forward.slots;
  backward.dtype = forward.dtype;
  backward.heads = 2;
  backward.features = 256;
  backward.head_end = 2;
  EXPECT_LE(workspace_of(backward, kSlots), kMost);
  backward.head_begin = 1;
  EXPECT_LE(workspace_of(backward, kSlots), kMost / 2);
}

}  // namespace
}  // namespace mezzo::test
