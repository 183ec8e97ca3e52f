#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "data/pickle/pickle_writer.h"

namespace mezzo::test {
namespace {
namespace p = mezzo::test::pickle;

/// Six nodes: 0 to 2 in allx (0 trains), tests 5 and 3 in this order, and 4, which test.index
/// omits.
class Planetoid : public testing::Test {
 protected:
  Planetoid() {
    write("allx", p::csr({3, 2, {0, 1, 2, 3}, {0, 1, 0}, {1, 2, 3}}));
    write("tx", p::csr({2, 2, {0, 1, 3}, {1, 0, 1}, {4, 5, 6}}));
    write("ally", p::int32_array({3, 2}, {1, 0, 0, 1, 1, 0}));
    write("ty", p::int32_array({2, 2}, {0, 1, 1, 0}));
    write("y", p::int32_array({1, 2}, {1, 0}));
    write("graph", p::graph({{1, 1, 0}, {0}, {5}, {2}, {}, {2}}));
    folder_.write("ind.tiny.test.index", "5\n3\n");
  }

  void write(const std::string& part, const std::string& value) const {
    folder_.write("ind.tiny." + part, p::file(value));
  }

  testing::AssertionResult refused(const std::string& blamed, const std::string& fault) const {
    return throws<IoError>([&] { load_dataset(folder_.path()); },
                           {folder_.path("ind.tiny." + blamed), fault});
  }

  testing::AssertionResult part_refused(const std::string& part, const std::string& value,
                                        const std::string& fault) const {
    write(part, value);
    return refused(part, fault);
  }

  TempFolder folder_;
};

TEST_F(Planetoid, test_rows_go_where_test_index_says_and_gaps_stay_empty) {
  const Dataset data = load_dataset(folder_.path());
  EXPECT_EQ(data.name, "tiny");
  EXPECT_EQ(data.num_nodes, 6);
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(data.features.layout(), at::kSparseCsr);
  EXPECT_TRUE(at::equal(
      data.features.to_dense(),
      at::tensor({1.F, 0.F, 0.F, 2.F, 3.F, 0.F, 5.F, 6.F, 0.F, 0.F, 0.F, 4.F}).view({6, 2})));
  EXPECT_TRUE(at::equal(data.labels, at::tensor({0, 1, 0, 0, 0, 1}, at::kLong)));
  const SplitMasks masks = data.split(0);
  EXPECT_TRUE(at::equal(masks.train, at::tensor({1, 0, 0, 0, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(masks.val, at::tensor({0, 1, 1, 0, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(masks.test, at::tensor({0, 0, 0, 1, 0, 1}).to(at::kBool)));
}

TEST_F(Planetoid, edges_are_undirected_without_loops_and_repeats) {
  const Dataset data = load_dataset(folder_.path());
  EXPECT_TRUE(at::equal(data.src, at::tensor({0, 1, 2, 2, 3, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst, at::tensor({1, 0, 3, 5, 2, 2}, at::kLong)));
}

TEST_F(Planetoid, a_folder_of_several_sets_asks_for_one) {
  folder_.write("ind.other.graph", "");
  EXPECT_THROWS(InvalidArgument, "other, tiny", load_dataset(folder_.path()));
  EXPECT_EQ(load_dataset(folder_.path("ind.tiny")).num_nodes, 6);
  EXPECT_THROWS(IoError, "ind.none: no such file or folder",
                load_dataset(folder_.path("ind.none")));
}

TEST_F(Planetoid, has_no_named_splits) {
  EXPECT_THROWS(InvalidArgument, "'public' is not a split of",
                load_dataset(folder_.path(), {.split = "public"}));
}

TEST_F(Planetoid, each_missing_part_is_an_io_error) {
  for (const char* part : {"allx", "tx", "ally", "ty", "y", "test.index"}) {
    const std::string path = folder_.path("ind.tiny." + std::string(part));
    std::filesystem::rename(path, path + ".away");
    EXPECT_TRUE(refused(part, "no such file"));
    std::filesystem::rename(path + ".away", path);
  }
}

TEST_F(Planetoid, each_part_refuses_other_programs) {
  for (const char* part : {"allx", "tx", "ally", "ty", "y", "graph"}) {
    const TempFolder copy;
    std::filesystem::copy(folder_.path(), copy.path());
    copy.write("ind.tiny." + std::string(part), p::file(p::name("os", "system")));
    EXPECT_THROWS(IoError, fragments(copy.path("ind.tiny." + std::string(part)), "'os.system'"),
                  load_dataset(copy.path()));
  }
}

TEST_F(Planetoid, feature_parts_that_contradict_each_other) {
  EXPECT_TRUE(part_refused("tx", p::csr({2, 3, {0, 0, 0}, {}, {}}), "3 features, allx has 2"));
  write("tx", p::csr({1, 2, {0, 0}, {}, {}}));
  EXPECT_TRUE(refused("ty", "expected [1, 2]"));
}

TEST_F(Planetoid, label_parts_that_contradict_each_other) {
  EXPECT_TRUE(part_refused("y", p::int32_array({1, 2}, {0, 1}), "not the first rows of ally"));
  EXPECT_TRUE(part_refused("y", p::int32_array({4, 2}, {1, 0, 0, 1, 1, 0, 0, 1}), "first rows"));
  EXPECT_TRUE(part_refused("ty", p::int32_array({1, 2}, {0, 1}), "expected [2, 2]"));
  EXPECT_TRUE(part_refused("ally", p::int32_array({2, 2}, {1, 0, 0, 1}), "2 rows, allx has 3"));
}

TEST_F(Planetoid, labels_that_are_not_one_hot) {
  EXPECT_TRUE(part_refused("ally", p::int32_array({3, 2}, {1, 1, 0, 1, 1, 0}), "at most one 1"));
  EXPECT_TRUE(part_refused("ally", p::int32_array({3, 2}, {2, 0, 0, 1, 1, 0}), "at most one 1"));
  EXPECT_TRUE(part_refused("ally", p::int32_array({3}, {1, 0, 1}), "expected shape [rows, C]"));
  EXPECT_TRUE(part_refused("ally", p::float32_array({1}), "expected integers"));
}

TEST_F(Planetoid, test_ids_are_checked) {
  const auto bad = [&](const std::string& text, const std::string& fault) {
    folder_.write("ind.tiny.test.index", text);
    return refused("test.index", fault);
  };
  EXPECT_TRUE(bad("5\n", "1 ids for the 2 rows of tx"));
  EXPECT_TRUE(bad("5\n5\n", "node 5 occurs twice"));
  EXPECT_TRUE(bad("5\n2\n", "node 2 is one of the 3 rows of allx"));
  EXPECT_TRUE(bad("5\n4000000000000\n", "beyond the 11 nodes"));
  EXPECT_TRUE(bad("5\n-3\n", "node -3"));
  EXPECT_TRUE(bad("5\nthree\n", "expected one node id a line, after 1 ids"));
  EXPECT_TRUE(bad("5\n3.5\n", "expected one node id a line"));
  EXPECT_TRUE(bad("5\n99999999999999999999\n", "expected one node id a line"));
}

TEST_F(Planetoid, neighbours_outside_the_nodes) {
  EXPECT_TRUE(part_refused("graph", p::graph({{6}, {}, {}}), "node 0 to node 6, outside [0, 6)"));
  EXPECT_TRUE(part_refused("graph", p::graph({{-1}, {}, {}}), "outside [0, 6)"));
}

}  // namespace
}  // namespace mezzo::test
