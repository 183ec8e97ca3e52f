#include "data/source/source_reader.h"

namespace mezzo::test {
namespace {

std::string format_npy(const std::string& format) {
  return npy("|S3", {}, format);
}

std::vector<std::int64_t> length_of(const auto& items) {
  return {static_cast<std::int64_t>(items.size())};
}

/// Four nodes; node 3 has no class.
class GraphSaintFolder : public SourceFolder {
 protected:
  GraphSaintFolder() {
    write("adj_full.npz", adjacency({0, 2, 2, 4, 4}, {1, 2, 0, 3}));
    write("feats.npy", npy("<f8", {4, 1}, raw_bytes(std::vector<double>{1, -2, 0.5, 4})));
    write("class_map.json", R"({"0": 7, "2": 5, "1": 5})");
    write("role.json", R"({"tr": [0, 3], "va": [2], "te": [1]})");
  }

  static std::string adjacency(const std::vector<std::int32_t>& indptr,
                               const std::vector<std::int32_t>& indices,
                               const std::string& format = "csr", std::int64_t columns = 4) {
    std::string values(indices.size(), '1');
    values[1] = '0';  // stored, but not an edge
    return zip_bytes({{"data.npy", npy_bool(length_of(values), values), 8},
                      {"format.npy", format_npy(format), 8},
                      {"indices.npy", npy_int32(length_of(indices), indices), 8},
                      {"indptr.npy", npy_int32(length_of(indptr), indptr), 8},
                      {"shape.npy", npy_int64({2}, {4, columns}), 8}});
  }
};

TEST_F(GraphSaintFolder, is_read_with_its_classes_counted_from_0) {
  const Dataset data = read();
  EXPECT_EQ(data.num_classes, 3);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 0}, {2, 3}}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, -2, 0.5F, 4}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{2, 0, 0, -1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 1, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 1, 0, 0}));
}

TEST_F(GraphSaintFolder, faults_are_io_errors_that_name_the_file) {
  EXPECT_TRUE(refused("adj_full.npz", adjacency({0, 2, 2, 4, 4}, {1, 2, 0, 4}), {"indices", "4"}));
  EXPECT_TRUE(refused("adj_full.npz", adjacency({0, 2, 1, 4, 4}, {1, 2, 0, 3}), {"decreases"}));
  EXPECT_TRUE(refused("adj_full.npz", adjacency({0, 2, 2, 3, 3}, {1, 2, 0, 3}), {"0 to 4"}));
  EXPECT_TRUE(refused("adj_full.npz", adjacency({0, 4}, {1, 2, 0, 3}), {"[4 + 1]"}));
  EXPECT_TRUE(refused("adj_full.npz", adjacency({0, 2, 2, 4, 4}, {1, 2, 0, 3}, "csc"), {"'csc'"}));
  EXPECT_TRUE(
      refused("adj_full.npz", adjacency({0, 2, 2, 4, 4}, {1, 2, 0, 3}, "csr", 5), {"[4, 5]"}));
  EXPECT_TRUE(refused("feats.npy", npy_float32({3, 1}, {1, 2, 3}), {"feats.npy", "[4, F]"}));
  EXPECT_TRUE(refused("class_map.json", "{", {"class_map.json", "JSON"}));
  EXPECT_TRUE(refused("class_map.json", R"({"4": 0})", {"class_map.json", "node 4"}));
  EXPECT_TRUE(refused("class_map.json", R"({"a": 0})", {"class_map.json", "node id"}));
  EXPECT_TRUE(refused("class_map.json", R"({"1": 1, "2": [0, 1]})", {"node 2", "not an integer"}));
  EXPECT_TRUE(refused("class_map.json", R"({"1": 0.5})", {"class_map.json", "not an integer"}));
  EXPECT_TRUE(refused("class_map.json", R"({"0": -9223372036854775807, "1": 9223372036854775807})",
                      {"class_map.json", "expected class ids that fit int64"}));
  EXPECT_TRUE(refused("class_map.json", R"({"0": 18446744073709551615})",
                      {"class_map.json", "not an integer of 64 bits"}));
  EXPECT_TRUE(refused("class_map.json", R"({"0": 1, "00": 2})", {"class_map.json", "node id"}));
  EXPECT_TRUE(refused("role.json", R"({"tr": [18446744073709551616], "va": [], "te": []})",
                      {"role.json", "'tr'"}));
  EXPECT_TRUE(refused("role.json", R"({"tr": [18446744073709551615], "va": [], "te": []})",
                      {"role.json", "'tr'"}));
  EXPECT_TRUE(refused("role.json", R"({"tr": [0], "va": [0], "te": []})", {"role.json", "node 0"}));
  EXPECT_TRUE(refused("role.json", R"({"tr": [9], "va": [], "te": []})", {"role.json", "node 9"}));
  EXPECT_TRUE(refused("role.json", R"({"tr": [0], "va": []})", {"role.json", "'te'"}));
  EXPECT_TRUE(missing("feats.npy"));
  EXPECT_TRUE(missing("class_map.json"));
  EXPECT_TRUE(missing("role.json"));
  EXPECT_THROWS(InvalidArgument, "split: 'x'", read({.split = "x"}));
}

class RedditFolder : public SourceFolder {
 protected:
  RedditFolder() {
    write("reddit_graph.npz", graph({0, 1, 2}, {1, 2, 0}));
    write("reddit_data.npz", nodes({1, 3, 2}, {0, 1, 1}));
  }

