// Links as the task of any graph.
#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test::links_test {
namespace {

constexpr Task kLinks = LinkTask::kind;

/// A ring of 40 nodes in both directions, every edge twice, and a loop.
class LinkFolder : public testing::Test {
 protected:
  LinkFolder() {
    std::vector<std::int64_t> src, dst;
    for (int copy = 0; copy < 2; ++copy) {
      for (std::int64_t node = 0; node < kNodes; ++node) {
        const std::int64_t next = (node + 1) % kNodes;
        src.insert(src.end(), {node, next});
        dst.insert(dst.end(), {next, node});
      }
    }
    src.push_back(3);
    dst.push_back(3);
    num_edges_ = static_cast<std::int64_t>(src.size());
    src.insert(src.end(), dst.begin(), dst.end());
    folder_.write("edge_index.npy", npy_int64({2, num_edges_}, src));
    folder_.write("features.npy", npy_float32({kNodes, 1}, std::vector<float>(kNodes, 1)));
  }

  Dataset load(LoadOptions options = {}) const {
    options.task = kLinks;
    return load_dataset(folder_.path(), options);
  }
  void write_masks(std::int64_t count) const {
    const auto every_third = [count](std::int64_t first) {
      std::string bits(static_cast<std::size_t>(count), '0');
      for (auto i = static_cast<std::size_t>(first); i < bits.size(); i += 3) bits[i] = '1';
      return npy_bool({count}, bits);
    };
    folder_.write("train_mask.npy", every_third(0));
    folder_.write("val_mask.npy", every_third(1));
    folder_.write("test_mask.npy", every_third(2));
  }

  static constexpr std::int64_t kNodes = 40;
  std::int64_t num_edges_ = 0;
  TempFolder folder_;
};

std::int64_t count(const at::Tensor& mask) {
  return mask.sum().item<std::int64_t>();
}

TEST_F(LinkFolder, is_split_by_pairs_of_nodes) {
  const Dataset data = load();
  EXPECT_EQ(data.task(), kLinks);
  EXPECT_EQ(data.metric, Metric::kRocAuc);
  EXPECT_EQ(data.num_targets(), num_edges_);
  EXPECT_EQ(data.labels.sizes(), at::IntArrayRef({num_edges_, 1}));
  // 40 pairs of 4 edges: 2 for validation, 4 for testing; the loop is nowhere.
  EXPECT_EQ(count(data.val_masks), 4 * 2);
  EXPECT_EQ(count(data.test_masks), 4 * 4);
  EXPECT_EQ(count(data.train_masks), 4 * 34);
  const at::Tensor all = data.train_masks.logical_or(data.val_masks).logical_or(data.test_masks);
  EXPECT_FALSE(all[num_edges_ - 1][0].item<bool>());
  const at::Tensor pairs =
      at::minimum(data.src, data.dst) * kNodes + at::maximum(data.src, data.dst);
  const auto of = [&](const at::Tensor& mask) { return pairs.masked_select(mask.squeeze(1)); };
  EXPECT_FALSE(at::isin(of(data.val_masks), of(data.train_masks)).any().item<bool>());
  EXPECT_FALSE(at::isin(of(data.test_masks), of(data.train_masks)).any().item<bool>());
  EXPECT_TRUE(at::equal(load().test_masks, data.test_masks));
  EXPECT_FALSE(at::equal(load({.split_seed = 1}).test_masks, data.test_masks));
  data.validate();
}

TEST_F(LinkFolder, has_masks_of_edges_unless_they_belong_to_other_labels) {
  write_masks(num_edges_);
  folder_.write("meta.json", R"({"metric": "MRR"})");
  const Dataset data = load();
  EXPECT_EQ(data.metric, Metric::kMrr);
  EXPECT_TRUE(data.val_masks[1][0].item<bool>());
  EXPECT_EQ(count(data.train_masks), (num_edges_ + 2) / 3);
  write_masks(kNodes);
  EXPECT_TRUE(throws<IoError>([&] { load(); }, {"train_mask.npy", std::to_string(num_edges_)}));
  folder_.write("labels.npy", npy_int64({kNodes}, std::vector<std::int64_t>(kNodes, 0)));
  EXPECT_EQ(count(load().test_masks), 4 * 4);
  EXPECT_EQ(load().metric, Metric::kRocAuc);
  folder_.write("meta.json", R"({"task": "link"})");
  EXPECT_TRUE(throws<IoError>([&] { load(); }, {"train_mask.npy"}));
  write_masks(num_edges_);
  EXPECT_EQ(load_dataset(folder_.path()).task(), kLinks);
  folder_.write("meta.json", "{}");
  EXPECT_TRUE(throws<InvalidArgument>([&] { load({.split = "other"}); }, {"other"}));
}

TEST_F(LinkFolder, classes_of_edges_are_types) {
  std::vector<std::int64_t> types(static_cast<std::size_t>(num_edges_), 0);
  types[5] = 2;
  folder_.write("edge_labels.npy", npy_int64({num_edges_}, types));
  Dataset data = load();
  EXPECT_EQ(data.num_edge_types, 3);
  EXPECT_EQ(data.edge_types[5].item<std::int64_t>(), 2);
  data.validate();
  write_masks(num_edges_);
  EXPECT_EQ(load().num_edge_types, 3);
  EXPECT_TRUE(load().val_masks[1][0].item<bool>());
  data.num_edge_types = 2;
  EXPECT_TRUE(throws<InvalidArgument>([&] { data.validate(); }, {"edge types", "item 5 is 2"}));
  types[7] = -1;
  folder_.write("edge_labels.npy", npy_int64({num_edges_}, types));
  EXPECT_TRUE(throws<IoError>([&] { load(); }, {"without a class"}));
  folder_.write("edge_labels.npy",
                npy_float32({num_edges_}, std::vector<float>(types.size(), 0.5F)));
  EXPECT_FALSE(load().edge_types.defined());
}

TEST_F(LinkFolder, a_metric_must_fit) {
  EXPECT_EQ(load({.metric = Metric::kHitsAt10}).metric, Metric::kHitsAt10);
  EXPECT_TRUE(throws<InvalidArgument>([&] { load({.metric = Metric::kAccuracy}); },
                                      {"metric: accuracy", "link"}));
}

TEST_F(LinkFolder, too_few_pairs_cannot_be_split) {
  folder_.write("edge_index.npy", npy_int64({2, 5}, {0, 1, 2, 1, 4, 1, 0, 1, 2, 4}));
  EXPECT_TRUE(throws<IoError>([&] { load(); }, {"2 pairs", "at least 3"}));
  folder_.write("edge_index.npy", npy_int64({2, 3}, {0, 1, 2, 1, 2, 3}));
  EXPECT_EQ(count(load().train_masks), 1);
  folder_.write("graph_offsets.npy", npy_int64({3}, {0, 20, kNodes}));
  EXPECT_TRUE(throws<InvalidArgument>([&] { load(); }, {"set of graphs"}));
}

}  // namespace
}  // namespace mezzo::test::links_test
