#include "mezzo/graph/topology.h"

#include <latch>
#include <thread>

#include <c10/core/InferenceMode.h>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

/// Rows as the header defines them: entries of a row in ascending edge id.
Adjacency rows_by_definition(const Ids& keys, const Ids& others, std::int64_t num_rows) {
  Ids indptr = {0}, indices, edge_ids;
  std::size_t longest = 0;
  std::vector<std::vector<std::size_t>> edges(static_cast<std::size_t>(num_rows));
  for (std::size_t e = 0; e < keys.size(); ++e) {
    edges[static_cast<std::size_t>(keys[e])].push_back(e);
  }
  for (const auto& row : edges) {
    for (const std::size_t e : row) {
      indices.push_back(others[e]);
      edge_ids.push_back(static_cast<std::int64_t>(e));
    }
    indptr.push_back(static_cast<std::int64_t>(indices.size()));
    longest = std::max(longest, row.size());
  }
  return {ids(indptr), ids(indices), ids(edge_ids), static_cast<std::int64_t>(longest)};
}

void expect_rows(const Adjacency& rows, const at::Tensor& keys, const at::Tensor& others,
                 std::int64_t num_rows, at::ScalarType id_dtype) {
  const Adjacency expected = rows_by_definition(values(keys), values(others), num_rows);
  EXPECT_EQ(values(rows.indptr), values(expected.indptr));
  EXPECT_EQ(values(rows.indices), values(expected.indices));
  EXPECT_EQ(rows.indptr.scalar_type(), at::kLong);
  EXPECT_EQ(rows.indices.scalar_type(), id_dtype);
  EXPECT_EQ(rows.longest_row, expected.longest_row);
  const bool identity = at::equal(expected.edge_ids, at::arange(keys.numel()));
  EXPECT_EQ(rows.edge_ids.defined(), !identity);
  if (rows.edge_ids.defined()) {
    EXPECT_EQ(values(rows.edge_ids), values(expected.edge_ids));
    EXPECT_EQ(rows.edge_ids.scalar_type(), id_dtype);
  }
}

void expect_formats(const Topology& g) {
  expect_rows(g.csr(), g.src(), g.dst(), g.num_src(), g.id_dtype());
  expect_rows(g.csc(), g.dst(), g.src(), g.num_dst(), g.id_dtype());
}

/// Not sorted by source or destination: 0: 2->0, 1: 0->1, 2: 2->1, 3: 0->0, 4: 1->1.
Topology unsorted(IdWidth width = IdWidth::kAutomatic) {
  return topology_of({2, 0, 2, 0, 1}, {0, 1, 1, 0, 1}, 3, 2, width);
}

TEST(Topology, default_has_no_nodes_and_no_edges) {
  const Topology g;
  EXPECT_EQ(g.num_src(), 0);
  EXPECT_EQ(g.num_dst(), 0);
  EXPECT_EQ(g.num_edges(), 0);
  EXPECT_TRUE(g.device().is_cpu());
  EXPECT_EQ(values(g.csc().indptr), Ids({0}));
  EXPECT_EQ(g.in_degrees().numel(), 0);
  EXPECT_FALSE(g.has_zero_in_degree());
}

