#include "mezzo/data/dataset.h"

#include <cmath>
#include <functional>

#include <ATen/ATen.h>
#include <unistd.h>

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

/// A valid data set: two nodes, one edge in both directions.
Dataset small_dataset() {
  Dataset data;
  data.name = "small";
  data.num_nodes = 2;
  data.num_classes = 2;
  data.src = at::tensor({0, 1}, at::kLong);
  data.dst = at::tensor({1, 0}, at::kLong);
  data.features = at::ones({2, 3});
  data.labels = at::tensor({0, 1}, at::kLong);
  data.train_masks = at::tensor({1, 0}).to(at::kBool).view({2, 1});
  data.val_masks = at::tensor({0, 1}).to(at::kBool).view({2, 1});
  data.test_masks = at::zeros({2, 1}, at::kBool);
  return data;
}

at::Tensor csr(const std::vector<std::int64_t>& indptr, const std::vector<std::int64_t>& indices,
               const std::vector<float>& values, std::int64_t width) {
  return at::_sparse_csr_tensor_unsafe(
      at::tensor(indptr, at::kLong), at::tensor(indices, at::kLong), at::tensor(values, at::kFloat),
      {static_cast<std::int64_t>(indptr.size()) - 1, width},
      at::TensorOptions(at::kFloat).layout(at::kSparseCsr));
}

testing::AssertionResult invalid(const std::function<void(Dataset&)>& spoil,
                                 const std::string& fault, Dataset data = small_dataset()) {
  spoil(data);
  return throws<InvalidArgument>([&] { data.validate(); }, {"data set 'small'", fault});
}

TEST(Dataset, a_sound_one_passes) {
  EXPECT_NO_THROW(small_dataset().validate());
  Dataset data = small_dataset();
  data.features = csr({0, 1, 2}, {2, 0}, {1, 1}, 3);
  EXPECT_NO_THROW(data.validate());
  data.features = at::Tensor();
  EXPECT_NO_THROW(data.validate());
}

TEST(Dataset, wrong_edges_are_named) {
  EXPECT_TRUE(invalid([](Dataset& d) { d.src = at::Tensor(); }, "src is undefined"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.src = d.src.to(at::kInt); }, "src: expected int64"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.src = d.src.slice(0, 0, 1); }, "1 sources for 2"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.dst[1] = 2; }, "dst: item 1 is 2, outside [0, 2)"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.dst[1] = -1; }, "dst: item 1 is -1"));
}

/// The two edges of small_dataset() as CSR rows by destination.
Dataset small_dataset_by_rows() {
  Dataset data = small_dataset();
  data.src = data.dst = at::Tensor();
  data.indptr = at::tensor({0, 1, 2}, at::kLong);
  data.indices = at::tensor({1, 0}, at::kInt);
  return data;
}

TEST(Dataset, wrong_edge_weights_are_named) {
  Dataset data = small_dataset();
  data.edge_weights = at::tensor({0.5F, -1.0F});
  EXPECT_NO_THROW(data.validate());
  EXPECT_TRUE(invalid([](Dataset& d) { d.edge_weights = at::ones({3}); }, "3 numbers for 2 edges"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.edge_weights = at::ones({2}, at::kDouble); },
                      "edge_weights: expected float32"));
  EXPECT_TRUE(invalid(
      [](Dataset& d) {
        d.edge_weights = at::tensor({1.0F, INFINITY});
      },
      "edge_weights: number 1 is inf"));
}

TEST(Dataset, edges_may_stand_as_rows_by_destination) {
  Dataset data = small_dataset_by_rows();
  EXPECT_NO_THROW(data.validate());
  EXPECT_EQ(data.num_edges(), 2);
  data.indices = data.indices.to(at::kLong);
  EXPECT_NO_THROW(data.validate());
}

