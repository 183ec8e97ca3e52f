#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mezzo/graph/points/points.h"

#include "support/errors.h"
#include "support/graphs.h"

namespace mezzo::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Definition {
  std::int64_t count = std::numeric_limits<std::int64_t>::max();
  double radius = kInfinity;
  bool self_loops = false;
};

double squared_distance(const at::Tensor& points, std::int64_t a, std::int64_t b) {
  const auto rows = points.accessor<double, 2>();
  double sum = 0;
  for (std::int64_t j = 0; j < points.size(1); ++j) {
    const double difference = rows[a][j] - rows[b][j];
    sum += difference * difference;
  }
  return sum;
}

/// All pairs of one graph, whose points are rows [begin, end).
class Pairs {
 public:
  Pairs(const at::Tensor& points, std::int64_t begin, std::int64_t end) : begin_(begin) {
    const at::Tensor doubles = points.cpu().to(at::kDouble);
    for (std::int64_t node = begin; node < end; ++node) {
      std::vector<std::pair<double, std::int64_t>>& row = rows_.emplace_back();
      for (std::int64_t other = begin; other < end; ++other) {
        row.emplace_back(squared_distance(doubles, node, other), other);
      }
      std::sort(row.begin(), row.end());
    }
  }
  explicit Pairs(const at::Tensor& points) : Pairs(points, 0, points.size(0)) {}

  std::vector<Edge> edges(const Definition& definition) const {
    std::vector<Edge> edges;
    std::int64_t node = begin_;
    for (const auto& row : rows_) {
      std::int64_t count = 0;
      for (const auto& [distance, other] : row) {
        if (other == node && !definition.self_loops) continue;
        if (distance > definition.radius * definition.radius) break;
        if (count++ == definition.count) break;
        edges.emplace_back(other, node);
      }
      ++node;
    }
    return edges;
  }

 private:
  std::int64_t begin_;
  std::vector<std::vector<std::pair<double, std::int64_t>>> rows_;  // distance, id
};

/// One definition a graph.
std::vector<Edge> edges_of(const at::Tensor& points, const Ids& sizes,
                           const std::vector<Definition>& definitions) {
  std::vector<Edge> all;
  std::int64_t begin = 0;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const std::int64_t end = begin + sizes[g];
    for (const Edge& edge : Pairs(points, begin, end).edges(definitions[g])) all.push_back(edge);
    begin = end;
  }
  return all;
}

struct NamedPoints {
  std::string name;
  at::Tensor points;
};

/// Random points, grids of many equal distances, points that repeat, a line, far clusters.
std::vector<NamedPoints> named_points(at::ScalarType dtype) {
  const at::Tensor line = at::arange(200, on_device(at::kDouble)).unsqueeze(1) * 0.1;
  const at::Tensor scales = uniform({150, 2}, at::kDouble, 11, -60, 0).exp2();
  return {{"none", at::empty({0, 3}, on_device(dtype))},
          {"one", uniform({1, 3}, dtype, 1)},
          {"two", uniform({2, 2}, dtype, 2)},
          {"uniform, d = 1", uniform({150, 1}, dtype, 3)},
          {"uniform, d = 2", uniform({300, 2}, dtype, 4)},
          {"uniform, d = 3", uniform({300, 3}, dtype, 5)},
          {"uniform, d = 8", uniform({200, 8}, dtype, 6)},
          {"uniform, d = 40", uniform({120, 40}, dtype, 7)},
          {"grid of few values, d = 2", integers({300, 2}, dtype, 8)},
          {"grid of few values, d = 3", integers({300, 3}, dtype, 9) * 0.1},
          {"grid of few values, d = 5", integers({300, 5}, dtype, 10, -1, 1)},
          {"grid of few values, d = 12", integers({200, 12}, dtype, 12, 0, 1) * 0.1},
          {"all equal", at::ones({100, 3}, on_device(dtype))},
          {"line", line.to(dtype)},
          {"many scales", scales.to(dtype)}};
}

