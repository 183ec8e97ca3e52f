#include <limits>

#include "mezzo/data/convert.h"

#include "data/source/source_reader.h"

namespace mezzo::test {
namespace {

/// Four nodes and three edges; node 3 has no label.
class OgbFolder : public SourceFolder {
 protected:
  OgbFolder() { write_text("set"); }

  void write_text(const std::string& name) const {
    const auto write_packed = [&](const std::string& file, const std::string& text) {
      folder_.write(name + "/" + file + ".csv.gz", gzip(text));
    };
    write_packed("raw/num-node-list", "4\n");
    write_packed("raw/num-edge-list", "3\n");
    write_packed("raw/edge", "0,1\n2,1\n3,3\n");
    write_packed("raw/node-feat", "1,2\n3.5,-4\n5,6\n7,8e-1\n");
    write_packed("raw/node-label", "2\n0.0\n1\nnan\n");
    write_packed("split/time/train", "0\n3\n");
    write_packed("split/time/valid", "1\n");
    write_packed("split/time/test", "2\n");
  }
};

TEST_F(OgbFolder, text_files_are_read) {
  const Dataset data = read();
  EXPECT_EQ(data.name, "set");
  EXPECT_EQ(data.num_nodes, 4);
  EXPECT_EQ(data.num_classes, 3);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 1}, {3, 3}}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3.5F, -4, 5, 6, 7, 0.8F}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{2, 0, 1, -1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 1, 0}));
}

TEST_F(OgbFolder, proteins_and_products_get_the_inverse_of_each_edge) {
  const Edges both = {{0, 1}, {1, 0}, {2, 1}, {1, 2}, {3, 3}, {3, 3}};
  for (const char* name : {"ogbn_products", "ogbn-proteins", "ogbn_products_dgl",
                           "ogbn_proteins_pyg", "products", "proteins"}) {
    write_text(name);
    EXPECT_EQ(edges_of(read_source(folder_.path(name))), both) << name;
    EXPECT_EQ(edges_of(read_source(folder_.path(name) + "/")), both) << name;
  }
  write_text("ogbn_arxiv");
  EXPECT_EQ(edges_of(read_source(folder_.path("ogbn_arxiv"))).size(), 3U);
}

TEST_F(OgbFolder, proteins_and_products_are_known_by_where_they_lie_too) {
  namespace fs = std::filesystem;
  const Edges both = {{0, 1}, {1, 0}, {2, 1}, {1, 2}, {3, 3}, {3, 3}};
  write_text("ogbn_products");
  fs::create_symlink("ogbn_products", folder_.path("link"));
  EXPECT_EQ(edges_of(read_source(folder_.path("link"))), both);
  fs::create_symlink("set", folder_.path("products"));
  EXPECT_EQ(edges_of(read_source(folder_.path("products"))), both);
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path("ogbn_products"));
  const Dataset here = read_source(".");
  fs::current_path(before);
  EXPECT_EQ(here.name, "ogbn_products");
  EXPECT_EQ(edges_of(here), both);
}

TEST_F(OgbFolder, a_conversion_finds_faults_of_labels_and_splits_before_it_reads_edges) {
  const auto refused_at_once = [&](const std::string& fault) {
    bool read_edges = false;
    const auto watch = [&](const ConvertProgress& progress) {
      read_edges = read_edges || progress.stage == "counting edges";
    };
    testing::AssertionResult result = throws<IoError>(
        [&] { convert_dataset(root(), folder_.path("out"), {.on_progress = watch}); }, {fault});
    if (read_edges) return testing::AssertionFailure() << "the edges were read";
    return result;
  };
  folder_.remove("set/split/time/test.csv.gz");
  EXPECT_TRUE(refused_at_once("test.csv.gz: no such file"));
  write("raw/node-label.csv.gz", gzip("0,1\n1,0\n1,2\n0,0\n"));
  EXPECT_TRUE(refused_at_once("label 2 among several"));
}

TEST_F(OgbFolder, features_may_be_missing) {
  folder_.remove("set/raw/node-feat.csv.gz");
  EXPECT_EQ(read().num_features(), 0);
}