TEST(Dataset, wrong_rows_are_named) {
  const auto wrong = [](const std::function<void(Dataset&)>& spoil, const std::string& fault) {
    return invalid(spoil, fault, small_dataset_by_rows());
  };
  EXPECT_TRUE(wrong([](Dataset& d) { d.src = at::zeros({2}, at::kLong); }, "edges once"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indices = at::Tensor(); }, "indices is undefined"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indptr = at::Tensor(); }, "indptr is undefined"));
  EXPECT_TRUE(
      wrong([](Dataset& d) { d.indptr = d.indptr.to(at::kInt); }, "indptr: expected int64"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indices = d.indices.to(at::kShort); }, "indices: expected"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indptr = d.indptr.slice(0, 0, 2); }, "2 row starts for 2"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indptr[2] = 3; }, "runs from 0 to 3, expected 0 to 2"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indptr[1] = 3; }, "decreases after row 1"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indices[1] = 2; }, "indices: item 1 is 2, outside [0, 2)"));
  EXPECT_TRUE(wrong([](Dataset& d) { d.indices[0] = -1; }, "indices: item 0 is -1"));
}

TEST(Dataset, of_many_wrong_sources_the_first_is_named) {
  Dataset data = small_dataset_by_rows();
  constexpr std::int64_t kEdges = 1 << 20;
  data.indptr = at::tensor({std::int64_t{0}, kEdges, kEdges}, at::kLong);
  data.indices = at::zeros({kEdges}, at::kInt);
  data.indices.slice(0, 300000, kEdges).fill_(7);
  EXPECT_THROWS(InvalidArgument, "indices: item 300000 is 7", data.validate());
}

TEST(Dataset, labels_may_be_missing_with_all_that_speaks_of_them) {
  const auto without = [](const std::function<void(Dataset&)>& change) {
    Dataset data = small_dataset();
    data.labels = data.train_masks = data.val_masks = data.test_masks = at::Tensor();
    data.num_classes = 0;
    change(data);
    return data;
  };
  EXPECT_NO_THROW(without([](Dataset& /*d*/) {}).validate());
  EXPECT_EQ(without([](Dataset& /*d*/) {}).num_splits(), 0);
  const auto fault = [&](const std::function<void(Dataset&)>& change, const std::string& text) {
    return throws<InvalidArgument>([&] { without(change).validate(); }, {text});
  };
  EXPECT_TRUE(fault([](Dataset& d) { d.num_classes = 2; }, "labels is undefined"));
  EXPECT_TRUE(fault([](Dataset& d) { d.class_names = {"a"}; }, "labels is undefined"));
  EXPECT_TRUE(fault([](Dataset& d) { d.train_masks = small_dataset().train_masks; },
                    "labels is undefined, but it has masks"));
}

TEST(Dataset, features_may_have_16_bits_and_mapped_ones_are_not_read) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    Dataset data = small_dataset();
    data.features = data.features.to(dtype);
    EXPECT_NO_THROW(data.validate());
    data.features[1][2] = INFINITY;
    EXPECT_THROWS(InvalidArgument, "row 1, column 2 is inf", data.validate());
    data.is_mapped = true;
    EXPECT_NO_THROW(data.validate());
  }
}

TEST(Dataset, wrong_labels_are_named) {
  EXPECT_TRUE(invalid([](Dataset& d) { d.num_nodes = 3; }, "2 labels for 3 nodes"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.num_nodes = 0; }, "no nodes"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.num_classes = 1; }, "labels: item 1 is 1"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.labels[0] = -2; }, "labels: item 0 is -2"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.class_names = {"a"}; }, "1 class names for 2 classes"));
  EXPECT_TRUE(invalid(
      [](Dataset& d) {
        d.num_classes = 3;
        d.metric = Metric::kRocAuc;
      },
      "roc_auc does not fit the task node-class of 3 classes"));
}

TEST(Dataset, a_node_without_a_label_is_in_no_mask) {
  Dataset data = small_dataset();
  data.labels[1] = kNoLabel;
  EXPECT_THROWS(InvalidArgument, "node 1 has no label, but is in a mask of split 0",
                data.validate());
  data.val_masks[1] = false;
  EXPECT_NO_THROW(data.validate());
}

TEST(Dataset, wrong_features_are_named) {
  EXPECT_TRUE(invalid([](Dataset& d) { d.features = at::eye(3); }, "expected float32 [2, F]"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.features = at::ones({2}); }, "expected float32 [2, F]"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.features = d.features.to(at::kDouble); }, "got float64"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.features[1][2] = INFINITY; }, "row 1, column 2 is inf"));
}