TEST(Topology, of_coordinates_keeps_them_and_builds_rows_in_edge_order) {
  const Topology g = unsorted();
  EXPECT_EQ(g.num_src(), 3);
  EXPECT_EQ(g.num_dst(), 2);
  EXPECT_EQ(g.num_edges(), 5);
  EXPECT_EQ(edges(g), std::vector<Edge>({{2, 0}, {0, 1}, {2, 1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(values(g.csr().indptr), Ids({0, 2, 3, 5}));
  EXPECT_EQ(values(g.csr().indices), Ids({1, 0, 1, 0, 1}));
  EXPECT_EQ(values(g.csr().edge_ids), Ids({1, 3, 4, 0, 2}));
  EXPECT_EQ(values(g.csc().indptr), Ids({0, 2, 5}));
  EXPECT_EQ(values(g.csc().indices), Ids({2, 0, 0, 2, 1}));
  EXPECT_EQ(values(g.csc().edge_ids), Ids({0, 3, 1, 2, 4}));
}

TEST(Topology, rows_follow_the_definition_on_every_graph_and_id_width) {
  for (const NamedTopology& named : topologies()) {
    SCOPED_TRACE(named.name);
    const Topology& g = named.topology;
    for (const IdWidth width : {IdWidth::kAutomatic, IdWidth::kInt32, IdWidth::kInt64}) {
      const Topology again = Topology::from_coo(g.src(), g.dst(), g.num_src(), g.num_dst(), width);
      EXPECT_EQ(again.id_dtype(), width == IdWidth::kInt64 ? at::kLong : at::kInt);
      expect_formats(again);
    }
  }
}

TEST(Topology, rows_do_not_depend_on_the_number_of_threads) {
  const Topology edges = rmat_graph(/*scale=*/10, /*num_edges=*/400000, /*seed=*/1);
  for (const int threads : {1, 2, 3, 8}) {
    SCOPED_TRACE(threads);
    const ThreadCount scope(threads);
    expect_formats(Topology::from_coo(edges.src(), edges.dst(), 1024, 1024));
  }
}

TEST(Topology, of_rows_gives_the_edges_of_the_rows) {
  for (const NamedTopology& named : topologies()) {
    SCOPED_TRACE(named.name);
    const Topology& g = named.topology;
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      const Adjacency &csr = g.csr(), &csc = g.csc();
      const Topology by_src =
          Topology::from_csr(csr.indptr, csr.indices, g.num_dst(), csr.edge_ids, width);
      const Topology by_dst =
          Topology::from_csc(csc.indptr, csc.indices, g.num_src(), csc.edge_ids, width);
      for (const Topology& again : {by_src, by_dst}) {
        EXPECT_EQ(again.num_src(), g.num_src());
        EXPECT_EQ(again.num_dst(), g.num_dst());
        EXPECT_EQ(values(again.in_degrees()), values(g.in_degrees()));
        EXPECT_EQ(values(again.out_degrees()), values(g.out_degrees()));
        EXPECT_EQ(edges(again), edges(g));
        expect_formats(again);
      }
    }
  }
}

TEST(Topology, of_rows_without_edge_ids_counts_entries) {
  const Topology g = Topology::from_csc(ids({0, 2, 2, 3}), ids({1, 0, 4}), /*num_src=*/5);
  EXPECT_EQ(g.num_src(), 5);
  EXPECT_EQ(g.num_dst(), 3);
  EXPECT_EQ(edges(g), std::vector<Edge>({{1, 0}, {0, 0}, {4, 2}}));
  EXPECT_FALSE(g.csc().edge_ids.defined());
  expect_formats(g);
}

TEST(Topology, of_rows_reorders_entries_whose_edge_ids_do_not_ascend) {
  const Topology g =
      Topology::from_csr(ids({0, 3, 4}), ids({7, 8, 9, 6}), /*num_dst=*/10, ids({3, 0, 2, 1}));
  EXPECT_EQ(edges(g), std::vector<Edge>({{0, 8}, {1, 6}, {0, 9}, {0, 7}}));
  EXPECT_EQ(values(g.csr().indices), Ids({8, 9, 7, 6}));
  EXPECT_EQ(values(g.csr().edge_ids), Ids({0, 2, 3, 1}));
  expect_formats(g);
}

TEST(Topology, identity_edge_ids_are_dropped) {
  const Topology g = Topology::from_csr(ids({0, 1, 3}), ids({0, 0, 1}), 2, ids({0, 1, 2}));
  EXPECT_FALSE(g.csr().edge_ids.defined());
}

TEST(Topology, sorted_edges_share_their_array_with_the_rows) {
  const Topology g = topology_of({0, 0, 1}, {2, 1, 0}, 2, 3);
  EXPECT_FALSE(g.csr().edge_ids.defined());
  EXPECT_EQ(g.csr().indices.data_ptr(), g.dst().data_ptr());
  EXPECT_TRUE(g.csc().edge_ids.defined());
}

TEST(Topology, takes_any_integer_dtype_and_stride) {
  const Topology expected = unsorted();
  for (const at::ScalarType dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor pairs = at::stack({expected.src(), expected.dst()}, 1).to(dtype);
    const Topology g = Topology::from_coo(pairs.select(1, 0), pairs.select(1, 1), 3, 2);
    EXPECT_EQ(g.id_dtype(), at::kInt);
    EXPECT_EQ(values(g.src()), values(expected.src()));
    EXPECT_EQ(values(g.csc().indices), values(expected.csc().indices));
  }
}

TEST(Topology, copies_unless_the_dtype_is_the_stored_one) {
  const auto is_shared = [](const at::Tensor& nodes, IdWidth width = IdWidth::kAutomatic) {
    return Topology::from_coo(nodes, nodes, 2, 2, width).src().data_ptr() == nodes.data_ptr();
  };
  EXPECT_FALSE(is_shared(ids({0, 1})));
  EXPECT_TRUE(is_shared(ids({0, 1}).to(at::kInt)));
  EXPECT_TRUE(is_shared(ids({0, 1}), IdWidth::kInt64));
}

TEST(Topology, ids_are_int32_until_a_count_reaches_two_to_the_31) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const at::Tensor first = ids({0}), last = ids({kMost});
  EXPECT_EQ(Topology::from_coo(first, first, kMost, 1).id_dtype(), at::kInt);
  EXPECT_EQ(Topology::from_coo(last, first, kMost + 1, 1).id_dtype(), at::kLong);
  EXPECT_EQ(values(Topology::from_coo(last, first, kMost + 1, 1).src()), Ids({kMost}));
  EXPECT_EQ(Topology::from_coo(first, last, 1, kMost + 1).id_dtype(), at::kLong);
  EXPECT_EQ(Topology::from_coo(first, first, 1, 1, IdWidth::kInt64).id_dtype(), at::kLong);
  EXPECT_ERROR("from_coo:expectedcountsbelow2^31forint32ids,got2147483648",
               Topology::from_coo(first, first, kMost + 1, 1, IdWidth::kInt32));
}

TEST(Topology, int64_ids_change_nothing_but_the_dtype) {
  const Topology int32 = unsorted(), int64 = unsorted(IdWidth::kInt64);
  EXPECT_EQ(int64.id_dtype(), at::kLong);
  EXPECT_EQ(values(int64.csr().indices), values(int32.csr().indices));
  EXPECT_EQ(values(int64.csc().edge_ids), values(int32.csc().edge_ids));
  EXPECT_EQ(values(int64.in_degrees()), values(int32.in_degrees()));
}

TEST(Topology, formats_are_built_on_first_use_and_cached) {
  const Topology g = unsorted();
  const std::int64_t edge_bytes = 5 * 4;
  EXPECT_EQ(g.memory_bytes(), 2 * edge_bytes);
  const void* const indices = g.csc().indices.data_ptr();
  EXPECT_EQ(g.memory_bytes(), 4 * edge_bytes + 3 * 8);
  EXPECT_EQ(g.csc().indices.data_ptr(), indices);
  g.csr();
  EXPECT_EQ(g.memory_bytes(), 6 * edge_bytes + 3 * 8 + 4 * 8);
}

TEST(Topology, degrees_of_rows_build_no_edges) {
  const Topology rows = Topology::from_csr(ids({0, 2, 3}), ids({1, 0, 1}), 2);
  const std::int64_t before = rows.memory_bytes();
  EXPECT_EQ(values(rows.in_degrees()), Ids({1, 2}));
  EXPECT_EQ(values(rows.out_degrees()), Ids({2, 1}));
  EXPECT_EQ(rows.memory_bytes(), before);
}

TEST(Topology, memory_counts_shared_arrays_once) {
  const Topology g = four_nodes();  // sorted both ways
  g.csr();
  g.csc();
  EXPECT_EQ(g.memory_bytes(), 2 * 4 * 4 + 2 * 5 * 8);
}

TEST(Topology, formats_used_by_several_threads_are_built_once) {
  for (int round = 0; round < 20; ++round) {
    const Topology g = random_topology(50, 50, 2000, static_cast<std::uint64_t>(round));
    constexpr int kThreads = 4;
    std::latch start(kThreads);
    std::vector<const void*> seen(kThreads);
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          start.arrive_and_wait();
          if (t % 2 == 0) g.csr();
          seen[static_cast<std::size_t>(t)] = g.csc().indices.data_ptr();
          g.reverse().csr();
        });
      }
    }
    for (const void* address : seen) EXPECT_EQ(address, seen[0]);
    expect_formats(g);
  }
}

