
#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo {
namespace {

/// The real data sets; skipped unless MEZZO_SHARED_DATA is their folder.
class SharedData : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("MEZZO_SHARED_DATA");
    if (folder == nullptr || *folder == '\0') {
      GTEST_SKIP() << "MEZZO_SHARED_DATA does not name the folder of the shared data sets";
    }
    folder_ = folder;
  }

  Dataset load(const std::string& name, const LoadOptions& options = {}) const {
    return load_dataset((folder_ / name).string(), options);
  }

  std::filesystem::path folder_;
};

void expect_equal(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.num_classes, b.num_classes);
  EXPECT_TRUE(at::equal(a.src, b.src));
  EXPECT_TRUE(at::equal(a.dst, b.dst));
  EXPECT_TRUE(at::equal(a.labels, b.labels));
  EXPECT_TRUE(at::equal(a.train_masks, b.train_masks));
  EXPECT_TRUE(at::equal(a.val_masks, b.val_masks));
  EXPECT_TRUE(at::equal(a.test_masks, b.test_masks));
  ASSERT_EQ(a.features.layout(), b.features.layout());
  if (a.features.layout() == at::kStrided) {
    EXPECT_TRUE(at::equal(a.features, b.features));
    return;
  }
  EXPECT_EQ(a.features.sizes(), b.features.sizes());
  EXPECT_TRUE(at::equal(a.features.crow_indices(), b.features.crow_indices()));
  EXPECT_TRUE(at::equal(a.features.col_indices(), b.features.col_indices()));
  EXPECT_TRUE(at::equal(a.features.values(), b.features.values()));
}

TEST_F(SharedData, npy_folders_have_the_documented_counts) {
  struct Counts {
    const char* name;
    std::int64_t nodes, edges, features, classes, splits;
    std::int64_t train, val, test;  // of the first split
    Metric metric = Metric::kAccuracy;
  };
  for (const Counts& set : std::vector<Counts>{
           {"cora", 2708, 10556, 1433, 7, 1, 140, 500, 1000},
           {"citeseer", 3327, 9104, 3703, 6, 1, 120, 500, 1000},
           {"amazon-photo", 7650, 238162, 745, 8, 10, 160, 240, 7250},
           {"dblp", 17716, 105734, 1639, 4, 10, 80, 120, 17516},
           {"coauthor-physics", 34493, 495924, 8415, 5, 10, 100, 150, 34243},
           {"blogcatalog", 5196, 343486, 8189, 6, 3, 120, 500, 1000},
           {"actor", 7600, 53318, 932, 5, 10, 3648, 2432, 1520},
           {"minesweeper", 10000, 78804, 7, 2, 10, 5000, 2500, 2500, Metric::kRocAuc}}) {
    SCOPED_TRACE(set.name);
    const Dataset data = load(set.name);
    EXPECT_EQ(data.name, set.name);
    EXPECT_EQ(data.num_nodes, set.nodes);
    EXPECT_EQ(data.num_edges(), set.edges);
    EXPECT_EQ(data.num_features(), set.features);
    EXPECT_EQ(data.num_classes, set.classes);
    EXPECT_EQ(data.num_splits(), set.splits);
    EXPECT_EQ(data.metric, set.metric);
    EXPECT_EQ(data.features.layout(), set.features == 7 ? at::kStrided : at::kSparseCsr);
    const SplitMasks masks = data.split(0);
    EXPECT_EQ(masks.train.sum().item<std::int64_t>(), set.train);
    EXPECT_EQ(masks.val.sum().item<std::int64_t>(), set.val);
    EXPECT_EQ(masks.test.sum().item<std::int64_t>(), set.test);
  }
}

TEST_F(SharedData, further_splits_are_picked_by_name) {
  EXPECT_EQ(load("amazon-photo", {.split = "602020"}).num_splits(), 1);
  EXPECT_EQ(load("coauthor-physics", {.split = "602020"}).num_splits(), 1);
  EXPECT_EQ(load("blogcatalog", {.split = "602020"}).num_splits(), 10);
  EXPECT_EQ(load("dblp", {.split = "101080"}).num_splits(), 10);
}

TEST_F(SharedData, planetoid_pickles_equal_the_npy_folders) {
  for (const char* name : {"cora", "citeseer"}) {
    SCOPED_TRACE(name);
    expect_equal(load(std::string("raw/planetoid/ind.") + name), load(name));
  }
}

TEST_F(SharedData, the_heterophilous_npz_equals_the_npy_folder) {
  const Dataset npz = load("raw/heterophilous/minesweeper.npz");
  expect_equal(npz, load("minesweeper"));
  EXPECT_EQ(npz.metric, Metric::kRocAuc);
}

TEST_F(SharedData, the_gnn_benchmark_npz_has_its_counts) {
  const Dataset data = load("raw/gnn-benchmark/citeseer.npz");
  EXPECT_EQ(data.num_nodes, 3312);
  EXPECT_EQ(data.num_edges(), 9072);
  EXPECT_EQ(data.num_features(), 3703);
  EXPECT_EQ(data.features.values().numel(), 105165);
  EXPECT_EQ(data.num_classes, 6);
  EXPECT_EQ(data.class_names.size(), 6U);
  EXPECT_EQ(data.num_splits(), 1);
}

TEST_F(SharedData, normalised_rows_sum_to_one) {
  const at::Tensor features = load("cora", {.normalize_features = true}).features;
  const at::Tensor lengths = features.crow_indices().diff();
  const at::Tensor expected = at::repeat_interleave(1.0 / lengths.to(at::kDouble), lengths);
  EXPECT_TRUE(at::equal(features.values(), expected.to(at::kFloat)));  // words are 0 or 1
}

TEST_F(SharedData, the_list_finds_every_folder) {
  const std::vector<KnownDataset> listed = list_datasets(folder_.string());
  EXPECT_EQ(listed.size(), 1U + 8U);
}

}  // namespace
}  // namespace mezzo
