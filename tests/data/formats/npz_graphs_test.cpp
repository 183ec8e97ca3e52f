#include <cmath>

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

using Arrays = std::vector<std::pair<std::string, std::string>>;

/// `arrays` updated by `changes`; an empty text removes an array.
std::string npz_with(Arrays arrays, const Arrays& changes) {
  for (const auto& [key, contents] : changes) {
    std::erase_if(arrays, [&, name = key](const auto& array) { return array.first == name; });
    if (!contents.empty()) arrays.emplace_back(key, contents);
  }
  return npz_bytes(arrays);
}

/// Three nodes; arcs 0 -> 1, 1 -> 0, 2 -> 2 and 2 -> 0.
Arrays gnn_benchmark() {
  return {{"adj_data", npy_float32({4}, {1, 1, 1, 1})},
          {"adj_indices", npy_int32({4}, {1, 0, 0, 2})},
          {"adj_indptr", npy_int32({4}, {0, 1, 2, 4})},
          {"adj_shape", npy_int64({2}, {3, 3})},
          {"attr_data", npy_float32({2}, {5, 6})},
          {"attr_indices", npy_int32({2}, {1, 0})},
          {"attr_indptr", npy_int32({4}, {0, 1, 1, 2})},
          {"attr_shape", npy_int64({2}, {3, 2})},
          {"labels", npy("|i1", {3}, std::string("\0\1\1", 3))},
          {"class_names", npy("|S1", {2}, "ab")},
          {"node_names", npy("|O", {3}, "refused if read")}};
}

Arrays heterophilous() {
  return {{"node_features", npy_float32({3, 1}, {1, 2, 3})},
          {"node_labels", npy_int64({3}, {0, 1, 1})},
          {"edges", npy_int64({2, 2}, {0, 1, 2, 1})},
          {"train_masks", npy_bool({2, 3}, "100010")},
          {"val_masks", npy_bool({2, 3}, "010001")},
          {"test_masks", npy_bool({2, 3}, "001100")}};
}

class NpzGraphs : public testing::Test {
 protected:
  Dataset load(const Arrays& arrays, const Arrays& changes = {}) const {
    return load_dataset(folder_.write("tiny.npz", npz_with(arrays, changes)));
  }

  testing::AssertionResult refused(const Arrays& arrays, const Arrays& changes,
                                   const std::string& fault) const {
    return throws<IoError>([&] { load(arrays, changes); }, {folder_.path("tiny.npz"), fault});
  }

  TempFolder folder_;
};

