#include "mezzo/kernels/sampling.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "mezzo/core/random.h"
#include "mezzo/kernels/cuda/kernels.h"

#include "kernels/guarded.h"

namespace mezzo::kernels {
namespace {

using cuda::EmulatedOrder;
constexpr DrawKey kKey{.seed = 0x123456789ABCDEF0, .stream = 0xFEDCBA9876543210};
constexpr bool kBothWays[] = {false, true};
constexpr EmulatedOrder kOrders[] = {EmulatedOrder::kForward, EmulatedOrder::kReverse,
                                     EmulatedOrder::kShuffled};

/// Memory of exactly `count` elements, followed by a guard page.
template <class T>
class Array {
 public:
  explicit Array(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), count_(count) {
    std::fill_n(data(), count, T(-1));
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  std::vector<T> values() { return {data(), data() + count_}; }

 private:
  test::GuardedBytes bytes_;
  std::int64_t count_;
};

template <class Id>
struct Drawn {
  std::vector<std::int64_t> begins, degrees, offsets;
  std::vector<Id> entries, neighbors;
  bool operator==(const Drawn&) const = default;
};

/// Consecutive rows of these degrees.
template <class Id>
struct Rows {
  explicit Rows(const std::vector<std::int64_t>& degrees) : indptr(degrees.size() + 1) {
    std::partial_sum(degrees.begin(), degrees.end(), indptr.begin() + 1);
    for (std::int64_t i = 0; i < indptr.back(); ++i) indices.push_back(static_cast<Id>(i * 7 + 1));
  }
  std::vector<std::int64_t> indptr;
  std::vector<Id> indices;
};

template <class Id>
Drawn<Id> drawn_on_cpu(const Rows<Id>& rows, const std::vector<Id>& nodes, DrawCount count) {
  const auto n = static_cast<std::int64_t>(nodes.size());
  const NeighborRows<Id> view{rows.indptr.data(), rows.indices.data(),
                              static_cast<std::int64_t>(rows.indptr.size()) - 1};
  Drawn<Id> drawn;
  drawn.begins.resize(nodes.size());
  drawn.degrees.resize(nodes.size());
  drawn.offsets.resize(nodes.size() + 1);
  const RowRanges ranges{drawn.begins.data(), drawn.degrees.data(), drawn.offsets.data()};
  const std::int64_t most = find_rows<Id>(view, nodes.data(), n, count, ranges);
  std::vector<std::uint64_t> scratch(static_cast<std::size_t>(uniform_scratch_words(count, most)));
  drawn.entries.resize(static_cast<std::size_t>(drawn.offsets.back()));
  drawn.neighbors.resize(drawn.entries.size());
  draw_uniform<Id>({view, ranges, 0, n, count, kKey, scratch.data(), drawn.entries.data(),
                    drawn.neighbors.data()});
  return drawn;
}

template <class Id>
Drawn<Id> drawn_on_gpu(const Rows<Id>& rows, const std::vector<Id>& nodes, DrawCount count) {
  const auto n = static_cast<std::int64_t>(nodes.size());
  Array<std::int64_t> begins(n), degrees(n), counts(n);
  CudaDrawArgs args{.indptr = rows.indptr.data(),
                    .indices = {rows.indices.data(), sizeof(Id) == 8},
                    .nodes = {nodes.data(), sizeof(Id) == 8},
                    .num_nodes = n,
                    .count = count,
                    .key = kKey,
                    .begins = begins.data(),
                    .degrees = degrees.data(),
                    .counts = counts.data()};
  EXPECT_EQ(cuda::Kernel<CudaDrawArgs>::workspace(args, 0), 0);
  cuda::Kernel<CudaDrawArgs>::run(args, {});
  std::vector<std::int64_t> offsets(nodes.size() + 1);
  const std::vector<std::int64_t> sizes = counts.values();
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  Array<Id> entries(offsets.back()), neighbors(offsets.back());
  args.nodes = {};
  args.counts = nullptr;
  args.offsets = offsets.data();
  args.entries = entries.data();
  args.neighbors = neighbors.data();
  cuda::Kernel<CudaDrawArgs>::run(args, {.num_entries = offsets.back()});
  return {begins.values(), degrees.values(), offsets, entries.values(), neighbors.values()};
}

/// Compares draws from the rows in random order, with repetitions.
template <class Id>
void compare(const std::vector<std::int64_t>& degrees, std::int64_t num_nodes, DrawCount count) {
  SCOPED_TRACE(testing::Message() << count.fanout << (count.replace ? ", replacing" : "")
                                  << ", bytes of an id: " << sizeof(Id));
  const Rows<Id> rows(degrees);
  std::vector<Id> nodes;
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    nodes.push_back(
        static_cast<Id>(random_below(degrees.size(), 3, 0, static_cast<std::uint64_t>(i))));
  }
  EXPECT_TRUE(drawn_on_gpu(rows, nodes, count) == drawn_on_cpu(rows, nodes, count));
}

TEST(CudaDraws, every_row_is_drawn_as_on_the_cpu) {
  const std::vector<std::int64_t> degrees = {0,  1,  2,   5,   8,   9,    16,    31,    32,    33,
                                             63, 64, 65,  66,  70,  100,  250,   500,   2047,  2048,
                                             40, 17, 300, 129, 513, 4000, 65535, 65536, 70000, 12};
  for (const EmulatedOrder order : kOrders) {
    cuda::set_emulated_order(order);
    for (const bool replace : kBothWays) {
      for (const std::int64_t fanout : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 60, 64, 100}) {
        compare<std::int32_t>(degrees, 90, {.fanout = fanout, .replace = replace});
        if (order != EmulatedOrder::kShuffled) continue;
        compare<std::int64_t>(degrees, 90, {.fanout = fanout, .replace = replace});
      }
    }
  }
}

TEST(CudaDraws, large_fanouts_are_drawn_as_on_the_cpu) {
  cuda::set_emulated_order(EmulatedOrder::kShuffled);
  const std::vector<std::int64_t> degrees = {3, 90, 513, 1000, 1001, 1025, 5000, 65536, 0, 300000};
  for (const bool replace : kBothWays) {
    for (const std::int64_t fanout : {200, 511, 512, 1000}) {
      compare<std::int32_t>(degrees, 12, {.fanout = fanout, .replace = replace});
    }
  }
}

TEST(CudaDraws, draws_of_almost_all_meet_chains_of_repeats) {
  cuda::set_emulated_order(EmulatedOrder::kForward);
  for (const std::int64_t fanout : {30, 31, 32, 90, 98, 99, 250}) {
    compare<std::int32_t>({65, 66, 67, 100, 101, 252, 260}, 150, {.fanout = fanout});
  }
}

TEST(CudaDraws, every_neighbour_of_long_and_empty_rows) {
  for (const EmulatedOrder order : kOrders) {
    cuda::set_emulated_order(order);
    const DrawCount all{.fanout = std::numeric_limits<std::int64_t>::max()};
    compare<std::int32_t>({0, 0, 40, 0, 5000, 1, 0}, 40, all);
    compare<std::int64_t>({0}, 5, all);
    compare<std::int64_t>({3, 700}, 0, all);
  }
}

/// Numbers lists of ids, one after another.
template <class Id>
class Numbers {
 public:
  explicit Numbers(std::int64_t num_nodes) : first_at_(num_nodes) {
    std::fill_n(first_at_.data(), num_nodes, std::numeric_limits<std::int32_t>::max());
  }
  void add(std::vector<Id>& ids) {
    const auto count = static_cast<std::int64_t>(ids.size());
    Array<std::int32_t> is_first(count);
    CudaRenumberArgs args{.ids = ids.data(),
                          .is_int64 = sizeof(Id) == 8,
                          .count = count,
                          .num_known = static_cast<std::int64_t>(nodes_.size()),
                          .first_at = first_at_.data(),
                          .is_first = is_first.data()};
    run(args, CudaRenumberArgs::Step::kMark);
    run(args, CudaRenumberArgs::Step::kFlag);
    std::vector<std::int32_t> running = is_first.values();
    std::partial_sum(running.begin(), running.end(), running.begin());
    nodes_.resize(nodes_.size() + static_cast<std::size_t>(running.empty() ? 0 : running.back()));
    args.running = running.data();
    args.nodes = nodes_.data();
    run(args, CudaRenumberArgs::Step::kNumber);
    run_on_nodes(CudaRenumberArgs::Step::kRemember);
  }
  void forget() { run_on_nodes(CudaRenumberArgs::Step::kForget); }
  const std::vector<Id>& nodes() const { return nodes_; }
  std::vector<std::int32_t> table() { return first_at_.values(); }