const std::vector<at::ScalarType> kPointTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

TEST(KnnGraph, equals_its_definition_with_ties_by_id) {
  for (const at::ScalarType dtype : kPointTypes) {
    for (const NamedPoints& named : named_points(dtype)) {
      const Pairs pairs(named.points);
      for (const std::int64_t k : {1, 4, 16, 1000}) {
        SCOPED_TRACE(named.name + ", k = " + std::to_string(k) + ", " + c10::toString(dtype));
        for (const bool loops : {false, true}) {
          const Graph g = knn_graph(named.points, k, {.self_loops = loops});
          EXPECT_EQ(g.num_nodes(), named.points.size(0));
          EXPECT_EQ(edges(g), pairs.edges({.count = k, .self_loops = loops}));
        }
      }
    }
  }
}

TEST(RadiusGraph, equals_its_definition_with_points_at_the_radius) {
  for (const at::ScalarType dtype : kPointTypes) {
    for (const NamedPoints& named : named_points(dtype)) {
      const Pairs pairs(named.points);
      for (const double radius : {0.0, 0.1, 0.3, 1.0, 2.0}) {
        SCOPED_TRACE(named.name + ", radius " + std::to_string(radius) + c10::toString(dtype));
        for (const bool loops : {false, true}) {
          EXPECT_EQ(edges(radius_graph(named.points, radius, {.self_loops = loops})),
                    pairs.edges({.radius = radius, .self_loops = loops}));
          EXPECT_EQ(edges(radius_graph(named.points, radius,
                                       {.self_loops = loops, .max_num_neighbors = 5})),
                    pairs.edges({.count = 5, .radius = radius, .self_loops = loops}));
        }
      }
    }
  }
}

TEST(RadiusGraph, joins_the_neighbours_of_a_lattice) {
  const Graph g = radius_graph(numbers({0, 1, 2, 3}).unsqueeze(1), 1.0);
  EXPECT_EQ(edges(g), std::vector<Edge>({{1, 0}, {0, 1}, {2, 1}, {1, 2}, {3, 2}, {2, 3}}));
  EXPECT_EQ(edges(radius_graph(numbers({5, 5}).unsqueeze(1), 0.0)),
            std::vector<Edge>({{1, 0}, {0, 1}}));
}

TEST(RadiusGraph, without_a_limit_is_symmetric) {
  const Graph g = radius_graph(uniform({300, 3}, at::kFloat, 3), 0.4);
  EXPECT_GT(g.num_edges(), 0);
  EXPECT_TRUE(g.has_edges_between(g.topology().dst(), g.topology().src()).all().item<bool>());
}

TEST(PointGraphs, of_a_batch_stay_within_their_graphs) {
  const Ids sizes = {0, 40, 1, 0, 3, 90, 0};
  const at::Tensor points = integers({134, 3}, at::kFloat, 4) * 0.25;
  for (const at::ScalarType integer : {at::kInt, at::kLong}) {
    const at::Tensor counts = ids(sizes).to(integer);
    const Graph nearest = knn_graph(points, 6, {.batch_num_nodes = counts});
    EXPECT_EQ(edges(nearest),
              edges_of(points, sizes, std::vector<Definition>(sizes.size(), {.count = 6})));
    EXPECT_EQ(values(nearest.batch_num_nodes()), sizes);
    EXPECT_EQ(values(nearest.batch_num_edges()), Ids({0, 240, 0, 0, 6, 540, 0}));
    EXPECT_EQ(edges(radius_graph(points, 0.5, {.batch_num_nodes = counts})),
              edges_of(points, sizes, std::vector<Definition>(sizes.size(), {.radius = 0.5})));
  }
  EXPECT_EQ(knn_graph(points, 6).batch_size(), 1);
}

