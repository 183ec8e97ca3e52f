#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

/// A path of three nodes, 0 - 1 - 2, with two classes and one split.
class NpyFolder : public testing::Test {
 protected:
  NpyFolder() {
    folder_.write("edge_index.npy", npy_int64({2, 4}, {0, 1, 1, 2, 1, 0, 2, 1}));
    folder_.write("labels.npy", npy_int64({3}, {0, 1, 1}));
    folder_.write("features.npz", features({0, 2, 2, 3}, {0, 2, 1}, {1, 2, 3}, {3, 3}));
    folder_.write("train_mask.npy", npy_bool({3}, "100"));
    folder_.write("val_mask.npy", npy_bool({3}, "010"));
    folder_.write("test_mask.npy", npy_bool({3}, "001"));
    folder_.write("meta.json", R"({"name": "path", "num_nodes": 3, "class_names": ["a", "b"]})");
  }

  static std::string features(const std::vector<std::int64_t>& indptr,
                              const std::vector<std::int32_t>& indices,
                              const std::vector<float>& values,
                              const std::vector<std::int64_t>& shape) {
    const auto count = [](const auto& items) {
      return std::vector<std::int64_t>{static_cast<std::int64_t>(items.size())};
    };
    return npz_bytes({{"data", npy_float32(count(values), values)},
                      {"indices", npy_int32(count(indices), indices)},
                      {"indptr", npy_int64(count(indptr), indptr)},
                      {"shape", npy_int64(count(shape), shape)}});
  }

  Dataset load(const LoadOptions& options = {}) const {
    return load_dataset(folder_.path(), options);
  }

  /// Replaces `name` and expects loading to throw an IoError with that file and `fault`.
  testing::AssertionResult refused(const std::string& name, const std::string& bytes,
                                   const std::string& fault) const {
    folder_.write(name, bytes);
    return throws<IoError>([&] { load(); }, {folder_.path(name), fault});
  }

  TempFolder folder_;
};