TEST(Topology, formats_built_in_inference_mode_serve_training) {
  const Topology g = unsorted();
  {
    const c10::InferenceMode inference;
    g.csc();
    g.csr();
  }
  EXPECT_FALSE(g.csc().indices.is_inference());
  EXPECT_FALSE(g.csr().indptr.is_inference());
}

TEST(Topology, reverse_exchanges_the_sides_and_shares_every_array) {
  const Topology g = unsorted();
  const Topology turned = g.reverse();
  EXPECT_EQ(turned.num_src(), 2);
  EXPECT_EQ(turned.num_dst(), 3);
  EXPECT_EQ(turned.src().data_ptr(), g.dst().data_ptr());
  EXPECT_EQ(turned.dst().data_ptr(), g.src().data_ptr());
  expect_formats(turned);
  EXPECT_EQ(turned.csr().indices.data_ptr(), g.csc().indices.data_ptr());
  EXPECT_EQ(g.csr().edge_ids.data_ptr(), turned.csc().edge_ids.data_ptr());
  EXPECT_EQ(g.memory_bytes(), turned.memory_bytes());
  EXPECT_EQ(values(turned.in_degrees()), values(g.out_degrees()));
  EXPECT_EQ(values(turned.reverse().src()), values(g.src()));
}

TEST(Topology, what_one_direction_builds_later_the_other_has) {
  const Topology g = unsorted();
  const Topology turned = g.reverse();
  const std::int64_t before = g.memory_bytes();
  turned.csc();
  EXPECT_GT(g.memory_bytes(), before);
  EXPECT_EQ(g.csr().indices.data_ptr(), turned.csc().indices.data_ptr());
}