TEST(RadiusGraph, takes_a_radius_for_each_graph) {
  const at::Tensor points = uniform({90, 2}, at::kDouble, 5);
  const std::vector<double> radii = {0.1, 0.5, 0.25};
  std::vector<Definition> definitions;
  for (const double radius : radii) definitions.push_back({.radius = radius});
  const Graph g = radius_graph(points, numbers(radii), {.batch_num_nodes = ids({30, 30, 30})});
  EXPECT_EQ(edges(g), edges_of(points, {30, 30, 30}, definitions));
  EXPECT_EQ(g.batch_size(), 3);
  // A radius in float32 is the number that it holds.
  const at::Tensor apart = numbers({0.0, 0.1F}).unsqueeze(1);
  EXPECT_EQ(radius_graph(apart, numbers({0.1}, at::kFloat)).num_edges(), 2);
  EXPECT_EQ(radius_graph(apart, numbers({0.1}, at::kDouble)).num_edges(), 0);
}

TEST(PointGraphs, run_to_the_neighbours_if_asked) {
  const at::Tensor points = uniform({60, 3}, at::kFloat, 6);
  const KnnGraphOptions options = {.batch_num_nodes = ids({20, 40}),
                                   .flow = EdgeFlow::kToNeighbors};
  const Graph g = knn_graph(points, 4, options);
  std::vector<Edge> expected = edges(knn_graph(points, 4, {.batch_num_nodes = ids({20, 40})}));
  for (Edge& edge : expected) std::swap(edge.first, edge.second);
  EXPECT_EQ(edges(g), expected);
  EXPECT_EQ(g.batch_size(), 2);
  EXPECT_EQ(values(g.out_degrees()), Ids(60, 4));
  const Graph near =
      radius_graph(points, 0.3, {.max_num_neighbors = 2, .flow = EdgeFlow::kToNeighbors});
  EXPECT_LE(near.out_degrees().max().item<std::int64_t>(), 2);
}

TEST(PointGraphs, have_the_arrays_of_a_checked_graph) {
  const Graph g = knn_graph(uniform({200, 3}, at::kFloat, 7), 5);
  const Topology& topology = g.topology();
  EXPECT_EQ(topology.id_dtype(), at::kInt);
  EXPECT_EQ(g.device().type(), test_device().type());
  const Graph checked = Graph::from_coo(topology.src(), topology.dst(), 200);
  EXPECT_EQ(values(topology.csc().indptr), values(checked.topology().csc().indptr));
  EXPECT_EQ(values(topology.csr().indices), values(checked.topology().csr().indices));
  EXPECT_EQ(topology.csc().longest_row, 5);
}

TEST(PointGraphs, do_not_depend_on_strides_or_gradients) {
  const at::Tensor points = uniform({100, 3}, at::kFloat, 8);
  const std::vector<Edge> expected = edges(knn_graph(points, 4));
  EXPECT_EQ(edges(knn_graph(points.t().contiguous().t(), 4)), expected);
  EXPECT_EQ(edges(knn_graph(at::cat({points, points}, 1).narrow(1, 0, 3), 4)), expected);
  EXPECT_EQ(edges(knn_graph(leaf(points), 4)), expected);
}

/// Expects k edges into each point, from its nearest ones; looks at every 300th point.
void expect_nearest(const at::Tensor& points, const std::vector<Edge>& edges, std::int64_t k) {
  const at::Tensor doubles = points.cpu().to(at::kDouble);
  for (std::int64_t node = 0; node < points.size(0); node += 300) {
    std::vector<std::pair<double, std::int64_t>> all;
    for (std::int64_t other = 0; other < points.size(0); ++other) {
      if (other != node) all.emplace_back(squared_distance(doubles, node, other), other);
    }
    std::sort(all.begin(), all.end());
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(edges[static_cast<std::size_t>(node * k + i)], Edge(all[at].second, node));
    }
  }
}

TEST(KnnGraph, of_many_points_in_many_dimensions_is_exact) {
  const at::Tensor points = integers({9000, 12}, at::kFloat, 16, 0, 3) * 0.1;
  expect_nearest(points, edges(knn_graph(points, 8)), 8);
}

