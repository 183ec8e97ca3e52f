#include <limits>

#include "mezzo/data/convert.h"

#include "data/pickle/pickle_writer.h"
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
  EXPECT_TRUE(bad("raw/num-node-list", "four\n", "'four' is not an integer"));
  EXPECT_TRUE(refused("raw/num-node-list.csv.gz", gzip("4\n5\n"), {"2 graphs, expected one"}));
  EXPECT_TRUE(refused("raw/num-edge-list.csv.gz", gzip("2\n"), {"edge.csv.gz:3: more lines"}));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1\n", "2: the file ends after 2 lines, expected 3"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1\n3,3\n0,0\n", "4: more lines than the 3"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,4\n3,3\n", "2: edge from 2 to 4, outside [0, 4)"));
  EXPECT_TRUE(bad("raw/edge", "0,1\n2,1,7\n3,3\n", "2: expected two columns of node ids, got 3"));
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

TEST_F(OgbFolder, graphs_of_several_types_are_refused) {
  write("raw/triplet-type-list.csv.gz", "");
  EXPECT_THROWS(IoError, "several node or edge types", read());
}

TEST_F(OgbFolder, a_split_may_be_one_file_of_pytorch) {
  namespace p = pickle;
  const std::string empty = p::int64_array({0}, {});
  const auto split = [](const std::string& train, const std::string& valid,
                        const std::string& test) {
    return p::torch_zip(
        p::dict({{p::text("train"), train}, {p::text("valid"), valid}, {p::text("test"), test}}));
  };
  folder_.remove("set/split/time/train.csv.gz");
  const std::string file = "split/time/split_dict.pt";
  write(file, split(p::int64_array({2}, {3, 0}), p::int64_array({1}, {2}), empty));
  EXPECT_EQ(integers_of(read().train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(integers_of(read().val_masks), (std::vector<std::int64_t>{0, 0, 1, 0}));
  EXPECT_EQ(integers_of(read().test_masks), (std::vector<std::int64_t>{0, 0, 0, 0}));
  const std::string one = p::int64_array({1}, {1});
  EXPECT_TRUE(refused(file, split(one, one, empty), {"split_dict.pt: valid", "already"}));
  EXPECT_TRUE(refused(file, split(p::int64_array({1}, {4}), one, empty), {"node 4 is outside"}));
  EXPECT_TRUE(refused(file, split(p::int64_array({1}, {-1}), one, empty), {"node -1 is outside"}));
  EXPECT_TRUE(refused(file, split(p::int64_array({1, 1}, {1}), one, empty), {"train", "[n]"}));
  EXPECT_TRUE(refused(file, split(p::float32_array({1}), one, empty), {"train", "integers"}));
  EXPECT_TRUE(refused(file, p::torch_zip(one), {"train", "expected the numbers"}));
  EXPECT_TRUE(refused(file, "", {"split_dict.pt"}));
}

TEST_F(OgbFolder, edges_may_have_weights) {
  write("raw/edge_weight.csv.gz", gzip("1\n0.5\n-2\n"));
  EXPECT_EQ(floats_of(read().edge_weights), (std::vector<float>{1, 0.5F, -2}));
  EXPECT_TRUE(refused("raw/edge_weight.csv.gz", gzip("1\n2\n"), {"edge_weight", "after 2 lines"}));
  EXPECT_TRUE(refused("raw/edge_weight.csv.gz", gzip("1\n2\nnan\n"), {"edge_weight", "finite"}));
  EXPECT_TRUE(refused("raw/edge_weight.csv.gz", gzip("1\n2\n1e300\n"), {"edge_weight"}));
  EXPECT_TRUE(refused("raw/edge_weight.csv.gz", gzip("1,2\n"), {"csv.gz:1: expected one number"}));
  std::filesystem::rename(root(), folder_.path("products"));
  EXPECT_EQ(floats_of(read_source(folder_.path("products")).edge_weights),
            (std::vector<float>{1, 1, 0.5F, 0.5F, -2, -2}));
}

TEST_F(OgbFolder, edges_may_have_features) {
  write("raw/edge-feat.csv.gz", gzip("1,0.5\n2,-1\n3,0\n"));
  EXPECT_EQ(floats_of(read().edge_features), (std::vector<float>{1, 0.5F, 2, -1, 3, 0}));
  EXPECT_TRUE(refused("raw/edge-feat.csv.gz", gzip("1\n2\n"), {"edge-feat", "after 2 lines"}));
  EXPECT_TRUE(refused("raw/edge-feat.csv.gz", gzip("1\n2\nx\n"), {"edge-feat.csv.gz:3: 'x'"}));
  std::filesystem::rename(root(), folder_.path("products"));
  EXPECT_EQ(floats_of(read_source(folder_.path("products")).edge_features),
            (std::vector<float>{1, 0.5F, 1, 0.5F, 2, -1, 2, -1, 3, 0, 3, 0}));
}

/// Graphs of two, one and three nodes, the second without edges.
class OgbGraphs : public SourceFolder {
 protected:
  OgbGraphs() { write_text("set"); }

  void write_text(const std::string& name) const {
    const auto packed = [&](const std::string& file, const std::string& text) {
      folder_.write(name + "/" + file + ".csv.gz", gzip(text));
    };
    packed("raw/num-node-list", "2\n1\n3\n");
    packed("raw/num-edge-list", "1\n0\n2\n");
    packed("raw/edge", "0,1\n2,0\n1,1\n");
    packed("raw/node-feat", "1\n2\n3\n4\n5\n6\n");
    packed("raw/edge-feat", "7\n8\n9\n");
    packed("raw/graph-label", "1\n0\n1\n");
    packed("split/scaffold/train", "2\n");
    packed("split/scaffold/valid", "0\n");
    packed("split/scaffold/test", "1\n");
  }
};

TEST_F(OgbGraphs, are_one_graph_with_offsets) {
  const Dataset data = read();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "graph-class");
  EXPECT_EQ(data.metric, Metric::kRocAuc);
  EXPECT_EQ(integers_of(data.graph_offsets), (std::vector<std::int64_t>{0, 2, 3, 6}));
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {5, 3}, {4, 4}}));
  EXPECT_EQ(floats_of(data.edge_features), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 1, 0}));
  write_text("ogbg_molx");  // molecules hold each edge once
  EXPECT_EQ(read_source(folder_.path("ogbg_molx")).num_edges(), 6);
}