TEST(Dataset, wrong_sparse_features_are_named) {
  const auto with = [](const at::Tensor& features) {
    return [=](Dataset& d) { d.features = features; };
  };
  EXPECT_TRUE(invalid(with(csr({0, 1, 3}, {2, 0}, {1, 1}, 3)), "row starts do not fit"));
  EXPECT_TRUE(invalid(with(csr({0, 3, 2}, {2, 0}, {1, 1}, 3)), "row starts decrease"));
  EXPECT_TRUE(invalid(with(csr({0, 1, 2}, {3, 0}, {1, 1}, 3)), "columns of row 0"));
  EXPECT_TRUE(invalid(with(csr({0, 2, 2}, {1, 1}, {1, 1}, 3)), "columns of row 0"));
  EXPECT_TRUE(invalid(with(csr({0, 1, 2}, {2, 0}, {1, NAN}, 3)), "value 1 is nan"));
}

TEST(Dataset, wrong_masks_are_named) {
  EXPECT_TRUE(invalid([](Dataset& d) { d.val_masks = at::Tensor(); }, "val masks is undefined"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.val_masks = d.train_masks; },
                      "node 0 is in two masks of split 0, train and val"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.val_masks = at::zeros({2, 2}, at::kBool); }, "[2, 1]"));
  EXPECT_TRUE(
      invalid([](Dataset& d) { d.val_masks = d.val_masks.to(at::kLong); }, "expected bool"));
  EXPECT_TRUE(invalid(
      [](Dataset& d) {
        d.train_masks = d.val_masks = d.test_masks = at::zeros({2, 0}, at::kBool);
      },
      "no split"));
}

TEST(Dataset, splits_outside_the_range_are_invalid) {
  const Dataset data = small_dataset();
  EXPECT_TRUE(at::equal(data.split(0).val, at::tensor({0, 1}).to(at::kBool)));
  for (const std::int64_t index : {-1, 1}) {
    EXPECT_THROWS(InvalidArgument, fragments("outside [0, 1)", "small"), data.split(index));
  }
}

TEST(NormalizeRows, divides_by_the_sum_of_magnitudes_and_leaves_zero_rows) {
  const at::Tensor dense = at::tensor({1.F, -3.F, 0.F, 0.F, 0.F, 2.F}).view({3, 2});
  const at::Tensor expected = at::tensor({0.25F, -0.75F, 0.F, 0.F, 0.F, 1.F}).view({3, 2});
  EXPECT_TRUE(at::equal(normalize_rows(dense), expected));
  EXPECT_TRUE(at::equal(normalize_rows(dense.t().contiguous().t()), expected));
  const at::Tensor sparse = normalize_rows(csr({0, 2, 2, 3}, {0, 1, 1}, {1, -3, 2}, 2));
  EXPECT_EQ(sparse.layout(), at::kSparseCsr);
  EXPECT_TRUE(at::equal(sparse.to_dense(), expected));
}

TEST(NormalizeRows, sums_beyond_the_float_range_do_not_overflow) {
  EXPECT_TRUE(at::equal(normalize_rows(at::full({1, 2}, 3e38F)), at::full({1, 2}, 0.5F)));
}

TEST(NormalizeRows, leaves_its_argument_alone) {
  const at::Tensor dense = at::full({1, 2}, 2.F);
  normalize_rows(dense);
  EXPECT_TRUE(at::equal(dense, at::full({1, 2}, 2.F)));
}

TEST(NormalizeRows, refuses_other_tensors) {
  EXPECT_THROWS(InvalidArgument, fragments("normalize_rows", "undefined"), normalize_rows({}));
  EXPECT_THROWS(InvalidArgument, "float32 [N, F]", normalize_rows(at::ones({2})));
  EXPECT_THROWS(InvalidArgument, "float32 [N, F]", normalize_rows(at::eye(2, at::kDouble)));
}

TEST(LoadDataset, an_unknown_name_lists_the_known_ones) {
  EXPECT_THROWS(InvalidArgument, fragments("'no_such_name'", "wordnet"),
                load_dataset("no_such_name"));
  EXPECT_THROWS(InvalidArgument, "wordnet", load_dataset(""));
}

