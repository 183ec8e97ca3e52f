// Links whose split, messages and negative pairs the data fix.
#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/data/convert.h"
#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test::fixed_links_test {
namespace {

using nlohmann::json;

constexpr Task kLinks = LinkTask::kind;

/// Six edges of five nodes: 0 to 2 are for training, 3 and 5 for validation, 4 for testing. Edge 4
/// joins the nodes of edge 0.
class FixedLinks : public testing::Test {
 protected:
  FixedLinks() {
    write("edge_index.npy", npy_int64({2, 6}, {0, 1, 2, 3, 1, 0, 1, 2, 3, 4, 0, 4}));
    write("features.npy", npy_float32({5, 1}, {1, 2, 3, 4, 5}));
    write("edge_labels.npy", npy_int64({6}, {0, 1, 2, 0, 1, 2}));
    write("train_mask.npy", npy_bool({6}, "111000"));
    write("val_mask.npy", npy_bool({6}, "000101"));
    write("test_mask.npy", npy_bool({6}, "000010"));
    write("message_mask.npy", npy_bool({6}, "111000"));
    write("train_negatives.npy", npy_int64({2, 1}, {2, 0}));
    write("val_negatives.npy", npy_int32({2, 3}, {0, 1, 2, 4, 4, 0}));
    write("val_negative_src.npy", npy_int64({2, 2}, {0, 1, 2, 1}));
    write("val_negative_dst.npy", npy_int64({2, 1}, {0, 3}));
    write("test_negative_dst.npy", npy_int64({1, 4}, {2, 3, 4, 2}));
    write("meta.json", R"({"task": "link"})");
  }

  void write(const std::string& name, const std::string& bytes) const {
    folder_.write("in/" + name, bytes);
  }
  std::string in() const { return folder_.path("in"); }
  std::string out() const { return folder_.path("out"); }
  Dataset load() const { return load_dataset(in()); }

  /// Replaces a file of the npy folder, and restores it.
  testing::AssertionResult refused(const std::string& name, const std::string& bytes,
                                   const std::string& fault) const {
    std::ifstream stream(in() + "/" + name, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(stream), {}};
    write(name, bytes);
    testing::AssertionResult result = throws<IoError>([&] { load(); }, {in(), fault});
    write(name, good);
    return result << " with " << name;
  }

  /// Replaces a value of the manifest, or removes it (null).
  testing::AssertionResult manifest_refused(const std::string& key, const json& value,
                                            const std::string& fault) const {
    std::ifstream stream(out() + "/mezzo.json");
    const std::string good{std::istreambuf_iterator<char>(stream), {}};
    const json::json_pointer place(key);
    json manifest = json::parse(good);
    if (value.is_null()) {
      manifest[place.parent_pointer()].erase(place.back());
    } else {
      manifest[place] = value;
    }
    folder_.write("out/mezzo.json", manifest.dump());
    testing::AssertionResult result = throws<IoError>([&] { load_dataset(out()); }, {out(), fault});
    folder_.write("out/mezzo.json", good);
    return result << " with " << key << " " << value.dump();
  }

  TempFolder folder_;
};

at::Tensor ids(at::ArrayRef<std::int64_t> values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape);
}

TEST_F(FixedLinks, are_read_from_an_npy_folder) {
  const Dataset data = load();
  EXPECT_EQ(data.task(), kLinks);
  EXPECT_EQ(data.num_edge_types, 3);
  EXPECT_TRUE(at::equal(data.message_mask, data.train_masks.squeeze(1)));
  EXPECT_TRUE(at::equal(data.negatives.train.pairs, ids({2, 0}, {2, 1})));
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, ids({0, 1, 2, 4, 4, 0}, {2, 3})));
  EXPECT_TRUE(at::equal(data.negatives.val.src, ids({0, 1, 2, 1}, {2, 2})));
  EXPECT_TRUE(at::equal(data.negatives.val.dst, ids({0, 3}, {2, 1})));
  EXPECT_TRUE(at::equal(data.negatives.test.dst, ids({2, 3, 4, 2}, {1, 4})));
  EXPECT_FALSE(data.negatives.test.pairs.defined());
  EXPECT_FALSE(data.negatives.train.src.defined());
}