  static std::string graph(const std::vector<std::int32_t>& row,
                           const std::vector<std::int32_t>& col) {
    return npz_bytes({{"data", npy_int64(length_of(col), std::vector<std::int64_t>(col.size(), 1))},
                      {"format", format_npy("coo")},
                      {"row", npy_int32(length_of(row), row)},
                      {"col", npy_int32(length_of(col), col)},
                      {"shape", npy_int64({2}, {3, 3})}});
  }

  static std::string nodes(const std::vector<std::int64_t>& types,
                           const std::vector<std::int64_t>& labels,
                           const std::vector<std::int64_t>& shape_of_labels = {}) {
    const bool has_shape = !shape_of_labels.empty();
    return npz_bytes({{"feature", npy_float32({3, 2}, {1, 2, 3, 4, 5, 6})},
                      {"label", npy_int64(has_shape ? shape_of_labels : length_of(labels), labels)},
                      {"node_types", npy_int64(length_of(types), types)}});
  }
};

TEST_F(RedditFolder, is_read) {
  const Dataset data = read();
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 1, 0}));
}

TEST_F(RedditFolder, labels_may_be_a_column) {
  write("reddit_data.npz", nodes({1, 3, 2}, {0, 1, 1}, {3, 1}));
  const Dataset data = read();
  EXPECT_EQ(data.labels.dim(), 1);
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_TRUE(refused("reddit_data.npz", nodes({1, 3, 2}, {0, 1, 1}, {1, 3}), {"label", "[1, 3]"}));
  EXPECT_TRUE(refused("reddit_data.npz", nodes({1, 3, 2}, {0, 1, 1, 0, 1, 1}, {3, 2}),
                      {"label", "[3, 1]", "[3, 2]"}));
}

TEST_F(RedditFolder, faults_are_io_errors_that_name_the_array) {
  EXPECT_TRUE(refused("reddit_graph.npz", graph({0, 3}, {1, 2}), {"row", "item 1 is 3"}));
  EXPECT_TRUE(refused("reddit_graph.npz", graph({0, 1}, {1, -2}), {"col", "item 1 is -2"}));
  EXPECT_TRUE(refused("reddit_graph.npz", graph({0}, {1, 2}), {"row", "1 rows for 2 columns"}));
  EXPECT_TRUE(refused("reddit_data.npz", nodes({1, 3, 4}, {0, 1, 1}), {"node_types", "type 4"}));
  EXPECT_TRUE(refused("reddit_data.npz", nodes({1, 3, 2}, {0, 1}), {"label", "[3]"}));
  EXPECT_TRUE(refused("reddit_data.npz", nodes({1, 3, 2}, {0, 1, -1}), {"label", "negative"}));
  EXPECT_TRUE(missing("reddit_data.npz"));
}

TEST(FindFormat, needs_no_more_than_the_names_of_most_files) {
  const TempFolder folder;
  const auto name_of = [](const std::string& path) {
    const data::Format* const format = data::find_format(path);
    return std::string(format == nullptr ? "none" : format->name);
  };
  folder.write("empty/x", "");
  EXPECT_EQ(name_of(folder.path("empty")), "none");
  EXPECT_EQ(name_of(folder.path("none.txt")), "none");
  EXPECT_EQ(name_of(folder.write("a.txt.gz", "")), "SNAP edge list");
  EXPECT_EQ(name_of(folder.write("a.mtx", "")), "MatrixMarket file");
  folder.write("saint/adj_full.npz", "");
  EXPECT_EQ(name_of(folder.path("saint")), "GraphSAINT folder");
}

TEST(SourceOfDataset, hands_on_what_the_data_set_holds) {
  Dataset data;
  data.name = "path";
  data.num_nodes = 3;
  data.num_classes = 2;
  data.src = at::tensor({0, 1, 2}, at::kLong);
  data.dst = at::tensor({1, 2, 1}, at::kLong);
  data.features = at::tensor({0, 2, 0, 0, 5, 6}, at::kFloat).view({3, 2});
  data.labels = at::tensor({0, 1, 1}, at::kLong);
  data.train_masks = at::tensor({1, 0, 0}, at::kLong).to(at::kBool).unsqueeze(1);
  data.val_masks = at::tensor({0, 1, 0}, at::kLong).to(at::kBool).unsqueeze(1);
  data.test_masks = at::tensor({0, 0, 1}, at::kLong).to(at::kBool).unsqueeze(1);
  const auto copy_of = [](const Dataset& dataset) {
    Dataset copy = data::read_all(*data::source_of(dataset), {});
    copy.validate();
    return copy;
  };
  const Dataset dense = copy_of(data);
  EXPECT_EQ(edges_of(dense), edges_of(data));
  EXPECT_TRUE(at::equal(dense.features, data.features));
  EXPECT_TRUE(at::equal(dense.labels, data.labels));
  EXPECT_TRUE(at::equal(dense.val_masks, data.val_masks));

  data.src = data.dst = at::Tensor();
  data.indptr = at::tensor({0, 0, 2, 3}, at::kLong);
  data.indices = at::tensor({0, 2, 1}, at::kInt);
  EXPECT_EQ(edges_of(copy_of(data)), (Edges{{0, 1}, {2, 1}, {1, 2}}));
}

}  // namespace
}  // namespace mezzo::test
