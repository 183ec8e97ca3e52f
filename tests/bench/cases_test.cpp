#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/graph/transforms/transforms.h"

#include "bench/cases/layers.h"
#include "bench/cases/reducers.h"
#include "bench/cases/rows.h"
#include "bench/cases/sampling.h"
#include "bench/harness/measure.h"

namespace mezzo {
namespace {

using bench::Pass;
using bench::Plan;

const std::vector<amp::Precision> kAllPrecisions = {
    amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16};

/// Measures a plan once: wrong results of Mezzo throw. Expects a baseline that agrees with
/// the reference, unless none can (`agree` false).
void expect_right(const Plan& plan, std::size_t num_mezzo, bool agree = true) {
  SCOPED_TRACE(plan.work);
  const auto outcome = bench::measure(plan, {.rounds = 1});
  ASSERT_TRUE(outcome.has_value());
  ASSERT_EQ(outcome->skipped, "");
  std::size_t mezzo = 0, right = 0;
  for (const bench::Measurement& measured : outcome->measurements) {
    if (measured.is_mezzo) {
      EXPECT_EQ(measured.skipped, "") << measured.name;
      EXPECT_EQ(measured.milliseconds.size(), 1U) << measured.name;
      ++mezzo;
    } else if (measured.precision == amp::Precision::kFloat32 &&
               measured.error <= bench::largest_error({}, measured.precision)) {
      ++right;
    }
  }
  EXPECT_EQ(mezzo, num_mezzo);
  EXPECT_GE(right, agree ? 1U : 0U);
}

bench::Workload small_workload(const std::vector<amp::Precision>& precisions) {
  // Nodes without edges, parallel edges and hubs.
  return bench::make_workload(rmat_graph(/*scale=*/6, /*num_edges=*/256).topology(), precisions);
}

TEST(BenchCases, reducers_and_scaled_sums_agree_with_their_references) {
  const bench::Workload load = small_workload(kAllPrecisions);
  for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
    for (const std::int64_t width : {3, 24}) {
      for (const ReduceOp reduce :
           {ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
        // libtorch's sparse product has other conventions for ties and nodes without edges.
        expect_right(bench::copy_u_reduce(load, reduce, width, pass), 3,
                     /*agree=*/reduce == ReduceOp::kProd);
      }
      expect_right(bench::degree_scaled_sum(load, width, pass), 3);
    }
  }
}

TEST(BenchCases, products_of_groups_and_dropout_agree_with_their_references) {
  for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
    const bench::GroupedRows size{.rows = 200, .groups = 5};
    expect_right(bench::segment_products(size, 16, kAllPrecisions, pass), 3);
    expect_right(bench::gathered_products(size, 16, kAllPrecisions, pass), 3);
    expect_right(bench::row_dropout(100, 32, kAllPrecisions, pass), 3);
  }
}

TEST(BenchCases, layers_of_attention_agree_with_gathering) {
  // The baseline gives the expected results, so it has no error.
  const bench::Workload load = small_workload({amp::Precision::kFloat32});
  for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
    expect_right(bench::gat_layer(load, 8, pass), 1, /*agree=*/false);
    expect_right(bench::gatv2_layer(load, 8, pass), 1, /*agree=*/false);
  }
}

TEST(BenchCases, batches_of_more_seeds_than_nodes_have_all_of_them) {
  const Graph graph = rmat_graph(/*scale=*/6, /*num_edges=*/256);
  const bench::SamplingWork work{.batch_size = std::numeric_limits<std::int64_t>::max()};
  const at::Tensor seeds = std::get<0>(bench::sampling_seeds(graph, work).sort());
  EXPECT_TRUE(at::equal(seeds, at::arange(graph.num_nodes(), at::kLong)));
}

}  // namespace
}  // namespace mezzo