TEST(Topology, degrees_count_parallel_edges_and_loops) {
  const Topology g = topology_of({0, 0, 1, 2, 0}, {1, 1, 1, 2, 0}, 4, 4);
  for (int built = 0; built < 2; ++built) {  // first counted from the edges, then read from indptr
    EXPECT_EQ(values(g.in_degrees()), Ids({1, 3, 1, 0}));
    EXPECT_EQ(values(g.out_degrees()), Ids({3, 1, 1, 0}));
    EXPECT_EQ(g.in_degrees().scalar_type(), at::kLong);
    g.csr();
    g.csc();
  }
}

TEST(Topology, factors_of_degrees_are_computed_once_in_float32_for_both_directions) {
  const Topology g =
      topology_of({0, 0, 1, 2, 0}, {1, 1, 1, 2, 0}, 4, 4);  // in 1 3 1 0, out 3 1 1 0
  const auto floats = at::device(g.device()).dtype(at::kFloat);
  const at::Tensor in = at::tensor({1, 3, 1, 1}, floats), out = at::tensor({3, 1, 1, 1}, floats);
  const auto inverse = DegreePower::kInverse, root = DegreePower::kInverseRoot;
  EXPECT_TRUE(at::equal(g.in_degree_factors(inverse, at::kFloat), in.reciprocal()));
  EXPECT_TRUE(at::equal(g.in_degree_factors(root, at::kFloat), in.rsqrt()));
  EXPECT_TRUE(at::equal(g.out_degree_factors(inverse, at::kFloat), out.reciprocal()));
  EXPECT_TRUE(at::equal(g.out_degree_factors(root, at::kFloat), out.rsqrt()));
  EXPECT_TRUE(at::equal(g.in_degree_factors(root, at::kDouble), in.to(at::kDouble).rsqrt()));
  const Topology turned = g.reverse();
  for (const DegreePower power : {inverse, root}) {
    const void* const first = g.in_degree_factors(power, at::kFloat).const_data_ptr();
    EXPECT_EQ(g.in_degree_factors(power, at::kFloat).const_data_ptr(), first);
    EXPECT_EQ(turned.out_degree_factors(power, at::kFloat).const_data_ptr(), first);
    EXPECT_TRUE(at::equal(turned.in_degree_factors(power, at::kFloat),
                          g.out_degree_factors(power, at::kFloat)));
  }
  EXPECT_ERROR("expecteddtypefloat32orfloat64,gotHalf", g.in_degree_factors(root, at::kHalf));
}