// Graphs large enough for several tasks of one graph, and tasks of several graphs.
TEST(PointGraphs, are_the_same_on_any_number_of_threads) {
  const at::Tensor points =
      at::cat({uniform({9000, 3}, at::kFloat, 9), integers({3000, 3}, at::kFloat, 10)});
  const at::Tensor counts = ids({9000, 1000, 1900, 100});
  std::vector<std::vector<Edge>> nearest, near;
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    nearest.push_back(edges(knn_graph(points, 8, {.batch_num_nodes = counts})));
    near.push_back(
        edges(radius_graph(points, 0.1, {.batch_num_nodes = counts, .max_num_neighbors = 30})));
  }
  EXPECT_EQ(nearest[0], nearest[1]);
  EXPECT_EQ(nearest[0], nearest[2]);
  EXPECT_EQ(near[0], near[1]);
  EXPECT_EQ(near[0], near[2]);
  const std::vector<Edge> expected = Pairs(points, 9000, 10000).edges({.count = 8});
  EXPECT_EQ(std::vector<Edge>(nearest[0].begin() + 72000, nearest[0].begin() + 80000), expected);
  expect_nearest(points.narrow(0, 0, 9000), nearest[0], 8);
}

TEST(PointGraphs, of_far_and_tiny_coordinates_are_exact) {
  for (const std::int64_t dimensions : {3, 12}) {
    for (const double scale : {1e-320, 1e-170, 1e-150, 1e100, 1e152}) {
      const at::Tensor points = integers({100, dimensions}, at::kDouble, 11) * scale;
      EXPECT_EQ(edges(knn_graph(points, 5)), Pairs(points).edges({.count = 5})) << scale;
      const at::Tensor far = integers({100, dimensions}, at::kDouble, 12) * 0.1 + scale;
      EXPECT_EQ(edges(knn_graph(far, 5)), Pairs(far).edges({.count = 5})) << scale;
    }
  }
}

TEST(PointGraphs, refuse_other_arguments) {
  const at::Tensor points = uniform({4, 3}, at::kFloat, 12);
  EXPECT_ERROR("knn_graph:expectedpoints[N,d]offloat32,float64,bfloat16orfloat16,got",
               knn_graph({}, 1));
  EXPECT_ERROR("gotfloat32[4]", knn_graph(points.select(1, 0), 1));
  EXPECT_ERROR("gotfloat32[4,0]", knn_graph(points.narrow(1, 0, 0), 1));
  EXPECT_ERROR("gotint64", knn_graph(points.to(at::kLong), 1));
  EXPECT_ERROR(".to_dense()", radius_graph(points.to_sparse(), 1));
  EXPECT_ERROR("knn_graph:expectedkofatleast1,got0", knn_graph(points, 0));
  EXPECT_ERROR("radius_graph:expectedradiusofatleast0,got-1", radius_graph(points, -1));
  EXPECT_ERROR("radius_graph:expectedradiusofatleast0,gotnan", radius_graph(points, NAN));
  EXPECT_ERROR("radius_graph:expectedmax_num_neighborsofatleast1,got0",
               radius_graph(points, 1, {.max_num_neighbors = 0}));
  EXPECT_ERROR("expectedaradiusforeachof1graphs,gotfloat64[2]",
               radius_graph(points, numbers({1, 2})));
  EXPECT_ERROR("expectedradiusfloating[batch_size],gotint64[1]", radius_graph(points, ids({1})));
  EXPECT_ERROR("knn_graph:expectedbatch_num_nodesthatsumtothe4points,got3",
               knn_graph(points, 1, {.batch_num_nodes = ids({1, 2})}));
  EXPECT_ERROR("batch_num_nodesthatsumtothe4points,gotmore",
               knn_graph(points, 1, {.batch_num_nodes = ids({4, 2})}));
  EXPECT_ERROR("batch_num_nodesofatleast0,got-1",
               knn_graph(points, 1, {.batch_num_nodes = ids({-1, 5})}));
  EXPECT_ERROR("batch_num_nodesofatleastonegraph,gotnone",
               knn_graph(points.narrow(0, 0, 0), 1, {.batch_num_nodes = ids({})}));
  for (const double bad : {double{NAN}, kInfinity, -kInfinity}) {
    at::Tensor broken = points.clone();
    broken[2][1] = bad;
    EXPECT_ERROR("inrow2,column1", knn_graph(broken, 1));
    EXPECT_ERROR("radius_graph:expectedfinitepoints", radius_graph(broken, 1));
  }
  EXPECT_ERROR("squareddistancesarefiniteinfloat64",
               knn_graph(numbers({0, 1e200}).unsqueeze(1), 1));
}

