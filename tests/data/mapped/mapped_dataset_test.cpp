#include "mezzo/data/mapped/mapped_dataset.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {
using nlohmann::json;

json array_entry(const std::string& file, const std::string& dtype,
                 const std::vector<std::int64_t>& shape) {
  return {{"file", file}, {"dtype", dtype}, {"shape", shape}};
}

/// A path of three nodes, 0 - 1 - 2, with two classes and one split.
class MappedDataset : public testing::Test {
 protected:
  MappedDataset() {
    folder_.write("p.npy", npy_int64({4}, {0, 1, 3, 4}));
    folder_.write("i.npy", npy_int32({4}, {1, 0, 2, 1}));
    folder_.write("x.npy", npy_float32({3, 2}, {1, 2, 3, 4, 5, 6}));
    folder_.write("y.npy", npy_int64({3}, {0, 1, 1}));
    folder_.write("a.npy", npy_bool({3, 1}, "100"));
    folder_.write("b.npy", npy_bool({3, 1}, "010"));
    folder_.write("c.npy", npy_bool({3, 1}, "001"));
    manifest_ = {{"format", "mezzo"},
                 {"version", 1},
                 {"name", "path"},
                 {"num_nodes", 3},
                 {"num_edges", 4},
                 {"num_features", 2},
                 {"num_classes", 2},
                 {"metric", "roc_auc"},
                 {"class_names", {"a", "b"}},
                 {"arrays",
                  {{"indptr", array_entry("p.npy", "int64", {4})},
                   {"indices", array_entry("i.npy", "int32", {4})},
                   {"features", array_entry("x.npy", "float32", {3, 2})},
                   {"labels", array_entry("y.npy", "int64", {3})},
                   {"train_masks", array_entry("a.npy", "bool", {3, 1})},
                   {"val_masks", array_entry("b.npy", "bool", {3, 1})},
                   {"test_masks", array_entry("c.npy", "bool", {3, 1})}}}};
  }

  Dataset load(const LoadOptions& options = {}) const {
    folder_.write("mezzo.json", manifest_.dump());
    return load_dataset(folder_.path(), options);
  }

  /// Expects loading to throw an IoError with the folder's file `culprit` and `fault`.
  testing::AssertionResult refused(const std::string& culprit, const std::string& fault) const {
    return throws<IoError>([&] { load(); }, {folder_.path(culprit), fault});
  }
  testing::AssertionResult refused_with(const std::string& key, const json& value,
                                        const std::string& fault) {
    const json old = manifest_;
    manifest_[json::json_pointer(key)] = value;
    testing::AssertionResult result = refused("mezzo.json", fault);
    manifest_ = old;
    return result << " with " << key << " " << value.dump();
  }
  testing::AssertionResult refused_file(const std::string& name, const std::string& bytes,
                                        const std::string& fault) const {
    const std::string path = folder_.path(name), original = folder_.path("kept");
    std::filesystem::rename(path, original);
    folder_.write(name, bytes);
    const testing::AssertionResult result = refused(name, fault);
    std::filesystem::rename(original, path);
    return result;
  }

  TempFolder folder_;
  json manifest_;
};