TEST(Topology, factors_of_degrees_count_as_memory_and_serve_training_after_inference) {
  const Topology g = unsorted();
  const std::int64_t before = g.memory_bytes();
  {
    const c10::InferenceMode inference;
    g.in_degree_factors(DegreePower::kInverseRoot, at::kFloat);
  }
  EXPECT_EQ(g.memory_bytes(), before + 2 * 4);
  EXPECT_FALSE(g.in_degree_factors(DegreePower::kInverseRoot, at::kFloat).is_inference());
  g.in_degree_factors(DegreePower::kInverseRoot, at::kDouble);
  EXPECT_EQ(g.memory_bytes(), before + 2 * 4);
}

TEST(Topology, knows_whether_some_destination_has_no_in_edge) {
  EXPECT_TRUE(four_nodes().has_zero_in_degree());
  const Topology star = in_star(3);
  EXPECT_FALSE(star.has_zero_in_degree());
  EXPECT_FALSE(star.reverse().has_zero_in_degree());
  const Topology one_way = topology_of({0, 0}, {0, 1}, 2, 2);
  EXPECT_FALSE(one_way.has_zero_in_degree());
  EXPECT_TRUE(one_way.reverse().has_zero_in_degree());
  EXPECT_FALSE(one_way.has_zero_in_degree());
}

TEST(Topology, moving_to_its_own_device_is_itself_and_to_a_device_it_cannot_use_an_error) {
  const Topology g = unsorted();
  EXPECT_TRUE(g.to(at::kCPU).is_same(g));
  EXPECT_FALSE(g.is_same(unsorted()));
  EXPECT_ERROR("Topology::to:expectedaCPUorCUDAdevice,gotmeta", g.to(at::kMeta));
  EXPECT_ERROR("CUDAdevices,gotcuda:100", g.to(at::Device(at::kCUDA, 100)));
}

TEST(Topology, on_cuda_has_the_same_arrays) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  for (const Topology& host : {unsorted(), unsorted().reverse()}) {
    const Topology moved = host.to(at::kCUDA);
    const Topology of_edges =
        Topology::from_coo(host.src().cuda(), host.dst().cuda(), host.num_src(), host.num_dst());
    const Topology rows = Topology::from_csc(host.csc().indptr.cuda(), host.csc().indices.cuda(),
                                             host.num_src(), host.csc().edge_ids.cuda());
    for (const Topology& g : {moved, of_edges, rows}) {
      EXPECT_TRUE(g.device().is_cuda());
      EXPECT_TRUE(g.to(at::kCUDA).is_same(g));
      EXPECT_TRUE(g.csc().indices.is_cuda());
      EXPECT_EQ(edges(g), edges(host));
      EXPECT_TRUE(g.in_degrees().is_cuda());
      EXPECT_EQ(values(g.in_degrees()), values(host.in_degrees()));
      EXPECT_EQ(g.has_zero_in_degree(), host.has_zero_in_degree());
      expect_formats(g);
      expect_formats(g.to(at::kCPU));
      EXPECT_TRUE(g.to(at::kCPU).device().is_cpu());
    }
  }
}

