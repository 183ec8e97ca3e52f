
#include "mezzo/data/parts.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/subgraphs/partition.h"

#include "support/graphs.h"
#include "support/npy_writer.h"
#include "support/tensors.h"
#include "support/tolerance.h"

/// Parts of a data set with their halos: their contents, and that samplers draw the same in a part
/// as in the whole.
namespace mezzo::test {
namespace {

const CpuOnlySuite kHaloOnCpu("Halo", "sampling on the CPU");
const CpuOnlySuite kHaloTestOnCpu("HaloTest", "sampling on the CPU");

/// Rows with ascending sources, every third node in each mask. Edge i leads from src[i] to dst[i].
Dataset data_set(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes,
                 at::ScalarType id_dtype = at::kInt) {
  Dataset data;
  data.name = "whole";
  data.origin = "whole";
  data.num_nodes = num_nodes;
  data.num_classes = 2;
  const at::Tensor order = at::argsort(dst * num_nodes + src);
  data.indices = src.index_select(0, order).to(id_dtype);
  data.indptr = at::zeros({num_nodes + 1}, at::kLong);
  data.indptr.narrow(0, 1, num_nodes).copy_(at::bincount(dst, {}, num_nodes).cumsum(0));
  const at::Tensor nodes = at::arange(num_nodes, at::kLong);
  data.features = at::stack({nodes, nodes * 2}, 1).to(at::kFloat);
  data.labels = nodes.remainder(2);
  data.train_masks = nodes.remainder(3).eq(0).unsqueeze(1);
  data.val_masks = nodes.remainder(3).eq(1).unsqueeze(1);
  data.test_masks = nodes.remainder(3).eq(2).unsqueeze(1);
  data.validate();
  return data;
}

/// A graph with self loops and parallel edges.
Dataset power_law_set(at::ScalarType id_dtype = at::kInt) {
  constexpr std::int64_t kNodes = 600;
  const Topology graph = power_law_graph(kNodes, 3000, 5).topology();
  return data_set(graph.src().to(at::kLong), graph.dst().to(at::kLong), kNodes, id_dtype);
}

/// 0 -> 1 -> 2 -> 3 -> 4, and a self loop on 1.
Dataset path_set() {
  return data_set(ids({0, 1, 1, 2, 3}), ids({1, 1, 2, 3, 4}), 5);
}

Dataset load_part(const TempFolder& folder, std::int64_t index) {
  return load_dataset(folder.path("parts") + "/part" + std::to_string(index));
}

void expect_same_blocks(const Blocks& drawn, const Blocks& expected, const at::Tensor& node_ids) {
  ASSERT_EQ(drawn.size(), expected.size());
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Block &block = drawn[i], &whole = expected[i];
    EXPECT_EQ(values(node_ids.index_select(0, block.src_nodes())), values(whole.src_nodes()));
    EXPECT_EQ(values(block.topology().csc().indptr), values(whole.topology().csc().indptr));
    EXPECT_EQ(values(block.topology().src()), values(whole.topology().src()));
    EXPECT_EQ(values(*block.topology().parent_in_degrees()),
              values(*whole.topology().parent_in_degrees()));
    EXPECT_EQ(values(*block.topology().parent_out_degrees()),
              values(*whole.topology().parent_out_degrees()));
    ASSERT_EQ(block.edata().contains("edge_weights"), whole.edata().contains("edge_weights"));
    if (whole.edata().contains("edge_weights")) {
      EXPECT_TRUE(same_bits(block.edata().at("edge_weights"), whole.edata().at("edge_weights")));
    }
  }
}

TEST(Halo, blocks_drawn_in_a_part_are_those_of_the_whole) {
  const std::vector<BlockSampler::Options> draws = {
      {.fanouts = {kAllNeighbors, kAllNeighbors}},
      {.fanouts = {3, 2}},
      {.fanouts = {4, 4}, .replace = true},
      {.fanouts = {40, 30}},
      {.fanouts = {3, 3}, .draw = NeighborDraw::kLabor},
      {.fanouts = {3, 3}, .draw = NeighborDraw::kLabor, .layer_dependency = true},
  };
  for (const at::ScalarType id_dtype : {at::kInt, at::kLong}) {
    const TempFolder folder;
    const Dataset whole = power_law_set(id_dtype);
    const Topology graph = mezzo::topology_of(whole);
    constexpr std::int64_t kParts = 3;
    write_parts(whole, metis_partition(graph, kParts), folder.path("parts"), {.hops = 2});
    Workspace workspace;
    for (std::int64_t index = 0; index < kParts; ++index) {
      const Dataset part = load_part(folder, index);
      ASSERT_TRUE(part.part);
      ASSERT_LT(part.num_nodes, whole.num_nodes);
      const at::Tensor& node_ids = part.part->node_ids;
      const at::Tensor seeds = part.part->own_mask.nonzero().squeeze(1).flip(0);
      for (BlockSampler::Options options : draws) {
        options.parent_degrees = true;
        BlockSampler::Options named = options;
        named.node_ids = node_ids;
        const BatchKey key{.seed = 3, .epoch = 1, .batch = index};
        expect_same_blocks(
            BlockSampler(mezzo::topology_of(part), named).sample(seeds, key, workspace),
            BlockSampler(graph, options).sample(node_ids.index_select(0, seeds), key, workspace),
            node_ids);
      }
    }
  }
}

class HaloTest : public testing::Test {
 protected:
  const TempFolder folder;
};

TEST_F(HaloTest, loaders_on_a_part_give_the_features_of_the_whole) {
  const Dataset whole = power_law_set();
  const Graph graph = Graph::from_dataset(whole);
  write_parts(whole, metis_partition(graph, 2), folder.path("parts"), {.hops = 2});
  const Graph part = Graph::from_dataset(load_part(folder, 1));
  const at::Tensor& node_ids = part.ndata().at("node_id");
  const at::Tensor seeds = part.ndata().at("own_mask").nonzero().squeeze(1);
  BlockLoaderOptions options{.fanouts = {2, 3}, .batch_size = 50, .shuffle = true};
  options.features = {"feat"};
  options.draw = NeighborDraw::kLabor;
  BlockLoader expected(graph, node_ids.index_select(0, seeds), options);
  options.node_ids = "node_id";
  BlockLoader drawn(part, seeds, options);
  auto other = expected.begin();
  for (const Batch& batch : drawn) {
    EXPECT_EQ(values(node_ids.index_select(0, batch.input_nodes)), values((*other).input_nodes));
    EXPECT_TRUE(same_bits(batch.features("feat"), (*other).features("feat")));
    ++other;
  }
}

TEST_F(HaloTest, a_part_holds_its_nodes_and_those_that_reach_them) {
  const PartsReport report =
      write_parts(path_set(), ids({0, 0, 1, 1, 1}), folder.path("parts"), {.hops = 1});
  EXPECT_EQ(report.edge_cut, 1);
  EXPECT_EQ(report.replication(), 6.0 / 5);
  ASSERT_EQ(report.parts.size(), 2U);
  EXPECT_EQ(report.parts[0].halo_nodes, 0);
  EXPECT_EQ(report.parts[1].own_nodes, 3);
  EXPECT_EQ(report.parts[1].halo_nodes, 1);
  const Dataset part = load_part(folder, 1);
  EXPECT_EQ(part.name, "whole");
  EXPECT_TRUE(part.is_mapped);
  EXPECT_EQ(values(part.indptr), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(part.indices),
            (Ids{0, 0, 1, 2}));  // node 1, `hops` edges away, has only its self loop
  EXPECT_EQ(values(part.features.select(1, 0)), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(values(part.labels), (Ids{1, 0, 1, 0}));
  EXPECT_EQ(values(part.train_masks.select(1, 0)), (Ids{0, 0, 1, 0}));
  EXPECT_EQ(values(part.val_masks.select(1, 0)), (Ids{0, 0, 0, 1}));
  EXPECT_EQ(values(part.test_masks.select(1, 0)), (Ids{0, 1, 0, 0}));
  ASSERT_TRUE(part.part);
  EXPECT_EQ(part.part->index, 1);
  EXPECT_EQ(part.part->num_parts, 2);
  EXPECT_EQ(part.part->hops, 1);
  EXPECT_EQ(part.part->num_nodes, 5);
  EXPECT_EQ(part.part->num_edges, 5);
  EXPECT_EQ(values(part.part->node_ids), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(values(part.part->own_mask), (Ids{0, 1, 1, 1}));
  EXPECT_EQ(values(part.part->in_degrees), (Ids{2, 1, 1, 1}));
  EXPECT_EQ(values(part.part->out_degrees), (Ids{2, 1, 1, 0}));
}

TEST_F(HaloTest, a_further_hop_completes_the_rows_of_the_former_rim) {
  write_parts(path_set(), ids({0, 0, 1, 1, 1}), folder.path("parts"), {.hops = 2});
  const Dataset part = load_part(folder, 1);
  EXPECT_EQ(values(part.part->node_ids), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(part.indptr), (Ids{0, 0, 2, 3, 4, 5}));
}

TEST_F(HaloTest, sparse_features_and_edge_lists_become_parts_too) {
  Dataset whole = path_set();
  whole.src = ids({3, 2, 1, 1, 0});
  whole.dst = ids({4, 3, 2, 1, 1});
  whole.indptr = whole.indices = at::Tensor();
  whole.features = whole.features.to_sparse_csr();
  write_parts(whole, ids({0, 0, 1, 1, 1}), folder.path("parts"), {.hops = 1});
  const Dataset part = load_part(folder, 1);
  EXPECT_EQ(values(part.indices), (Ids{0, 0, 1, 2}));
  EXPECT_EQ(part.features.layout(), at::kSparseCsr);
  EXPECT_TRUE(at::equal(part.features.to_dense(), whole.features.to_dense().narrow(0, 1, 4)));
}

TEST_F(HaloTest, the_rows_of_a_part_remember_the_degrees_of_the_whole) {
  const Dataset whole = power_law_set();
  const Topology graph = mezzo::topology_of(whole);
  write_parts(whole, metis_partition(graph, 2), folder.path("parts"), {.hops = 1});
  const Dataset part = load_part(folder, 0);
  const Topology topology = mezzo::topology_of(part);
  ASSERT_NE(topology.parent_in_degrees(), nullptr);
  const at::Tensor& node_ids = part.part->node_ids;
  EXPECT_TRUE(
      at::equal(*topology.parent_in_degrees(), graph.in_degrees().index_select(0, node_ids)));
  EXPECT_TRUE(
      at::equal(*topology.parent_out_degrees(), graph.out_degrees().index_select(0, node_ids)));
}

TEST_F(HaloTest, the_folder_of_parts_gives_each_process_its_own) {
  const std::string parts = folder.path("parts");
  write_parts(path_set(), ids({0, 0, 1, 1, 1}), parts, {.hops = 1});
  EXPECT_EQ(part_for_rank(parts, 1, 2), parts + "/part1");
  EXPECT_EQ(part_for_rank("wordnet", 1, 2), "wordnet");
  EXPECT_THROWS(InvalidArgument, fragments("has 2 parts", "there are 3"),
                part_for_rank(parts, 0, 3));
  EXPECT_THROWS(InvalidArgument, fragments("name one", "part0"), load_dataset(parts));
  folder.write("parts/partition.json", R"({"format": "mezzo parts", "version": 1, "parts": [7]})");
  EXPECT_THROWS(IoError, "without 'folder'", part_for_rank(parts, 0, 1));
  folder.write("parts/partition.json", "{");
  EXPECT_THROWS(IoError, "partition.json", part_for_rank(parts, 0, 1));
}

TEST_F(HaloTest, a_folder_of_parts_is_replaced_only_where_that_is_asked_for) {
  const std::string parts = folder.path("parts");
  const at::Tensor two = ids({0, 0, 1, 1, 1});
  write_parts(path_set(), two, parts);
  EXPECT_THROWS(InvalidArgument, "exists", write_parts(path_set(), two, parts));
  write_parts(path_set(), at::zeros({5}, at::kLong), parts, {.overwrite = true});
  EXPECT_FALSE(std::filesystem::exists(parts + "/part1"));
  const PartsReport stopped =
      write_parts(path_set(), two, folder.path("other"), {.should_stop = [] { return true; }});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_FALSE(std::filesystem::exists(folder.path("other")));
}

TEST_F(HaloTest, what_is_not_all_parts_is_never_replaced) {
  const std::string parts = folder.path("parts");
  const at::Tensor two = ids({0, 0, 1, 1, 1});
  write_parts(path_set(), two, parts);
  const auto refused = [&](const std::string& output, const std::string& fault) {
    return throws<InvalidArgument>(
        [&] { write_parts(path_set(), two, output, {.overwrite = true}); }, {output, fault});
  };
  EXPECT_TRUE(refused(parts + "/part0", "is no folder of parts, which alone can be overwritten"));
  EXPECT_TRUE(std::filesystem::exists(parts + "/part0/mezzo.json"));
  for (const std::string mine : {"diary.txt", "part1/diary.txt"}) {
    const std::string path = folder.write("parts/" + mine, "dear diary");
    EXPECT_TRUE(refused(parts, "holds 'diary.txt', which its"));
    EXPECT_TRUE(std::filesystem::exists(path));
    folder.remove("parts/" + mine);
  }
}

TEST_F(HaloTest, parts_never_replace_the_folder_that_has_their_whole) {
  const std::string parts = folder.path("parts"), whole = parts + "/part0";
  write_parts(path_set(), at::zeros({5}, at::kLong), parts);
  Dataset source = path_set();
  source.origin = whole;
  EXPECT_THROWS(InvalidArgument, fragments(parts, "holds the data set " + whole),
                write_parts(source, ids({0, 0, 1, 1, 1}), parts, {.overwrite = true}));
  EXPECT_TRUE(std::filesystem::exists(whole + "/mezzo.json"));
}

TEST_F(HaloTest, damaged_parts_are_refused) {
  write_parts(path_set(), ids({0, 0, 1, 1, 1}), folder.path("parts"), {.hops = 1});
  const auto refused = [&](const std::string& file, const std::string& bytes,
                           const std::string& fault) {
    const std::string path = folder.path("parts/part1/" + file), original = folder.path("kept");
    std::filesystem::rename(path, original);
    folder.write("parts/part1/" + file, bytes);
    const auto result = throws<IoError>([&] { load_part(folder, 1); }, {fault});
    std::filesystem::rename(original, path);
    return result;
  };
  EXPECT_TRUE(refused("node_ids.npy", npy_int64({4}, {1, 3, 2, 4}), "node_ids do not ascend"));
  EXPECT_TRUE(refused("node_ids.npy", npy_int64({4}, {1, 2, 3, 5}), "outside [0, 5)"));
  EXPECT_TRUE(refused("in_degrees.npy", npy_int64({4}, {2, 1, 1, 2}), "in_degrees"));
  EXPECT_TRUE(refused("own_mask.npy", npy_bool({3}, "011"), "own_mask"));
  EXPECT_TRUE(refused("own_mask.npy", npy_bool({4}, "0011"), "a node of the halo"));
}

TEST_F(HaloTest, impossible_parts_name_the_option) {
  const std::string out = folder.path("out");
  const auto refused = [&](const at::Tensor& parts, const PartsOptions& options,
                           const std::string& text) {
    return throws<InvalidArgument>([&] { write_parts(path_set(), parts, out, options); }, {text});
  };
  const at::Tensor two = ids({0, 0, 1, 1, 1});
  EXPECT_TRUE(refused(two, {.hops = 0}, "hops: expected 1 to"));
  EXPECT_TRUE(refused(ids({0, 1}), {}, "parts: expected int64 [5]"));
  EXPECT_TRUE(refused(two.to(at::kInt), {}, "parts: expected int64 [5]"));
  EXPECT_TRUE(refused(ids({0, 0, 2, 2, 2}), {}, "part 1 has none"));
  EXPECT_TRUE(refused(ids({0, 0, -1, 1, 1}), {}, "at least 0"));
  EXPECT_TRUE(refused(ids({0, 0, 9, 1, 1}), {}, "at most 5"));
  EXPECT_FALSE(std::filesystem::exists(out));
  write_parts(path_set(), two, out);
  const Dataset part = load_dataset(out + "/part0");
  EXPECT_THROWS(InvalidArgument, "is a part of a data set already",
                write_parts(part, at::zeros({part.num_nodes}, at::kLong), folder.path("again")));
}

TEST(Halo, names_of_nodes_that_do_not_fit_are_refused) {
  const Topology graph = four_nodes();
  EXPECT_THROWS(InvalidArgument, "node_ids",
                BlockSampler(graph, {.fanouts = {1}, .node_ids = ids({1, 2})}));
}

}  // namespace
}  // namespace mezzo::test