TEST_F(OgbFolder, the_split_is_the_only_one_or_the_one_that_is_named) {
  for (const char* role : {"train", "valid", "test"}) {
    write(fmt::format("split/rank/{}.csv.gz", role),
          gzip(*role == 't' && role[1] == 'r' ? "1\n" : ""));
  }
  EXPECT_THROWS(InvalidArgument, fragments("split", "'rank', 'time'"), read());
  EXPECT_THROWS(InvalidArgument, "split: 'x'", read({.split = "x"}));
  EXPECT_EQ(integers_of(read({.split = "rank"}).train_masks),
            (std::vector<std::int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(read({.split = "rank"}).split_names, (std::vector<std::string>{"rank", "time"}));
  EXPECT_EQ(integers_of(read({.split = "time"}).train_masks),
            (std::vector<std::int64_t>{1, 0, 0, 0}));
}

TEST_F(OgbFolder, without_a_split_one_is_drawn_if_every_node_has_a_label) {
  folder_.remove("set/split");
  EXPECT_THROWS(IoError, "node 3 has no label", read());
  write("raw/node-label.csv.gz", gzip("2\n0\n1\n1\n"));
  EXPECT_EQ(read().split(0).train.sum().item<std::int64_t>(), 2);
  EXPECT_THROWS(InvalidArgument, "split: 'time'", read({.split = "time"}));
}

TEST_F(OgbFolder, faults_of_text_files_are_io_errors_with_their_line) {
  const auto bad = [&](const std::string& file, const std::string& text, const std::string& fault) {
    return refused(file + ".csv.gz", gzip(text), {file + ".csv.gz:", fault});
  };
  EXPECT_TRUE(bad("raw/num-node-list", "4\n5\n", "several graphs"));
  EXPECT_TRUE(bad("raw/num-node-list", "four\n", "'four' is not an integer"));
  EXPECT_TRUE(refused("raw/num-edge-list.csv.gz", gzip("2\n"), {"edge.csv.gz:3: more lines"}));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1\n", "2: the file ends after 2 lines, expected 3"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1\n3,3\n0,0\n", "4: more lines than the 3"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,4\n3,3\n", "2: edge from 2 to 4, outside [0, 4)"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1,7\n3,3\n", "2: expected two node ids, got 3"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,x\n3,3\n", "2: 'x' is not an integer"));
  EXPECT_TRUE(bad("raw/node-feat", "1,2\n3\n5,6\n7,8\n", "2: 1 columns, the first line has 2"));
  EXPECT_TRUE(bad("raw/node-feat", "1,2\n3,nan\n5,6\n7,8\n", "2: feature nan"));
  EXPECT_TRUE(bad("raw/node-feat", "1,2\n", "ends after 1 lines, expected 4"));
  EXPECT_TRUE(bad("raw/node-label", "1\n1,1\n0\n0\n", "2: 2 labels, the first line has 1"));
  EXPECT_TRUE(bad("raw/node-label", "1\n-1\n0\n0\n", "2: label -1"));
  EXPECT_TRUE(bad("split/time/train", "0\n4\n", "2: node 4 is outside [0, 4)"));
  EXPECT_TRUE(bad("split/time/valid", "0\n", "1: node 0 is already in the split, as train"));
  const std::string packed = gzip("0,1\n2,1\n3,3\n");
  EXPECT_TRUE(refused("raw/edge.csv.gz", packed.substr(0, packed.size() - 3),
                      {"edge.csv.gz", "truncated"}));
  for (const char* file : {"raw/num-node-list", "raw/node-label", "split/time/test"}) {
    EXPECT_TRUE(missing(std::string(file) + ".csv.gz"));
  }
}

TEST_F(OgbFolder, graphs_of_several_types_and_splits_of_pytorch_are_refused) {
  write("split/time/split_dict.pt", "");
  folder_.remove("set/split/time/train.csv.gz");
  EXPECT_THROWS(IoError, fragments("split_dict.pt", "not read"), read());
  write("raw/triplet-type-list.csv.gz", "");
  EXPECT_THROWS(IoError, "several node or edge types", read());
}

class OgbBinaryFolder : public SourceFolder {
 protected:
  OgbBinaryFolder() {
    write("raw/data.npz", arrays("4", {0, 2, 3, 1, 1, 3}));
    write("raw/node-label.npz", labels({4, 1}, {2, 0, 1, std::numeric_limits<float>::quiet_NaN()}));
    write("split/time/train.csv.gz", gzip("0\n3\n"));
    write("split/time/valid.csv.gz", gzip("1\n"));
    write("split/time/test.csv.gz", gzip("2\n"));
  }

  static std::string arrays(const std::string& num_nodes, const std::vector<std::int64_t>& edges) {
    const std::vector<float> features = {1, 2, 3.5F, -4, 5, 6, 7, 8};
    return zip_bytes({{"edge_index.npy", npy_int64({2, 3}, edges), 8},
                      {"node_feat.npy", npy_float32({4, 2}, features), 8},
                      {"num_nodes_list.npy", npy_int64({1}, {std::stoll(num_nodes)})},
                      {"num_edges_list.npy", npy_int64({1}, {3})}});
  }

  static std::string labels(const std::vector<std::int64_t>& shape,
                            const std::vector<float>& items) {
    return npz_bytes({{"node_label", npy_float32(shape, items)}});
  }
};

TEST_F(OgbBinaryFolder, is_read_as_the_text_form_is) {
  const Dataset data = read();
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 1}, {3, 3}}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3.5F, -4, 5, 6, 7, 8}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{2, 0, 1, -1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
}

TEST_F(OgbBinaryFolder, faults_are_io_errors_with_their_array) {
  EXPECT_TRUE(refused("raw/data.npz", arrays("5", {0, 2, 3, 1, 1, 3}), {"node_feat", "[5, F]"}));
  EXPECT_TRUE(refused("raw/data.npz", arrays("4", {0, 2, 3, 1, 1, 4}), {"edge_index", "outside"}));
  EXPECT_TRUE(refused("raw/data.npz", npz_bytes({{"x", npy_int64({1}, {1})}}), {"num_nodes_list"}));
  EXPECT_TRUE(refused("raw/data.npz", "PK", {"data.npz"}));
  EXPECT_TRUE(
      refused("raw/node-label.npz", labels({2, 2}, {1, 0, 1, 0}), {"node_label", "[4, 1]"}));
  EXPECT_TRUE(refused("raw/node-label.npz", labels({4, 2}, {1, 0, 1, 0, 1, 0.5F, 1, 0}),
                      {"node_label", "node 2 has 0.5 for class 1"}));
  EXPECT_TRUE(refused("raw/node-label.npz", labels({4}, {1, 0, 0.5F, 0}), {"node 2", "0.5"}));
  EXPECT_TRUE(missing("raw/node-label.npz"));
}

}  // namespace
}  // namespace mezzo::test
