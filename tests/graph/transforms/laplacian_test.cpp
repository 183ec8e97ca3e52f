#include <numbers>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// Adds the reverse of every edge; keeps parallel edges.
Graph with_reverses(const Graph& g, IdWidth width = IdWidth::kAutomatic) {
  const at::Tensor &src = g.topology().src(), &dst = g.topology().dst();
  return Graph::from_coo(at::cat({src, dst}), at::cat({dst, src}), g.num_nodes(), width);
}

double lambda_max(const Graph& g) {
  const at::Tensor value = laplacian_lambda_max(g);
  EXPECT_EQ(value.sizes(), at::IntArrayRef({1}));
  EXPECT_EQ(value.scalar_type(), at::kDouble);
  EXPECT_TRUE(value.is_cpu());
  return value.item<double>();
}

/// The largest eigenvalue of I - D^(-1/2) A D^(-1/2), written out.
double dense_lambda_max(const Graph& g) {
  const std::int64_t n = g.num_nodes();
  at::Tensor matrix = at::eye(n, at::kDouble);
  auto* entry = matrix.mutable_data_ptr<double>();
  const Ids degrees = values(g.in_degrees());
  const auto degree = [&](std::int64_t node) {
    return static_cast<double>(degrees[static_cast<std::size_t>(node)]);
  };
  for (const auto& [src, dst] : edges(g)) {
    entry[dst * n + src] -= 1 / std::sqrt(degree(src) * degree(dst));
  }
  return at::linalg_eigvalsh(matrix).max().item<double>();
}

/// Each of at most 64 steps has a product and two dot products over all nodes; each number rounds.
testing::AssertionResult near_eigenvalue(double got, double expected, std::int64_t num_nodes) {
  return near_number(got, expected, 64 * static_cast<double>(num_nodes));
}

TEST(LaplacianLambdaMax, of_graphs_whose_spectrum_is_known) {
  EXPECT_TRUE(near_eigenvalue(lambda_max(to_bidirected(cycle_graph(5))), 1.809016994374948, 5));
  for (const std::int64_t n : {3, 4, 11, 30}) {
    SCOPED_TRACE(n);
    const auto half = static_cast<double>(n / 2);
    const double of_cycle = 1 - std::cos(2 * std::numbers::pi * half / static_cast<double>(n));
    EXPECT_TRUE(near_eigenvalue(lambda_max(to_bidirected(cycle_graph(n))), of_cycle, n));
    EXPECT_TRUE(near_eigenvalue(lambda_max(to_bidirected(star_graph(n))), 2, n));
    const auto count = static_cast<double>(n);
    const Graph complete = random_graph(n, 1.0, 5);
    EXPECT_TRUE(near_eigenvalue(lambda_max(complete), 1, n));  // with self loops
    EXPECT_TRUE(near_eigenvalue(lambda_max(remove_self_loop(complete)), count / (count - 1), n));
  }
  EXPECT_TRUE(near_eigenvalue(lambda_max(isolated_graph(6)), 1, 6));
  EXPECT_TRUE(near_eigenvalue(lambda_max(one_node_graph()), 1, 1));
  EXPECT_EQ(lambda_max(graph_of({0}, {0}, 1)), 0);  // a single self loop
}

TEST(LaplacianLambdaMax, is_that_of_the_matrix_written_out) {
  for (const NamedGraph& named : named_graphs()) {
    if (named.graph.num_nodes() == 0) continue;
    SCOPED_TRACE(named.name);
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      const Graph g = with_reverses(named.graph, width);
      EXPECT_TRUE(near_eigenvalue(lambda_max(g), dense_lambda_max(g), g.num_nodes()));
    }
  }
}

TEST(LaplacianLambdaMax, of_a_batch_is_that_of_each_part) {
  std::vector<Graph> parts;
  for (const Graph& g : {cycle_graph(5), star_graph(7), random_graph(20, 0.2, 4)}) {
    parts.push_back(to_bidirected(g));
  }
  parts.push_back(isolated_graph(2));
  Graph joined = batch(parts);
  joined.edata()["w"] = at::ones({1}, on_device());  // no column is read
  const at::Tensor all = laplacian_lambda_max(joined);
  ASSERT_EQ(all.numel(), 4);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor one = laplacian_lambda_max(parts[i]);
    EXPECT_TRUE(same_bits(all.narrow(0, static_cast<std::int64_t>(i), 1), one)) << i;
  }
  EXPECT_EQ(all.repeat_interleave(joined.batch_num_nodes()).size(0), joined.num_nodes());
}

TEST(LaplacianLambdaMax, comes_within_its_tolerance_where_eigenvalues_lie_close) {
  constexpr std::int64_t kNodes = 2001;  // odd: the largest is not 2
  const double expected = 1 + std::cos(std::numbers::pi / static_cast<double>(kNodes));
  const double got = lambda_max(to_bidirected(cycle_graph(kNodes)));
  EXPECT_TRUE(near_number(got, expected, kLambdaMaxTolerance / info(at::kDouble).accum_epsilon));
}

TEST(LaplacianLambdaMax, has_the_same_bits_on_any_number_of_threads) {
  const Graph g = with_reverses(power_law_graph(5000, 40000, 6));
  at::Tensor values[2];
  for (const int threads : {1, 4}) {
    const ThreadCount count(threads);
    values[threads / 4] = laplacian_lambda_max(g);
  }
  EXPECT_TRUE(same_bits(values[0], values[1]));
}

TEST(LaplacianLambdaMax, refuses_edges_without_their_reverse_and_parts_without_nodes) {
  const auto attempt = [&](const Graph& g) { laplacian_lambda_max(g); };
  EXPECT_ERROR("laplacian_lambda_max:expectedeveryedgewithitsreverse,got0fromnode1to0and1back",
               attempt(four_node_graph()));
  EXPECT_ERROR("got1fromnode1to0and3back", attempt(duplicate_graph()));
  EXPECT_ERROR("expectedpartswithnodes,gotnoneinpart0", attempt(Graph()));
  EXPECT_ERROR("gotnoneinpart1", attempt(batch({isolated_graph(1), empty_graph()})));
  Graph cut = to_bidirected(cycle_graph(4));
  cut.set_batch(ids({2, 2}), ids({4, 4}));
  EXPECT_ERROR("expectedtheedgesofpart0betweenitsnodes", attempt(cut));
}

}  // namespace
}  // namespace mezzo::test