TEST_F(FixedLinks, belong_to_the_split_of_their_name) {
  write("train_mask_other.npy", npy_bool({6}, "001111"));
  write("val_mask_other.npy", npy_bool({6}, "100000"));
  write("test_mask_other.npy", npy_bool({6}, "010000"));
  write("val_negatives_other.npy", npy_int64({2, 1}, {3, 3}));
  const Dataset data = load_dataset(in(), {.split = "other"});
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, ids({3, 3}, {2, 1})));
  EXPECT_FALSE(data.negatives.test.dst.defined());
  EXPECT_FALSE(data.message_mask.defined());
}

TEST_F(FixedLinks, faults_of_an_npy_folder_are_io_errors) {
  EXPECT_TRUE(refused("message_mask.npy", npy_bool({6}, "111100"), "edge 3 carries messages"));
  EXPECT_TRUE(refused("message_mask.npy", npy_bool({5}, "11100"), "[6] or [6, S], got [5]"));
  EXPECT_TRUE(refused("message_mask.npy", npy_bool({6, 2}, "111100111100"), "shape [6], got"));
  EXPECT_TRUE(refused("message_mask.npy", npy_int64({6}, {0, 1, 2, 0, 0, 0}), "message_mask.npy"));
  EXPECT_TRUE(
      refused("val_negatives.npy", npy_int64({2, 1}, {0, 5}), "val_negatives: item 1 is 5"));
  EXPECT_TRUE(refused("val_negatives.npy", npy_int64({2, 1}, {-1, 0}), "val_negatives: item 0"));
  EXPECT_TRUE(refused("val_negatives.npy", npy_int64({3, 1}, {0, 0, 0}), "[2, K] with K > 0"));
  EXPECT_TRUE(refused("val_negatives.npy", npy_int64({2, 0}, {}), "[2, K] with K > 0"));
  EXPECT_TRUE(refused("val_negatives.npy", npy_int64({2}, {0, 0}), "2 dimensions"));
  EXPECT_TRUE(refused("val_negatives.npy", npy_float32({2, 1}, {0, NAN}), "val_negatives.npy"));
  EXPECT_TRUE(refused("val_negative_src.npy", npy_int64({1, 2}, {0, 0}), "shape [2, K]"));
  EXPECT_TRUE(refused("test_negative_dst.npy", npy_int64({2, 1}, {0, 0}), "shape [1, K]"));
  EXPECT_TRUE(refused("test_negative_dst.npy", "\x93NUMPY", "test_negative_dst.npy"));
  const std::string good = npy_int64({2, 1}, {0, 0});
  EXPECT_TRUE(refused("val_negatives.npy", good.substr(0, good.size() - 1), "val_negatives.npy"));
  for (const char* role : {"train", "val", "test"}) {
    const std::string bits = *role == 'v' ? "000100010010" : "000000000000";
    write(std::string(role) + "_mask.npy", npy_bool({6, 2}, bits));
  }
  EXPECT_THROWS(IoError, fragments(in(), "links of one split, got links of 2"), load());
}

TEST_F(FixedLinks, are_kept_by_a_conversion) {
  const Dataset source = load();
  convert_dataset(in(), out());
  const Dataset data = load_dataset(out());
  EXPECT_EQ(data.task(), kLinks);
  EXPECT_EQ(data.metric, source.metric);
  EXPECT_EQ(data.num_edge_types, 3);
  // By destination, then source.
  const at::Tensor order = ids({4, 0, 1, 2, 5, 3}, {6});
  const auto ordered = [&](const at::Tensor& rows) { return rows.index_select(0, order); };
  EXPECT_TRUE(at::equal(data.src, ordered(source.src)));
  EXPECT_TRUE(at::equal(data.dst, ordered(source.dst)));
  EXPECT_TRUE(at::equal(data.edge_types, ordered(source.edge_types)));
  EXPECT_TRUE(at::equal(data.val_masks, ordered(source.val_masks)));
  EXPECT_TRUE(at::equal(data.message_mask, ordered(source.message_mask)));
  EXPECT_TRUE(at::equal(data.negatives.train.pairs, source.negatives.train.pairs));
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, source.negatives.val.pairs));
  // Edge 5 comes before edge 3.
  EXPECT_TRUE(at::equal(data.negatives.val.src, source.negatives.val.src.flip(0)));
  EXPECT_TRUE(at::equal(data.negatives.val.dst, source.negatives.val.dst.flip(0)));
  EXPECT_TRUE(at::equal(data.negatives.test.dst, source.negatives.test.dst));
  convert_dataset(out(), folder_.path("again"));
  const Dataset again = load_dataset(folder_.path("again"));
  EXPECT_TRUE(at::equal(again.negatives.val.src, data.negatives.val.src));
  EXPECT_TRUE(at::equal(again.edge_types, data.edge_types));
  EXPECT_THROWS(InvalidArgument, "symmetrize",
                convert_dataset(in(), folder_.path("s"), {.symmetrize = true}));
}