 private:
  static void run(CudaRenumberArgs args, CudaRenumberArgs::Step step) {
    args.step = step;
    EXPECT_EQ(cuda::Kernel<CudaRenumberArgs>::workspace(args, 0), 0);
    cuda::Kernel<CudaRenumberArgs>::run(args, {});
  }
  void run_on_nodes(CudaRenumberArgs::Step step) {
    run({.ids = nodes_.data(),
         .is_int64 = sizeof(Id) == 8,
         .count = static_cast<std::int64_t>(nodes_.size()),
         .first_at = first_at_.data()},
        step);
  }

  Array<std::int32_t> first_at_;
  std::vector<Id> nodes_;
};

template <class Id>
void compare_numbers(std::int64_t num_nodes, const std::vector<std::int64_t>& sizes) {
  Numbers<Id> numbers(num_nodes);
  std::vector<std::int32_t> stamps(static_cast<std::size_t>(num_nodes));
  const StampTable table{stamps.data(), 1};
  std::vector<Id> nodes(static_cast<std::size_t>(num_nodes) + 1);
  std::int64_t num_known = 0;
  for (std::uint64_t list = 0; list < sizes.size(); ++list) {
    std::vector<Id> ids;
    for (std::int64_t i = 0; i < sizes[list]; ++i) {
      ids.push_back(static_cast<Id>(random_below(static_cast<std::uint64_t>(num_nodes), 5, list,
                                                 static_cast<std::uint64_t>(i))));
    }
    std::vector<Id> expected = ids;
    nodes.resize(static_cast<std::size_t>(num_known) + ids.size() + 1);
    num_known = renumber<Id>(table, expected.data(), sizes[list], nodes.data(), num_known);
    numbers.add(ids);
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(numbers.nodes(), std::vector<Id>(nodes.begin(), nodes.begin() + num_known));
  }
  numbers.forget();
  EXPECT_EQ(numbers.table(), std::vector<std::int32_t>(static_cast<std::size_t>(num_nodes),
                                                       std::numeric_limits<std::int32_t>::max()));
}

TEST(CudaRenumber, nodes_are_numbered_in_the_order_in_which_they_come) {
  for (const EmulatedOrder order : kOrders) {
    cuda::set_emulated_order(order);
    compare_numbers<std::int32_t>(1000, {20, 300, 0, 2500});
    compare_numbers<std::int64_t>(50, {1, 257, 40});
    compare_numbers<std::int32_t>(1, {3, 3});
  }
}

}  // namespace
}  // namespace mezzo::kernels