TEST_F(MappedDataset, is_read_as_it_stands) {
  const Dataset data = load();
  EXPECT_EQ(data.name, "path");
  EXPECT_EQ(data.origin, folder_.path());
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(data.num_edges(), 4);
  EXPECT_EQ(data.num_features(), 2);
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(data.num_splits(), 1);
  EXPECT_EQ(data.metric, Metric::kRocAuc);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(data.is_mapped);
  EXPECT_FALSE(data.src.defined());
  EXPECT_TRUE(at::equal(data.indptr, at::tensor({0, 1, 3, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(data.indices, at::tensor({1, 0, 2, 1}, at::kInt)));
  EXPECT_TRUE(at::equal(data.features, at::tensor({1.F, 2.F, 3.F, 4.F, 5.F, 6.F}).view({3, 2})));
  EXPECT_TRUE(at::equal(data.labels, at::tensor({0, 1, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(data.split(0).val, at::tensor({0, 1, 0}).to(at::kBool)));
}

TEST_F(MappedDataset, may_hold_wide_ids_and_16_bit_features) {
  manifest_["arrays"]["indices"] = array_entry("i.npy", "int64", {4});
  folder_.write("i.npy", npy_int64({4}, {1, 0, 2, 1}));
  manifest_["arrays"]["features"] = array_entry("x.npy", "bfloat16", {3, 2});
  folder_.write("x.npy",
                npy("<u2", {3, 2}, raw_bytes<std::uint16_t>({0x3F80, 0, 0, 0, 0, 0xC000})));
  const Dataset data = load();
  EXPECT_EQ(data.indices.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(
      data.features, at::tensor({1.F, 0.F, 0.F, 0.F, 0.F, -2.F}).view({3, 2}).to(at::kBFloat16)));
}

TEST_F(MappedDataset, may_hold_sparse_features_which_are_read_as_float32) {
  manifest_["arrays"].erase("features");
  manifest_["arrays"]["feature_indptr"] = array_entry("s.npy", "int64", {4});
  manifest_["arrays"]["feature_indices"] = array_entry("t.npy", "int64", {2});
  manifest_["arrays"]["feature_values"] = array_entry("u.npy", "float16", {2});
  folder_.write("s.npy", npy_int64({4}, {0, 1, 1, 2}));
  folder_.write("t.npy", npy_int64({2}, {1, 0}));
  folder_.write("u.npy", npy("<f2", {2}, raw_bytes<std::uint16_t>({0x3C00, 0xC000})));
  const Dataset data = load({.normalize_features = true});
  EXPECT_FALSE(data.is_mapped);
  EXPECT_EQ(data.features.layout(), at::kSparseCsr);
  EXPECT_EQ(data.stored_dtype, at::kHalf);
  EXPECT_TRUE(at::equal(data.features.to_dense(),
                        at::tensor({0.F, 1.F, 0.F, 0.F, -1.F, 0.F}).view({3, 2})));
  folder_.write("t.npy", npy_int64({2}, {1, 2}));
  EXPECT_TRUE(refused("s.npy", "outside [0, 2)"));
}

TEST_F(MappedDataset, needs_neither_features_nor_masks) {
  manifest_["num_features"] = 0;
  for (const char* name : {"features", "train_masks", "val_masks", "test_masks"}) {
    manifest_["arrays"].erase(name);
  }
  const Dataset data = load({.split_seed = 3});
  EXPECT_FALSE(data.features.defined());
  EXPECT_FALSE(data.is_mapped);
  EXPECT_EQ(data.num_splits(), 1);
  EXPECT_EQ(data.split(0).train.sum().item<std::int64_t>(), 1);
}

TEST_F(MappedDataset, without_labels_is_for_those_who_need_none) {
  for (const char* name : {"labels", "train_masks", "val_masks", "test_masks"}) {
    manifest_["arrays"].erase(name);
  }
  EXPECT_TRUE(refused("mezzo.json", "num_classes is 2, without an array 'labels'"));
  manifest_["num_classes"] = 0;
  manifest_["class_names"] = json::array();
  EXPECT_THROWS(IoError, fragments(folder_.path(), "has no labels"), load());
  const Dataset data = load({.labels_optional = true});
  EXPECT_FALSE(data.labels.defined());
  EXPECT_EQ(data.num_splits(), 0);
  EXPECT_EQ(data.num_edges(), 4);
}

TEST_F(MappedDataset, a_node_without_a_label_is_left_out_by_masks_alone) {
  folder_.write("y.npy", npy_int64({3}, {0, -1, 1}));
  EXPECT_THROWS(IoError, fragments(folder_.path(), "node 1 has no label, but is in"), load());
  for (const char* name : {"train_masks", "val_masks", "test_masks"}) {
    manifest_["arrays"].erase(name);
  }
  EXPECT_TRUE(refused("y.npy", "some nodes have no label, and no masks"));
}

TEST_F(MappedDataset, labels_without_classes_are_no_data) {
  manifest_["num_classes"] = 0;
  manifest_["class_names"] = json::array();
  for (const bool optional : {false, true}) {
    EXPECT_THROWS(IoError, fragments("mezzo.json", "num_classes is 0, with an array 'labels'"),
                  load({.labels_optional = optional}));
  }
}

TEST_F(MappedDataset, mapped_features_are_not_normalised) {
  EXPECT_THROWS(InvalidArgument, "mezzo data convert --normalize-features",
                load({.normalize_features = true}));
}

TEST_F(MappedDataset, has_no_named_splits) {
  EXPECT_THROWS(InvalidArgument, fragments("split", "'x'"), load({.split = "x"}));
}

TEST_F(MappedDataset, wrong_manifests_are_named) {
  EXPECT_TRUE(refused_with("/format", "other", "'format'"));
  EXPECT_TRUE(refused_with("/version", 2, "version 2, this library reads 1"));
  EXPECT_TRUE(refused_with("/num_nodes", -3, "'num_nodes' is not an integer of 0"));
  EXPECT_TRUE(refused_with("/num_nodes", 3.5, "'num_nodes'"));
  EXPECT_TRUE(refused_with("/num_nodes", 1LL << 60, "'num_nodes'"));
  EXPECT_TRUE(refused_with("/num_edges", "4", "'num_edges'"));
  EXPECT_TRUE(refused_with("/num_classes", 1'000'000'000'000LL, "num_classes is 1000000000000"));
  EXPECT_TRUE(refused_with("/metric", "f1", "metric: 'f1'"));
  EXPECT_TRUE(refused_with("/class_names", json::array({1, 2}), "'class_names'"));
  EXPECT_TRUE(refused_with("/arrays", json::array(), "'arrays'"));
  EXPECT_TRUE(refused_with("/arrays/labels", 3, "'labels' is not an object"));
  EXPECT_TRUE(refused_with("/arrays/labels/file", "../y.npy", "without a folder"));
  EXPECT_TRUE(refused_with("/arrays/labels/file", "..", "without a folder"));
  EXPECT_TRUE(refused_with("/arrays/labels/dtype", "text", "unknown dtype 'text'"));
  EXPECT_TRUE(refused_with("/arrays/labels/dtype", "int32", "is of int32, expected int64"));
  EXPECT_TRUE(refused_with("/arrays/labels/shape", json::array({4}), "shape [4]"));
  EXPECT_TRUE(refused_with("/arrays/features/shape", json::array({3}), "shape [3]"));
  EXPECT_TRUE(refused_with("/arrays/more", array_entry("y.npy", "int64", {3}), "'more'"));
  for (const char* key : {"name", "num_nodes", "num_edges", "num_features", "num_classes", "metric",
                          "class_names", "arrays", "format", "version"}) {
    const json old = manifest_;
    manifest_.erase(key);
    EXPECT_TRUE(refused("mezzo.json", std::string("'") + key + "' is missing"));
    manifest_ = old;
  }
  for (const char* name : {"indptr", "indices", "features", "val_masks", "test_masks"}) {
    const json old = manifest_;
    manifest_["arrays"].erase(name);
    EXPECT_TRUE(refused("mezzo.json", std::string("'") + name + "'"));
    manifest_ = old;
  }
  for (const std::string text : {"", "[]", "{", R"({"format": "mezzo"})", "\xff"}) {
    folder_.write("mezzo.json", text);
    EXPECT_THROWS(IoError, "mezzo.json", load_dataset(folder_.path())) << text;
  }
}

TEST_F(MappedDataset, wrong_files_are_named) {
  EXPECT_TRUE(refused_file("i.npy", npy_int32({4}, {1, 0, 2, 1}).substr(0, 140), "needs 16 bytes"));
  EXPECT_TRUE(refused_file("i.npy", npy_int32({4}, {1, 0, 2, 1}) + "x", "got 17"));
  EXPECT_TRUE(refused_file("i.npy", npy_int32({3}, {1, 0, 2}), "its shape is [3]"));
  EXPECT_TRUE(refused_file("i.npy", npy_int64({4}, {1, 0, 2, 1}), "dtype '<i8'"));
  EXPECT_TRUE(
      refused_file("x.npy", npy_float32({2, 3}, {1, 2, 3, 4, 5, 6}), "its shape is [2, 3]"));
  EXPECT_TRUE(refused_file("x.npy", "", "not an npy file"));
  EXPECT_TRUE(refused_file("y.npy", npy_int32({3}, {0, 1, 1}), "expected int64, got int32"));
  EXPECT_TRUE(refused_file("a.npy", npy("|b1", {3, 1}, std::string("\1\2\0", 3)), "a boolean"));
  folder_.remove("y.npy");
  EXPECT_TRUE(refused("y.npy", "no such file"));
}

TEST_F(MappedDataset, wrong_values_are_named_by_folder_and_array) {
  const auto wrong = [&](const std::string& name, const std::string& bytes,
                         const std::string& fault) {
    const std::string original = folder_.path("kept");
    std::filesystem::rename(folder_.path(name), original);
    folder_.write(name, bytes);
    const auto result = throws<IoError>([&] { load(); }, {folder_.path(), fault});
    std::filesystem::rename(original, folder_.path(name));
    return result;
  };
  EXPECT_TRUE(wrong("p.npy", npy_int64({4}, {0, 3, 1, 4}), "indptr: it decreases after row 1"));
  EXPECT_TRUE(wrong("p.npy", npy_int64({4}, {0, 1, 3, 5}), "expected 0 to 4"));
  EXPECT_TRUE(wrong("i.npy", npy_int32({4}, {1, 0, 3, 1}), "indices: item 2 is 3"));
  EXPECT_TRUE(wrong("i.npy", npy_int32({4}, {1, 0, 2, -1}), "indices: item 3 is -1"));
  EXPECT_TRUE(wrong("y.npy", npy_int64({3}, {0, 1, 2}), "labels: item 2 is 2"));
  EXPECT_TRUE(wrong("b.npy", npy_bool({3, 1}, "100"), "node 0 is in two masks"));
}

TEST_F(MappedDataset, is_listed) {
  folder_.write("sets/mine/mezzo.json", "{}");
  const std::vector<KnownDataset> listed = list_datasets(folder_.path("sets"));
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[1].name, "mine");
  EXPECT_EQ(listed[1].description, "mapped dataset");
}

}  // namespace
}  // namespace mezzo::test