TEST(Topology, a_sample_remembers_the_degrees_of_its_parent) {
  const Topology g = unsorted();
  EXPECT_EQ(g.parent_in_degrees(), nullptr);
  EXPECT_EQ(g.parent_out_degrees(), nullptr);
  const at::Tensor in = ids({7, 8}), out = ids({4, 5, 6}).to(at::kInt);
  const Topology sample = g.with_parent_degrees(in, out);
  EXPECT_EQ(sample.parent_in_degrees()->data_ptr(), in.data_ptr());
  EXPECT_EQ(sample.parent_out_degrees()->data_ptr(), out.data_ptr());
  EXPECT_EQ(values(sample.in_degrees()), values(g.in_degrees()));
  EXPECT_EQ(sample.csc().indices.data_ptr(), g.csc().indices.data_ptr());
  EXPECT_EQ(g.parent_in_degrees(), nullptr);
  EXPECT_FALSE(sample.is_same(g));
  EXPECT_EQ(sample.to(at::kCPU).parent_in_degrees()->data_ptr(), in.data_ptr());

  const Topology turned = sample.reverse();
  EXPECT_EQ(turned.parent_in_degrees()->data_ptr(), out.data_ptr());
  EXPECT_EQ(turned.parent_out_degrees()->data_ptr(), in.data_ptr());
  EXPECT_EQ(g.reverse().parent_out_degrees(), nullptr);

  if (!at::hasCUDA()) return;
  const Topology moved = sample.to(at::kCUDA);
  EXPECT_TRUE(moved.parent_in_degrees()->is_cuda());
  EXPECT_EQ(values(*moved.parent_out_degrees()), Ids({4, 5, 6}));
}

TEST(Topology, degrees_of_a_parent_that_do_not_fit_are_errors) {
  const Topology g = unsorted();
  const at::Tensor in = ids({7, 8}), out = ids({4, 5, 6});
  const auto attempt = [&](const at::Tensor& in_degrees, const at::Tensor& out_degrees) {
    g.with_parent_degrees(in_degrees, out_degrees);
  };
  EXPECT_ERROR("expectedin_degreestobeint32orint64[2],gotint64[3]", attempt(out, out));
  EXPECT_ERROR("expectedout_degreestobeint32orint64[3],gotint64[2]", attempt(in, in));
  EXPECT_ERROR("expectedin_degrees", attempt({}, out));
  EXPECT_ERROR("expectedout_degrees", attempt(in, {}));
  EXPECT_ERROR("gotfloat32[2]", attempt(in.to(at::kFloat), out));
  EXPECT_ERROR("gotint64[2,1]", attempt(in.unsqueeze(1), out));
  EXPECT_ERROR("expectedin_degreesoncpu,gotmeta", attempt(in.to(at::kMeta), out));
}

TEST(Topology, of_trusted_rows_shares_them_and_is_like_any_other) {
  for (const NamedTopology& named : topologies()) {
    SCOPED_TRACE(named.name);
    const Topology& g = named.topology;
    for (const at::ScalarType dtype : {at::kInt, at::kLong}) {
      Adjacency rows = g.csc();
      rows.indices = rows.indices.to(dtype);
      if (rows.edge_ids.defined()) rows.edge_ids = rows.edge_ids.to(dtype);
      const Topology topology = mezzo::detail::topology_from_rows(rows, g.num_src(), g.num_dst());
      EXPECT_EQ(topology.csc().indices.data_ptr(), rows.indices.data_ptr());
      EXPECT_EQ(topology.id_dtype(), dtype);
      EXPECT_EQ(topology.num_src(), g.num_src());
      EXPECT_EQ(topology.num_dst(), g.num_dst());
      EXPECT_EQ(edges(topology), edges(g));
      EXPECT_EQ(values(topology.out_degrees()), values(g.out_degrees()));
      expect_formats(topology);
    }
  }
}

