#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/random.h"
#include "mezzo/kernels/sampling.h"

#include "kernels/sample.h"

// The samples of a seed, compared with plain definitions: they must not change between versions.
namespace mezzo::kernels {
namespace {

/// Random number `number` of the row at `position`, in [0, bound), from 32-bit words or pairs.
std::int64_t number_below(DrawKey key, std::int64_t position, std::int64_t number, bool is_32_bit,
                          std::int64_t bound) {
  const auto word = [&](std::int64_t i) {
    return philox(key.seed, key.stream,
                  call_index(position, i / 4))[static_cast<std::size_t>(i % 4)];
  };
  __extension__ using Wide = unsigned __int128;
  if (is_32_bit) {
    return static_cast<std::int64_t>((Wide{word(number)} * static_cast<std::uint64_t>(bound)) >>
                                     32);
  }
  const std::uint64_t draw64 = (std::uint64_t{word(2 * number + 1)} << 32) | word(2 * number);
  return static_cast<std::int64_t>((Wide{draw64} * static_cast<std::uint64_t>(bound)) >> 64);
}

/// Floyd's algorithm on a set.
std::vector<std::int64_t> floyd(DrawKey key, std::int64_t position, std::int64_t degree,
                                std::int64_t fanout) {
  const bool leaves_out = degree <= kBitsOfWord && degree - fanout < fanout;
  const std::int64_t draws = leaves_out ? degree - fanout : fanout;
  std::set<std::int64_t> sample;
  for (std::int64_t i = 0; i < draws; ++i) {
    const std::int64_t last = degree - draws + i;
    const std::int64_t number =
        number_below(key, position, i, degree < kDegreeOf32BitDraws, last + 1);
    sample.insert(sample.count(number) != 0 ? last : number);
  }
  std::vector<std::int64_t> chosen;
  for (std::int64_t offset = 0; offset < degree; ++offset) {
    if ((sample.count(offset) != 0) != leaves_out) chosen.push_back(offset);
  }
  return chosen;
}

template <class Id>
void expect_floyd(DrawKey key, std::int64_t degree, std::int64_t fanout) {
  constexpr std::int64_t kRows = 50;
  const test::Rows<Id> rows({degree});
  test::Sample<Id> sample(rows, std::vector<Id>(kRows, Id{0}), {.fanout = fanout});
  draw_uniform<Id>(sample.args(rows, 0, kRows, key));
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto first = sample.entries.begin() + row * fanout;
    EXPECT_EQ(std::vector<std::int64_t>(first, first + fanout), floyd(key, row, degree, fanout))
        << "row " << row << ": " << fanout << " of " << degree;
  }
}

TEST(UniformDraws, have_the_bits_of_floyds_algorithm) {
  const DrawKey key{.seed = 0x9876543210ABCDEF, .stream = 0xFEDCBA9876543210};
  for (const std::int64_t degree :
       {2, 3, 10, 33, 63, 64, 65, 66, 67, 100, 1000, 65533, 65534, 65535, 65536, 65537, 70000}) {
    for (const std::int64_t fanout :
         {1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 15, 16, 17, 25, 31, 32, 33, 40, 60, 63, 64}) {
      const RowDraw draw = row_draw({.fanout = fanout}, degree);
      if (draw == RowDraw::kAll || draw == RowDraw::kSparse) continue;
      expect_floyd<std::int32_t>(key, degree, fanout);
      expect_floyd<std::int64_t>(key, degree, fanout);
    }
  }
}

TEST(UniformDraws, have_those_bits_for_any_key) {
  const std::uint64_t ones = ~std::uint64_t{0}, upper = ones << 32, lower = ones >> 32;
  std::vector<DrawKey> keys;
  for (const std::uint64_t seed : {std::uint64_t{0}, ones, upper, lower}) {
    for (const std::uint64_t stream : {std::uint64_t{0}, ones, upper, lower}) {
      keys.push_back({.seed = seed, .stream = stream});
    }
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    keys.push_back({.seed = random_bits(1, 0, i), .stream = random_bits(1, 1, i)});
  }
  for (const DrawKey& key : keys) {
    expect_floyd<std::int32_t>(key, 60, 29);
    expect_floyd<std::int32_t>(key, 100000, 32);
  }
}

/// Compares renumber() with a map.
template <class Id>
void expect_numbered_as_they_come(std::int64_t num_graph_nodes) {
  std::vector<std::int32_t> stamps(static_cast<std::size_t>(num_graph_nodes), 99);
  const StampTable table{stamps.data(), 100};
  std::map<std::int64_t, std::int64_t> number_of;
  std::vector<std::int64_t> expected_nodes;
  std::vector<Id> nodes(static_cast<std::size_t>(num_graph_nodes + 1));
  std::int64_t num_nodes = 0;
  for (std::uint64_t part = 0; part < 4; ++part) {
    std::vector<Id> ids;
    std::vector<std::int64_t> expected;
    for (std::uint64_t i = 0; i < 700; ++i) {
      const auto node = static_cast<std::int64_t>(
          random_below(static_cast<std::uint64_t>(num_graph_nodes), 4, part, i));
      ids.push_back(static_cast<Id>(node));
      const auto [at, is_new] =
          number_of.emplace(node, static_cast<std::int64_t>(number_of.size()));
      if (is_new) expected_nodes.push_back(node);
      expected.push_back(at->second);
    }
    num_nodes = renumber<Id>(table, ids.data(), static_cast<std::int64_t>(ids.size()), nodes.data(),
                             num_nodes);
    EXPECT_EQ(std::vector<std::int64_t>(ids.begin(), ids.end()), expected);
    ASSERT_EQ(num_nodes, static_cast<std::int64_t>(expected_nodes.size()));
    EXPECT_EQ(std::vector<std::int64_t>(nodes.begin(), nodes.begin() + num_nodes), expected_nodes);
  }
}

TEST(Renumber, agrees_with_a_map_of_many_nodes) {
  for (const std::int64_t num_nodes : {1, 50, 1000, 100000}) {
    SCOPED_TRACE(num_nodes);
    expect_numbered_as_they_come<std::int32_t>(num_nodes);
    expect_numbered_as_they_come<std::int64_t>(num_nodes);
  }
}

}  // namespace
}  // namespace mezzo::kernels