TEST_F(OgbGraphs, labels_may_be_numbers_or_of_several_classes) {
  write("raw/graph-label.csv.gz", gzip("0.5\n-2\n\n"));
  EXPECT_EQ(name_of(Tasks{}, read().task()), "graph-regression");
  EXPECT_EQ(floats_of(read().labels.nan_to_num(9)), (std::vector<float>{0.5F, -2, 9}));
  write("raw/graph-label.csv.gz", gzip("1,\n0,1\nnan,0\n"));
  EXPECT_EQ(name_of(Tasks{}, read().task()), "graph-labels");
  EXPECT_EQ(integers_of(read().labels), (std::vector<std::int64_t>{1, 255, 0, 1, 255, 0}));
  write("raw/graph-label.csv.gz", gzip("1\n2\n3\n"));
  EXPECT_EQ(read().metric, Metric::kAccuracy);
  const Task numbers{.target = TaskTarget::kGraph, .labels = LabelKind::kNumbers};
  EXPECT_EQ(read({.task = numbers}).task(), numbers);
}

TEST_F(OgbGraphs, faults_are_io_errors) {
  const auto bad = [&](const std::string& file, const std::string& text, const std::string& fault) {
    return refused(file + ".csv.gz", gzip(text), {fault});
  };
  EXPECT_TRUE(bad("raw/num-node-list", "2\n1\n", "2 graphs, num-edge-list 3"));
  EXPECT_TRUE(bad("raw/num-node-list", "2\n-1\n5\n", "num-node-list.csv.gz:2: the count -1"));
  EXPECT_TRUE(
      bad("raw/num-node-list", "2\n1\n2\n", "edge.csv.gz:2: edge from 2 to 0, outside [0, 2)"));
  EXPECT_TRUE(bad("raw/num-node-list", "9223372036854775807\n9223372036854775807\n3\n", "2^48"));
  EXPECT_TRUE(bad("raw/num-edge-list", "0\n1\n2\n", "edge.csv.gz:1: edge from 0 to 1, outside"));
  EXPECT_TRUE(bad("raw/num-edge-list", "", "the file is empty"));
  EXPECT_TRUE(
      bad("raw/edge", "0,1\n3,0\n1,1\n", "edge.csv.gz:2: edge from 3 to 0, outside [0, 3)"));
  EXPECT_TRUE(bad("raw/edge-feat", "7\n8\n", "ends after 2 lines, expected 3"));
  EXPECT_TRUE(bad("raw/graph-label", "1\n0\n", "ends after 2 lines, expected 3"));
  EXPECT_TRUE(bad("raw/graph-label", "1\n0\ninf\n", "graph 2 has label inf"));
  EXPECT_TRUE(bad("split/scaffold/train", "3\n", "train.csv.gz:1: graph 3 is outside [0, 3)"));
  EXPECT_TRUE(bad("split/scaffold/valid", "2\n", "graph 2 is already in the split, as train"));
  const std::string packed = gzip("1\n0\n1\n");
  EXPECT_TRUE(refused("raw/graph-label.csv.gz", packed.substr(0, packed.size() - 3),
                      {"graph-label.csv.gz", "truncated"}));
}

TEST_F(OgbGraphs, the_binary_form_is_read_too) {
  const Dataset text = read();
  const auto arrays = [](const std::vector<std::int64_t>& edges) {
    return zip_bytes({{"edge_index.npy", npy_int64({2, 3}, edges), 8},
                      {"node_feat.npy", npy_float32({6, 1}, {1, 2, 3, 4, 5, 6}), 8},
                      {"edge_feat.npy", npy_float32({3, 1}, {7, 8, 9}), 8},
                      {"num_nodes_list.npy", npy_int64({3}, {2, 1, 3})},
                      {"num_edges_list.npy", npy_int64({3}, {1, 0, 2})}});
  };
  folder_.remove("set/raw");
  write("raw/data.npz", arrays({0, 2, 1, 1, 0, 1}));
  write("raw/graph-label.npz", npz_bytes({{"graph_label", npy_int64({3, 1}, {1, 0, 1})}}));
  const Dataset data = read();
  EXPECT_EQ(edges_of(data), edges_of(text));
  EXPECT_TRUE(at::equal(data.graph_offsets, text.graph_offsets));
  EXPECT_TRUE(at::equal(data.edge_features, text.edge_features));
  EXPECT_TRUE(at::equal(data.labels, text.labels));
  EXPECT_TRUE(at::equal(data.train_masks, text.train_masks));
  EXPECT_TRUE(
      refused("raw/data.npz", arrays({2, 2, 1, 1, 0, 1}), {"edge_index", "outside [0, 2)"}));
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