TEST_F(FixedLinks, without_masks_the_split_is_written) {
  folder_.remove("in");
  write("edge_index.npy", npy_int64({2, 4}, {0, 1, 2, 0, 1, 2, 3, 3}));
  write("features.npy", npy_float32({4, 1}, {1, 2, 3, 4}));
  const LoadOptions links{.split_seed = 5, .task = kLinks};
  const Dataset source = load_dataset(in(), links);
  convert_dataset(in(), out(), {.split_seed = 5, .task = kLinks});
  const Dataset data = load_dataset(out());
  EXPECT_EQ(data.task(), kLinks);
  EXPECT_FALSE(data.edge_types.defined());
  const auto held_out = [](const Dataset& dataset) {
    return dataset.src.masked_select(dataset.test_masks.squeeze(1)).item<std::int64_t>();
  };
  EXPECT_EQ(held_out(data), held_out(source));
}

TEST_F(FixedLinks, wrong_manifests_are_io_errors) {
  convert_dataset(in(), out());
  EXPECT_TRUE(manifest_refused("/target", "node", "array 'labels'"));
  EXPECT_TRUE(manifest_refused("/num_classes", 2, "expected one class"));
  EXPECT_TRUE(manifest_refused("/num_edge_types", 2, "edge types: item"));
  EXPECT_TRUE(manifest_refused("/num_edge_types", 0, "edge types: 0"));
  EXPECT_TRUE(manifest_refused("/num_edge_types", 1 << 20, "beyond any sensible number"));
  EXPECT_TRUE(manifest_refused("/num_edge_types", "3", "'num_edge_types' is not an integer"));
  EXPECT_TRUE(manifest_refused("/metric", "accuracy", "does not fit the task link"));
  EXPECT_TRUE(manifest_refused("/arrays/train_masks", nullptr, "'train_masks' is missing"));
  EXPECT_TRUE(manifest_refused("/arrays/edge_types", nullptr, "3 without the type of each edge"));
  EXPECT_TRUE(manifest_refused("/arrays/edge_types/shape", {5}, "the counts ask for [6]"));
  EXPECT_TRUE(manifest_refused("/arrays/edge_types/dtype", "float32", "expected int64"));
  EXPECT_TRUE(manifest_refused("/arrays/message_mask/dtype", "int64", "expected bool"));
  EXPECT_TRUE(manifest_refused("/arrays/val_negatives/shape", {2, 4}, "its shape is [2, 3]"));
  EXPECT_TRUE(
      manifest_refused("/arrays/val_negative_src/shape", {4}, "the counts ask for [-1, -1]"));
}

TEST_F(FixedLinks, arrays_that_contradict_the_manifest_are_io_errors) {
  convert_dataset(in(), out());
  const auto damaged = [&](const std::string& name, const std::string& bytes,
                           const std::string& fault) {
    std::ifstream stream(out() + "/" + name, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(stream), {}};
    folder_.write("out/" + name, bytes);
    testing::AssertionResult result = throws<IoError>([&] { load_dataset(out()); }, {out(), fault});
    folder_.write("out/" + name, good);
    return result << " with " << name;
  };
  EXPECT_TRUE(damaged("edge_types.npy", npy_int64({6}, {0, 1, 2, 3, 0, 0}), "item 3 is 3"));
  EXPECT_TRUE(damaged("message_mask.npy", npy_bool({6}, "111111"), "carries messages"));
  EXPECT_TRUE(damaged("val_negatives.npy", npy_int64({2, 3}, {0, 1, 2, 4, 4, 9}), "item 5 is 9"));
  EXPECT_TRUE(damaged("val_negative_dst.npy", npy_int64({3, 1}, {0, 3, 3}), "its shape is [3, 1]"));
  EXPECT_TRUE(damaged("indptr.npy", npy_int64({6}, {0, -5, 2, 3, 4, 6}), "decreases after row"));
}

}  // namespace
}  // namespace mezzo::test::fixed_links_test