TEST(Topology, coordinates_that_are_wrong_are_errors_that_say_where) {
  struct Case {
    at::Tensor src, dst;
    std::int64_t num_src, num_dst;
    const char* text;
  };
  const at::Tensor good = ids({0, 1});
  const at::Tensor elsewhere = at::empty({2}, at::device(at::kMeta).dtype(at::kLong));
  const std::vector<Case> cases = {
      {{}, good, 2, 2, "expectedsrctobeanintegervector,gotanundefinedtensor"},
      {good, {}, 2, 2, "expecteddsttobeanintegervector,gotanundefinedtensor"},
      {good.to(at::kFloat), good, 2, 2, "expectedsrctobeanintegervector,gotfloat32[2]"},
      {good, good.to(at::kBool), 2, 2, "expecteddsttobeanintegervector,gotbool[2]"},
      {good.unsqueeze(1), good, 2, 2, "expectedsrctobeanintegervector,gotint64[2,1]"},
      {good.to_sparse(), good, 2, 2, "expectedsrctobeanintegervector,gotsparseint64[2]"},
      {good, ids({0}), 2, 2, "expecteddstoflength2,assrc,got1"},
      {good, elsewhere, 2, 2, "expecteddstoncpu,assrc,gotmeta"},
      {elsewhere, elsewhere, 2, 2, "expectedsrconaCPUorCUDAdevice,gotmeta"},
      {good, good, -1, 2, "expectednumbersofnodes>=0,got-1"},
      {ids({0, 2, 3}), ids({0, 0, 0}), 2, 2, "expectedsrcin[0,2),got2atposition1"},
      {good, ids({1, -1}), 2, 2, "expecteddstin[0,2),got-1atposition1"},
      {good, good, 2, 1, "expecteddstin[0,1),got1atposition1"},
      {good, ids({0, std::int64_t{1} << 32}), 2, 2, "expecteddstin[0,2),got4294967296atposition1"},
  };
  for (const Case& wrong : cases) {
    EXPECT_ERROR(std::string("from_coo:") + wrong.text,
                 Topology::from_coo(wrong.src, wrong.dst, wrong.num_src, wrong.num_dst));
  }
}

TEST(Topology, rows_that_are_wrong_are_errors_that_say_where) {
  struct Case {
    at::Tensor indptr, indices, edge_ids;
    std::int64_t num_others;
    const char* text;
  };
  const at::Tensor indptr = ids({0, 1, 3}), indices = ids({0, 1, 0});
  const at::Tensor elsewhere = at::empty({3}, at::device(at::kMeta).dtype(at::kLong));
  const std::vector<Case> cases = {
      {{}, indices, {}, 2, "expectedindptrtobeanintegervector,gotanundefinedtensor"},
      {ids({}), ids({}), {}, 2, "expectedindptrofatleastoneentry,gotnone"},
      {ids({1, 1, 3}), indices, {}, 2, "expectedindptrtobeginwith0,got1"},
      {ids({0, 2, 1, 3}), indices, {}, 2, "expectedindptrnevertofall,got1after2atposition2"},
      {ids({0, 1, 2}), indices, {}, 2, "expectedindptrtoendwith3,thenumberofindices,got2"},
      {ids({0, 9, 3}), indices, {}, 2, "expectedindptrnevertofall,got3after9atposition2"},
      {indptr, indices.to(at::kDouble), {}, 2, "expectedindicestobeanintegervector,gotfloat64[3]"},
      {indptr, elsewhere, {}, 2, "expectedindicesoncpu,asindptr,gotmeta"},
      {indptr, ids({0, 2, 0}), {}, 2, "expectedindicesin[0,2),got2atposition1"},
      {indptr, indices, {}, -3, "expectednumbersofnodes>=0,got-3"},
      {indptr, indices, ids({0, 1}), 2, "expectededge_idsoflength3,asindices,got2"},
      {indptr, indices, ids({0, 3, 1}), 2, "expectededge_idsin[0,3),got3atposition1"},
      {indptr, indices, ids({2, 0, 2}), 2, "apermutation,got2asecondtimeatposition2"},
      {indptr, indices, elsewhere, 2, "expectededge_idsoncpu,asindptr,gotmeta"},
  };
  for (const Case& wrong : cases) {
    EXPECT_ERROR(fragments("from_csr:", wrong.text),
                 Topology::from_csr(wrong.indptr, wrong.indices, wrong.num_others, wrong.edge_ids));
    EXPECT_ERROR(fragments("from_csc:", wrong.text),
                 Topology::from_csc(wrong.indptr, wrong.indices, wrong.num_others, wrong.edge_ids));
  }
}

}  // namespace
}  // namespace mezzo::test