TEST_F(NpzGraphs, gnn_benchmark_becomes_undirected_and_stays_sparse) {
  const Dataset data = load(gnn_benchmark());
  EXPECT_EQ(data.name, "tiny");
  EXPECT_TRUE(at::equal(data.src, at::tensor({0, 0, 1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst, at::tensor({1, 2, 0, 0}, at::kLong)));
  EXPECT_EQ(data.features.layout(), at::kSparseCsr);
  EXPECT_TRUE(
      at::equal(data.features.to_dense(), at::tensor({0.F, 5.F, 0.F, 0.F, 6.F, 0.F}).view({3, 2})));
  EXPECT_TRUE(at::equal(data.labels, at::tensor({0, 1, 1}, at::kLong)));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.num_splits(), 1);
}

TEST_F(NpzGraphs, gnn_benchmark_variants_are_read) {
  const std::string none = "";
  const Dataset dense = load(gnn_benchmark(), {{"attr_data", none},
                                               {"attr_indices", none},
                                               {"attr_indptr", none},
                                               {"attr_shape", none},
                                               {"attr_matrix", npy_float32({3, 1}, {1, 2, 3})}});
  EXPECT_TRUE(at::equal(dense.features, at::tensor({1.F, 2.F, 3.F}).view({3, 1})));
  const Dataset sparse_labels =
      load(gnn_benchmark(), {{"labels", none},
                             {"labels_data", npy_float32({3}, {1, 1, 1})},
                             {"labels_indices", npy_int32({3}, {1, 0, 1})},
                             {"labels_indptr", npy_int32({4}, {0, 1, 2, 3})},
                             {"labels_shape", npy_int64({2}, {3, 2})}});
  EXPECT_TRUE(at::equal(sparse_labels.labels, at::tensor({1, 0, 1}, at::kLong)));
  EXPECT_TRUE(load(gnn_benchmark(), {{"class_names", npy("|O", {2}, "x")}}).class_names.empty());
  EXPECT_EQ(load(gnn_benchmark(), {{"adj_data", npy_float32({4}, {1, 1, 0, 1})}}).num_edges(), 2);
}

TEST_F(NpzGraphs, gnn_benchmark_faults_are_io_errors) {
  const auto bad = [&](const std::string& key, const std::string& contents,
                       const std::string& fault) {
    return refused(gnn_benchmark(), {{key, contents}}, fault);
  };
  EXPECT_TRUE(bad("labels", "", "'labels' is missing"));
  EXPECT_TRUE(bad("labels", npy_int64({3}, {0, -1, 1}), "node 1 has the negative label -1"));
  EXPECT_TRUE(bad("labels", npy_int64({2}, {0, 1}), "one row and column for each of 2 labels"));
  EXPECT_TRUE(bad("labels", npy("|O", {3}, "."), "labels: dtype '|O'"));
  EXPECT_TRUE(bad("class_names", npy("|S1", {1}, "a"), "1 names for 2 classes"));
  EXPECT_TRUE(bad("adj_data", "", "'adj_data' is missing"));
  EXPECT_TRUE(bad("adj_data", npy_float32({3}, {1, 1, 1}), "one shape [nnz]"));
  EXPECT_TRUE(bad("adj_shape", npy_int64({2}, {3, 2}), "outside [0, 2)"));
  EXPECT_TRUE(bad("adj_shape", npy_int64({2}, {3, 4}), "a matrix of shape [3, 4]"));
  EXPECT_TRUE(bad("adj_shape", npy_int64({2}, {-3, 3}), "not negative"));
  EXPECT_TRUE(bad("adj_indices", npy_int32({4}, {1, 0, 0, 3}), "outside [0, 3)"));
  EXPECT_TRUE(bad("adj_indices", npy_float32({4}, {1, 0, 0, 2}), "expected integers"));
  EXPECT_TRUE(bad("adj_indptr", npy_int32({4}, {0, 3, 2, 4}), "decreases after row 1"));
  EXPECT_TRUE(bad("attr_shape", npy_int64({2}, {2, 2}), "indptr"));
  EXPECT_TRUE(
      refused(gnn_benchmark(),
              {{"attr_shape", npy_int64({2}, {2, 2})}, {"attr_indptr", npy_int32({3}, {0, 1, 2})}},
              "features of 2 nodes, labels of 3"));
  EXPECT_TRUE(bad("attr_data", npy_float32({2}, {5, NAN}), "value 1 is nan"));
  EXPECT_TRUE(bad("adj_format", npy("|S3", {}, "csc"), "format 'csc', expected 'csr'"));
}

TEST_F(NpzGraphs, labels_matrices_have_one_entry_a_row) {
  EXPECT_TRUE(refused(gnn_benchmark(),
                      {{"labels_data", npy_float32({3}, {1, 1, 1})},
                       {"labels_indices", npy_int32({3}, {1, 0, 1})},
                       {"labels_indptr", npy_int32({4}, {0, 2, 2, 3})},
                       {"labels_shape", npy_int64({2}, {3, 2})}},
                      "expected one label a node"));
}

TEST_F(NpzGraphs, heterophilous_becomes_undirected_with_a_column_for_each_split) {
  const Dataset data = load(heterophilous());
  EXPECT_TRUE(at::equal(data.src, at::tensor({0, 1, 1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst, at::tensor({1, 0, 2, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(data.features, at::tensor({1.F, 2.F, 3.F}).view({3, 1})));
  EXPECT_EQ(data.num_splits(), 2);
  EXPECT_TRUE(at::equal(data.split(1).train, at::tensor({0, 1, 0}).to(at::kBool)));
}

TEST_F(NpzGraphs, heterophilous_that_is_called_directed_keeps_its_edges) {
  const std::string edges = npy_int64({4, 2}, {2, 1, 0, 0, 2, 1, 1, 0});
  const auto write = [&](const std::string& name, const std::string& array) {
    return folder_.write(name, npz_with(heterophilous(), {{"edges", array}}));
  };
  const Dataset data = load_dataset(write("small_filtered_directed.npz", edges));
  EXPECT_TRUE(at::equal(data.src, at::tensor({2, 0, 2, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst, at::tensor({1, 0, 1, 0}, at::kLong)));
  EXPECT_EQ(load_dataset(write("small_undirected.npz", edges)).num_edges(), 4);
  const std::string bad = write("bad_directed.npz", npy_int64({1, 2}, {0, 3}));
  EXPECT_THROWS(IoError, fragments(bad, "node 0 to node 3, outside [0, 3)"), load_dataset(bad));
}

TEST_F(NpzGraphs, heterophilous_labels_may_be_a_column_or_missing_and_masks_integers) {
  const Dataset data =
      load(heterophilous(), {{"node_labels", npy_int64({3, 1}, {1, 0, -1})},
                             {"test_masks", npy_int64({2, 3}, {0, 0, 1, 1, 0, 0})}});
  EXPECT_TRUE(at::equal(data.labels, at::tensor({1, 0, -1}, at::kLong)));
  EXPECT_TRUE(at::equal(data.split(0).train, at::tensor({1, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(data.split(0).test, at::tensor({0, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(data.split(1).test, at::tensor({1, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(data.split(1).val, at::tensor({0, 0, 0}).to(at::kBool)));
}

TEST_F(NpzGraphs, heterophilous_of_two_classes_is_judged_by_roc_auc) {
  EXPECT_EQ(load(heterophilous()).metric, Metric::kRocAuc);
  EXPECT_EQ(load(heterophilous(), {{"node_labels", npy_int64({3}, {0, 1, 2})}}).metric,
            Metric::kAccuracy);
}

TEST_F(NpzGraphs, heterophilous_faults_are_io_errors) {
  const auto bad = [&](const std::string& key, const std::string& contents,
                       const std::string& fault) {
    return refused(heterophilous(), {{key, contents}}, fault);
  };
  EXPECT_TRUE(bad("node_labels", "", "'node_labels' is missing"));
  EXPECT_TRUE(bad("node_labels", npy_int64({3}, {0, -2, 1}), "negative label"));
  EXPECT_TRUE(bad("node_features", npy_float32({3}, {1, 2, 3}), "expected shape [N, F]"));
  EXPECT_TRUE(
      bad("node_features", npy_float32({2, 1}, {1, 2}), "features of 2 nodes, labels of 3"));
  EXPECT_TRUE(bad("edges", "", "'edges' is missing"));
  EXPECT_TRUE(bad("edges", npy_int64({1, 2}, {0, 3}), "node 0 to node 3, outside [0, 3)"));
  EXPECT_TRUE(bad("edges", npy_int64({1, 3}, {0, 1, 2}), "expected shape [E, 2]"));
  EXPECT_TRUE(bad("edges", npy_float32({1, 2}, {0, 1}), "expected integers"));
  EXPECT_TRUE(bad("val_masks", "", "'val_masks' is missing"));
  EXPECT_TRUE(bad("val_masks", npy_bool({3, 2}, "000000"), "expected shape [S, 3]"));
  EXPECT_TRUE(bad("val_masks", npy_bool({1, 3}, "000"), "masks: expected shape"));
  EXPECT_TRUE(bad("val_masks", npy_int64({2, 3}, {0, 0, 0, 0, 2, 0}), "expected booleans"));
  EXPECT_TRUE(bad("val_masks", npy_bool({2, 3}, "100010"), "node 0 is in two masks of split 0"));
}

TEST_F(NpzGraphs, other_npz_files_are_io_errors_that_list_their_arrays) {
  EXPECT_TRUE(refused({{"arr_0", npy("|O", {}, ".")}}, {}, "it has: arr_0"));
}

TEST_F(NpzGraphs, neither_has_named_splits) {
  for (const Arrays& arrays : {gnn_benchmark(), heterophilous()}) {
    const std::string path = folder_.write("tiny.npz", npz_bytes(arrays));
    EXPECT_THROWS(InvalidArgument, "'602020' is not a split of " + path,
                  load_dataset(path, {.split = "602020"}));
  }
}

TEST_F(NpzGraphs, every_truncation_is_an_io_error) {
  const std::string bytes = npz_bytes(heterophilous());
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    const std::string path = folder_.write("tiny.npz", bytes.substr(0, size));
    EXPECT_THROWS(IoError, path, load_dataset(path)) << size;
  }
}

}  // namespace
}  // namespace mezzo::test