TEST(LoadDataset, a_path_to_nothing_is_an_io_error) {
  EXPECT_THROWS(IoError, "./nothing/here: no such file or folder", load_dataset("./nothing/here"));
}

TEST(LoadDataset, folders_and_files_of_other_kinds_are_io_errors) {
  const TempFolder folder;
  EXPECT_THROWS(IoError, "holds no data set", load_dataset(folder.path()));
  const std::string file = folder.write("readme.md", "text");
  EXPECT_THROWS(IoError, fragments(file, "expected a file .npz"), load_dataset(file));
  const std::string table = folder.write("table.tsv", "a\tb\tc\n");
  EXPECT_THROWS(IoError, fragments(table, "expected a file .npz"), load_dataset(table));
  const std::string zip = folder.write("zip", "PK");
  EXPECT_THROWS(IoError, fragments(zip, "not a readable npz"), load_dataset(zip));
  EXPECT_THROWS(IoError, "not a regular file", load_dataset("/dev/null"));
}

TEST(ListDatasets, finds_the_folders_and_files_that_can_be_read) {
  const TempFolder folder;
  folder.write("b/labels.npy", "");
  folder.write("a/ind.x.graph", "");
  folder.write("a/ind.y.graph", "");
  folder.write("c/readme.txt", "");
  folder.write("data.noun", "");
  folder.write("damaged.npz", "PK");
  folder.write("damaged.gz", "1 2");
  folder.write("graph.txt", "# nodes\n1 2\n");
  folder.write("notes.txt", "dear diary");
  folder.write("small.npz", npz_bytes({{"node_features", npy_float32({1, 1}, {1})}}));
  const std::vector<KnownDataset> listed = list_datasets(folder.path());
  ASSERT_EQ(listed.size(), 7U);
  EXPECT_EQ(listed[0].name, "wordnet");
  EXPECT_EQ(listed[1].path, folder.path());
  EXPECT_EQ(listed[1].description, "WordNet dictionary");
  EXPECT_EQ(listed[2].name, "x");
  EXPECT_EQ(listed[2].path, folder.path("a/ind.x"));
  EXPECT_EQ(listed[3].name, "y");
  EXPECT_EQ(listed[4].name, "b");
  EXPECT_EQ(listed[4].description, "npy folder");
  EXPECT_EQ(listed[5].path, folder.path("graph.txt"));
  EXPECT_EQ(listed[6].name, "small");
  EXPECT_EQ(listed[6].description, "heterophilous-graphs npz");
  EXPECT_THROWS(IoError, "no such folder", list_datasets(folder.path("none")));
}

TEST(ListDatasets, leaves_out_what_cannot_be_looked_at) {
  const TempFolder folder;
  std::filesystem::create_symlink("loop", folder.path("loop"));
  folder.write("notes/labels.npy/x", "");  // a folder where a file is expected
  const std::string graph = folder.write("z.txt", "1 2\n");
  const std::vector<KnownDataset> listed = list_datasets(folder.path());
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed[1].path, folder.path("notes"));  // listing opens no arrays
  EXPECT_EQ(listed[2].path, graph);
  EXPECT_THROWS(IoError, "not a regular file", load_dataset(folder.path("notes")));
  EXPECT_THROWS(IoError, fragments(graph, "no such folder"), list_datasets(graph));
}

TEST(ListDatasets, leaves_out_a_folder_that_may_not_be_read) {
  namespace fs = std::filesystem;
  if (geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  const TempFolder folder;
  folder.write("a/labels.npy", "");
  folder.write("b/labels.npy", "");
  const auto let = [&](fs::perms rights) { fs::permissions(folder.path("a"), rights); };
  let(fs::perms::none);
  const std::vector<KnownDataset> listed = list_datasets(folder.path());
  const testing::AssertionResult refused =
      throws<IoError>([&] { list_datasets(folder.path("a")); }, {folder.path("a")});
  let(fs::perms::owner_all);  // so the folder can be deleted
  EXPECT_TRUE(refused);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[1].path, folder.path("b"));
}

}  // namespace
}  // namespace mezzo::test