/// Each next point by a search over all, of one graph.
Ids farthest_of(const at::Tensor& points, std::int64_t begin, std::int64_t end,
                std::int64_t count) {
  const at::Tensor doubles = points.cpu().to(at::kDouble);
  Ids chosen;
  while (static_cast<std::int64_t>(chosen.size()) < std::min(count, end - begin)) {
    std::int64_t best = -1;
    double farthest = -1;
    for (std::int64_t node = begin; node < end; ++node) {
      if (std::find(chosen.begin(), chosen.end(), node) != chosen.end()) continue;
      double nearest = kInfinity;
      for (const std::int64_t other : chosen) {
        nearest = std::min(nearest, squared_distance(doubles, node, other));
      }
      if (nearest > farthest) {
        farthest = nearest;
        best = node;
      }
    }
    chosen.push_back(best);
  }
  return chosen;
}

TEST(FarthestPoints, equal_their_definition) {
  for (const NamedPoints& named : named_points(at::kFloat)) {
    for (const std::int64_t count : {0, 1, 2, 20, 1000}) {
      SCOPED_TRACE(named.name + ", " + std::to_string(count));
      const std::int64_t few =
          named.points.size(0) > 200 ? std::min<std::int64_t>(count, 50) : count;
      EXPECT_EQ(values(farthest_points(named.points, few)),
                farthest_of(named.points, 0, named.points.size(0), few));
    }
  }
}

TEST(FarthestPoints, of_a_batch_are_of_each_graph) {
  const at::Tensor points = uniform({60, 3}, at::kFloat, 13);
  Ids expected = farthest_of(points, 0, 20, 5);
  const Ids second = farthest_of(points, 20, 24, 9), third = farthest_of(points, 24, 60, 7);
  expected.insert(expected.end(), second.begin(), second.end());
  expected.insert(expected.end(), third.begin(), third.end());
  const at::Tensor chosen = farthest_points(points, ids({5, 9, 7}), ids({20, 4, 36}));
  EXPECT_EQ(values(chosen), expected);
  EXPECT_EQ(chosen.scalar_type(), at::kLong);
  EXPECT_EQ(farthest_points(points, 3, ids({20, 0, 40})).numel(), 6);
}

TEST(FarthestPoints, are_the_same_on_any_number_of_threads) {
  const at::Tensor points = integers({40000, 2}, at::kFloat, 14, -99, 99);
  std::vector<Ids> chosen;
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    chosen.push_back(values(farthest_points(points, 40)));
  }
  EXPECT_EQ(chosen[0], chosen[1]);
  EXPECT_EQ(chosen[0], chosen[2]);
}

TEST(FarthestPoints, refuse_other_arguments) {
  const at::Tensor points = uniform({4, 3}, at::kFloat, 15);
  EXPECT_ERROR("farthest_points:expectednum_samplesofatleast0,got-1", farthest_points(points, -1));
  EXPECT_ERROR("expectednum_samplesforeachof1graphs,gotint64[2]",
               farthest_points(points, ids({1, 2})));
  EXPECT_ERROR("farthest_points:expectedfinitepoints", farthest_points(points / 0.0, 1));
}

}  // namespace
}  // namespace mezzo::test