TEST_F(NpyFolder, is_read_as_it_stands) {
  const Dataset data = load();
  EXPECT_EQ(data.name, "path");
  EXPECT_EQ(data.origin, folder_.path());
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(data.num_edges(), 4);
  EXPECT_EQ(data.num_features(), 3);
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(data.num_splits(), 1);
  EXPECT_EQ(data.metric, Metric::kAccuracy);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(at::equal(data.src, at::tensor({0, 1, 1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst, at::tensor({1, 0, 2, 1}, at::kLong)));
  EXPECT_EQ(data.features.layout(), at::kSparseCsr);
  EXPECT_TRUE(at::equal(data.features.to_dense(),
                        at::tensor({1.F, 0.F, 2.F, 0.F, 0.F, 0.F, 0.F, 3.F, 0.F}).view({3, 3})));
  EXPECT_TRUE(at::equal(data.split(0).val, at::tensor({0, 1, 0}).to(at::kBool)));
}

TEST_F(NpyFolder, needs_neither_meta_nor_features_nor_masks) {
  for (const char* name :
       {"meta.json", "features.npz", "train_mask.npy", "val_mask.npy", "test_mask.npy"}) {
    folder_.remove(name);
  }
  const Dataset data = load({.split_seed = 3});
  EXPECT_EQ(data.name, std::filesystem::path(folder_.path()).filename().string());
  EXPECT_EQ(data.num_features(), 0);
  EXPECT_EQ(data.num_classes, 2);
  folder_.write("sub/file", "");
  for (const char* spelling : {".", "sub/..", ""}) {
    EXPECT_EQ(load_dataset(folder_.path(spelling)).name, data.name) << spelling;
  }
  const SplitMasks masks = data.split(0);
  EXPECT_EQ((masks.train.to(at::kInt) + masks.val.to(at::kInt) + masks.test.to(at::kInt))
                .min()
                .item<int>(),
            1);
}

TEST_F(NpyFolder, rows_are_normalised_only_when_asked) {
  const Dataset data = load({.normalize_features = true});
  EXPECT_TRUE(at::equal(data.features.values(), at::tensor({1.0F / 3, 2.0F / 3, 1.0F})));
}

TEST_F(NpyFolder, dense_features_and_mask_matrices_are_read) {
  folder_.remove("features.npz");
  folder_.write("features.npy", npy_float32({3, 1}, {1, -2, 3}));
  folder_.write("train_mask.npy", npy_bool({3, 2}, "100001"));
  folder_.write("val_mask.npy", npy_bool({3, 2}, "000100"));
  folder_.write("test_mask.npy", npy_bool({3, 2}, "010010"));
  const Dataset data = load();
  EXPECT_TRUE(at::equal(data.features, at::tensor({1.F, -2.F, 3.F}).view({3, 1})));
  EXPECT_EQ(data.num_splits(), 2);
  EXPECT_TRUE(at::equal(data.split(1).train, at::tensor({0, 0, 1}).to(at::kBool)));
  EXPECT_THROWS(InvalidArgument, "index 2 is outside [0, 2)", data.split(2));
}

TEST_F(NpyFolder, features_and_labels_may_have_the_names_of_pyg) {
  folder_.remove("features.npz");
  folder_.remove("labels.npy");
  folder_.write("x.npy", npy_float32({3, 2}, {1, 2, 3, 4, 5, 6}));
  folder_.write("y.npy", npy_int64({3}, {0, 1, 1}));
  const Dataset data = load();
  EXPECT_EQ(data.num_features(), 2);
  EXPECT_TRUE(at::equal(data.labels, at::tensor({0, 1, 1}, at::kLong)));
  folder_.write("labels.npy", npy_int64({3}, {0, 1, 1}));
  EXPECT_THROWS(IoError, fragments(folder_.path(), "both labels.npy and y.npy"), load());
}

TEST_F(NpyFolder, labels_may_be_a_column_or_missing_and_masks_integers) {
  folder_.write("labels.npy", npy_int64({3, 1}, {-1, 1, 0}));
  folder_.write("val_mask.npy", npy_int32({3}, {0, 1, 0}));
  const Dataset data = load();
  EXPECT_TRUE(at::equal(data.labels, at::tensor({-1, 1, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(data.split(0).train, at::tensor({0, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(data.split(0).val, at::tensor({0, 1, 0}).to(at::kBool)));
  EXPECT_TRUE(refused("labels.npy", npy_int64({3}, {-1, -1, -1}), "no node has a label"));
  folder_.write("labels.npy", npy_int64({3}, {-1, 1, 0}));
  for (const char* name : {"train_mask.npy", "val_mask.npy", "test_mask.npy"}) folder_.remove(name);
  EXPECT_THROWS(IoError, fragments(folder_.path("labels.npy"), "1 nodes have no label"), load());
}

TEST_F(NpyFolder, named_splits_are_picked_by_name) {
  folder_.write("train_mask_more.npy", npy_bool({3}, "011"));
  folder_.write("val_mask_more.npy", npy_bool({3}, "000"));
  folder_.write("test_mask_more.npy", npy_bool({3}, "100"));
  EXPECT_TRUE(
      at::equal(load({.split = "more"}).split(0).train, at::tensor({0, 1, 1}).to(at::kBool)));
  EXPECT_TRUE(at::equal(load().split(0).train, at::tensor({1, 0, 0}).to(at::kBool)));
  EXPECT_THROWS(InvalidArgument, fragments("'less' is not a split of", "'more'"),
                load({.split = "less"}));
  EXPECT_THROWS(InvalidArgument, "'../x' is not a split", load({.split = "../x"}));
}

TEST_F(NpyFolder, roc_auc_comes_from_meta) {
  folder_.write("meta.json", R"x({"metric": "ROC AUC (binary)"})x");
  EXPECT_EQ(load().metric, Metric::kRocAuc);
  for (const char* word : {"roc_auc", "rocauc", "ROC-AUC", "Roc Auc"}) {
    folder_.write("meta.json", R"({"metric": ")" + std::string(word) + R"("})");
    EXPECT_EQ(load().metric, Metric::kRocAuc) << word;
  }
  folder_.write("meta.json", R"({"metric": "Accuracy"})");
  EXPECT_EQ(load().metric, Metric::kAccuracy);
  EXPECT_TRUE(refused("meta.json", R"({"metric": "BLEU"})", "'BLEU' is not one of"));
}

TEST_F(NpyFolder, roc_auc_of_three_classes_is_an_io_error) {
  folder_.write("meta.json", R"({"metric": "ROC AUC", "num_classes": 3})");
  EXPECT_THROWS(IoError, fragments(folder_.path(), "roc_auc does not fit"), load());
}

TEST_F(NpyFolder, missing_files_are_io_errors_that_name_them) {
  for (const char* name : {"val_mask.npy", "edge_index.npy", "labels.npy"}) {
    folder_.write("edge_index.npy", npy_int64({2, 0}, {}));  // makes it an npy folder
    folder_.remove(name);
    EXPECT_THROWS(IoError, fragments(folder_.path(name), "no such file"), load());
  }
}

TEST_F(NpyFolder, without_labels_and_masks_is_for_those_who_need_none) {
  for (const char* name : {"labels.npy", "train_mask.npy", "val_mask.npy", "test_mask.npy"}) {
    folder_.remove(name);
  }
  EXPECT_THROWS(IoError, fragments(folder_.path(), "has no labels"), load());
  const LoadOptions without{.labels_optional = true};
  for (const char* meta : {R"({"num_nodes": 3, "num_classes": 2, "class_names": ["a", "b"]})",
                           R"({"metric": "ROC AUC"})"}) {
    folder_.write("meta.json", meta);
    const Dataset data = load(without);
    EXPECT_EQ(data.num_nodes, 3);
    EXPECT_EQ(data.num_edges(), 4);
    EXPECT_EQ(data.num_features(), 3);
    EXPECT_EQ(data.num_classes, 0);
    EXPECT_FALSE(data.labels.defined());
    EXPECT_EQ(data.num_splits(), 0);
  }
  const auto refused_without = [&](const std::string& meta, const std::string& fault) {
    folder_.write("meta.json", meta);
    return throws<IoError>([&] { load(without); }, {folder_.path(), fault});
  };
  EXPECT_TRUE(refused_without(R"({"num_nodes": 4})", "features.npz: expected shape [4, F]"));
  EXPECT_TRUE(refused_without(R"({"num_nodes": 1000000000000000})", "at most 2^48"));
  EXPECT_TRUE(refused_without(R"({"num_nodes": 200000000000000})",
                              "meta.json: it declares 200000000000000 nodes"));
  EXPECT_THROWS(InvalidArgument, fragments("'x' is not a split of", "no labels"),
                load({.split = "x", .labels_optional = true}));
  folder_.remove("features.npz");
  folder_.write("meta.json", R"({"num_nodes": 5})");
  EXPECT_EQ(load(without).num_nodes, 5);
  EXPECT_TRUE(refused_without("{}", "labels.npy: no such file, and neither features"));
}

TEST_F(NpyFolder, edges_are_checked) {
  EXPECT_TRUE(refused("edge_index.npy", npy_int64({2, 1}, {0, 3}), "names node 3, outside [0, 3)"));
  EXPECT_TRUE(refused("edge_index.npy", npy_int64({2, 1}, {-1, 0}), "names node -1"));
  EXPECT_TRUE(refused("edge_index.npy", npy_int64({1, 2}, {0, 1}), "expected shape [2, E]"));
  EXPECT_TRUE(refused("edge_index.npy", npy_int64({2}, {0, 1}), "expected shape [2, E]"));
  EXPECT_TRUE(refused("edge_index.npy", npy_float32({2, 1}, {0, 1}), "expected integers"));
  EXPECT_TRUE(refused("edge_index.npy", npy("|O", {2, 1}, "."), "Python objects"));
  EXPECT_TRUE(refused("edge_index.npy", "", "not an npy file"));
}

TEST_F(NpyFolder, edge_weights_are_in_the_order_of_the_edges) {
  EXPECT_FALSE(load().edge_weights.defined());
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{4}, std::vector<std::int64_t>{4, 1}}) {
    folder_.write("edge_weights.npy", npy_float32(shape, {1, 0.5F, -2, 4}));
    EXPECT_TRUE(at::equal(load().edge_weights, at::tensor({1.0F, 0.5F, -2.0F, 4.0F})));
  }
  EXPECT_TRUE(refused("edge_weights.npy", npy_float32({3}, {1, 2, 3}), "one number an edge, [4]"));
}

TEST_F(NpyFolder, labels_are_checked) {
  EXPECT_TRUE(refused("labels.npy", npy_int64({3}, {0, -2, 1}), "negative label -2"));
  EXPECT_TRUE(refused("labels.npy", npy_int64({3}, {0, std::int64_t{1} << 40, 1}),
                      "expected less than 65536"));
  EXPECT_TRUE(refused("labels.npy", npy_int64({0}, {}), "one label a node"));
  EXPECT_TRUE(refused("labels.npy", npy_int64({3, 2}, {0, 1, 0, 2, 0, 0}),
                      "node 1 has 2 for class 1, expected 0 or 1"));
  folder_.write("labels.npy", npy_float32({3}, {0, 1, 1}));
  EXPECT_THROWS(IoError, "expected integers", load({.task = Task{.labels = LabelKind::kClass}}));
}

TEST_F(NpyFolder, sparse_features_are_checked) {
  const auto bad = [&](const std::string& bytes, const std::string& fault) {
    return refused("features.npz", bytes, fault);
  };
  EXPECT_TRUE(bad(features({0, 2, 2}, {0, 1}, {1, 2}, {2, 3}), "expected shape [3, F]"));
  EXPECT_TRUE(bad(features({0, 2, 2, 3}, {0, 2, 3}, {1, 2, 3}, {3, 3}), "outside [0, 3)"));
  EXPECT_TRUE(bad(features({0, 2, 1, 3}, {0, 2, 1}, {1, 2, 3}, {3, 3}), "decreases"));
  EXPECT_TRUE(bad(features({0, 2, 2, 4}, {0, 2, 1}, {1, 2, 3}, {3, 3}), "run from 0 to 3"));
  EXPECT_TRUE(bad(features({0, 0, 0, 0}, {}, {}, {3, std::int64_t{1} << 50}), "2^31 columns"));
  EXPECT_TRUE(bad(
      features({0, 2, 2, 3}, {0, 2, 1}, {1, 2, 3}, {std::numeric_limits<std::int64_t>::max(), 3}),
      "indptr"));
  EXPECT_TRUE(bad(features({0, 2, 2, 3}, {0, 2, 1}, {1, 2, 3}, {3}), "expected 2 numbers"));
  EXPECT_TRUE(bad(npz_bytes({{"data", npy_float32({0}, {})}}), "'shape' is missing"));
  EXPECT_TRUE(bad("PK", "npz"));
}

TEST_F(NpyFolder, features_that_are_not_finite_are_an_io_error) {
  folder_.write("features.npz", features({0, 2, 2, 3}, {0, 2, 1}, {1, INFINITY, 3}, {3, 3}));
  EXPECT_THROWS(IoError, fragments(folder_.path(), "value 1 is inf"), load());
  folder_.remove("features.npz");
  folder_.write("features.npy", npy("<f8", {3, 1}, raw_bytes<double>({1, -1e300, INFINITY})));
  EXPECT_THROWS(IoError, "features.npy: value 1 is -1e+300, beyond the range of float32", load());
}

TEST_F(NpyFolder, rows_that_do_not_fit_are_told_before_edges_that_follow_them) {
  folder_.remove("features.npz");
  folder_.write("features.npy", npy_float32({4, 1}, {1, 2, 3, 4}));
  folder_.write("edge_index.npy", npy_int64({2, 1}, {0, 3}));
  EXPECT_THROWS(IoError,
                fragments(folder_.path("features.npy"), "expected shape [3, F], got [4, 1]"),
                load());
}

TEST_F(NpyFolder, two_feature_files_contradict) {
  folder_.write("features.npy", npy_float32({3, 1}, {1, 2, 3}));
  EXPECT_THROWS(IoError, "both features.npz and features.npy", load());
}

TEST_F(NpyFolder, masks_are_checked) {
  EXPECT_TRUE(refused("val_mask.npy", npy_bool({3, 2}, "000000"), "2 splits"));
  EXPECT_TRUE(refused("train_mask.npy", npy_bool({2}, "10"), "expected shape [3]"));
  EXPECT_TRUE(refused("train_mask.npy", npy_int64({3}, {2, 0, 0}), "expected booleans"));
  folder_.write("train_mask.npy", npy_bool({3}, "010"));
  folder_.write("val_mask.npy", npy_bool({3}, "010"));
  EXPECT_THROWS(IoError, fragments(folder_.path(), "node 1 is in two masks"), load());
}

TEST_F(NpyFolder, meta_is_checked) {
  EXPECT_TRUE(refused("meta.json", "{", "not valid JSON"));
  EXPECT_TRUE(refused("meta.json", std::string(1'000'000, '['), "not valid JSON"));
  EXPECT_TRUE(refused("meta.json", "[]", "expected a JSON object"));
  EXPECT_TRUE(refused("meta.json", R"({"num_nodes": 4})", "declares 4 nodes, the arrays have 3"));
  EXPECT_TRUE(refused("meta.json", R"({"num_edges": 5})", "declares 5 directed edges"));
  EXPECT_TRUE(refused("meta.json", R"({"num_features": 9})", "declares 9 features"));
  EXPECT_TRUE(refused("meta.json", R"({"num_nodes": "3"})", "expected an integer"));
  EXPECT_TRUE(refused("meta.json", R"({"num_nodes": -3})",
                      "'num_nodes' is -3, expected an integer of at least 0"));
  EXPECT_TRUE(refused("meta.json", R"({"name": 3})", "not a string"));
  EXPECT_TRUE(refused("meta.json", R"({"class_names": [1]})", "more than strings"));
  folder_.write("meta.json", R"({"num_classes": 1})");
  EXPECT_THROWS(IoError, fragments("labels.npy", "1 classes are declared"), load());
  folder_.write("meta.json", R"({"num_classes": 2000000000})");
  EXPECT_THROWS(IoError, fragments("labels.npy", "2000000000 classes are declared"), load());
  folder_.write("meta.json", R"({"class_names": ["a"]})");
  EXPECT_THROWS(IoError, "1 class names for 2 classes", load());
}

TEST_F(NpyFolder, labels_that_are_floats_are_numbers) {
  folder_.write("labels.npy", npy_float32({3}, {0.5F, -3, std::nanf("")}));
  folder_.write("meta.json", "{}");
  const Dataset data = load();
  EXPECT_EQ(data.task().labels, LabelKind::kNumbers);
  EXPECT_EQ(data.metric, Metric::kR2);
  EXPECT_EQ(data.labels.sizes(), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(data.labels[0].item<float>(), 0.5F);
  EXPECT_FALSE(data.test_masks.any().item<bool>());  // the number of node 2 is unknown
  folder_.write("meta.json", R"({"metric": "MAE"})");
  EXPECT_EQ(load().metric, Metric::kMae);
  folder_.write("meta.json", R"({"metric": "accuracy"})");
  EXPECT_THROWS(IoError, test::fragments("accuracy", "node-regression"), load());
  EXPECT_TRUE(refused("labels.npy", npy_float32({3}, {0.5F, -3, INFINITY}), "inf"));
  EXPECT_TRUE(refused("labels.npy", npy_float32({3}, {NAN, NAN, NAN}), "no node has a number"));
}

TEST_F(NpyFolder, the_task_decides_what_columns_of_zeros_and_ones_are) {
  folder_.write("labels.npy", npy_float32({3, 2}, {0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(load().task().labels, LabelKind::kMultiLabel);
  EXPECT_EQ(load({.task = Task{.labels = LabelKind::kNumbers}}).task().labels, LabelKind::kNumbers);
  folder_.write("meta.json", R"({"task": "node-regression"})");
  EXPECT_EQ(load().task().labels, LabelKind::kNumbers);
  EXPECT_EQ(load({.task = Task{.labels = LabelKind::kMultiLabel}}).task().labels,
            LabelKind::kMultiLabel);
  folder_.write("meta.json", R"({"task": "node-classes"})");  // the former name
  EXPECT_EQ(load().task().labels, LabelKind::kMultiLabel);
  EXPECT_TRUE(refused("meta.json", R"({"task": "edges"})", "node-labels"));
}

}  // namespace
}  // namespace mezzo::test
