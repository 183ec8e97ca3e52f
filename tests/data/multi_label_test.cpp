#include <functional>
#include <limits>

#include "mezzo/data/convert.h"
#include "mezzo/data/parts.h"

#include "data/source/source_reader.h"

namespace mezzo::test {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

/// Four nodes, three classes; node 3 has no entry. Entries as in Dataset::labels.
const std::vector<std::int64_t> kEntries = {1, 0, 1, 0, 0, 255, 0, 1, 0, 255, 255, 255};

void expect_entries(const Dataset& data, Metric metric) {
  EXPECT_EQ(data.task().labels, LabelKind::kMultiLabel);
  EXPECT_EQ(data.num_classes, 3);
  EXPECT_EQ(data.metric, metric);
  EXPECT_EQ(data.labels.scalar_type(), at::kByte);
  EXPECT_EQ(data.labels.sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(integers_of(data.labels), kEntries);
  EXPECT_EQ(integers_of(data.has_label()), (std::vector<std::int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 1, 0}));
}

class MultiLabelFolder : public SourceFolder {
 protected:
  static std::string npy_uint8(const std::vector<std::int64_t>& shape,
                               const std::vector<std::int64_t>& items) {
    std::string bytes;
    for (const std::int64_t item : items) bytes += static_cast<char>(item);
    return npy("|u1", shape, bytes);
  }

  void write_ogb_text(const std::string& labels) const {
    write("raw/num-node-list.csv.gz", gzip("4\n"));
    write("raw/num-edge-list.csv.gz", gzip("2\n"));
    write("raw/edge.csv.gz", gzip("0,1\n2,1\n"));
    write("raw/node-feat.csv.gz", gzip("1\n2\n3\n4\n"));
    write("raw/node-label.csv.gz", gzip(labels));
  }

  void write_ogb_splits() const {
    write("split/species/train.csv.gz", gzip("0\n3\n"));
    write("split/species/valid.csv.gz", gzip("1\n"));
    write("split/species/test.csv.gz", gzip("2\n"));
  }

  void write_npy_folder(const std::string& labels) const {
    write("edge_index.npy", npy_int64({2, 2}, {0, 2, 1, 1}));
    write("features.npy", npy_float32({4, 1}, {1, 2, 3, 4}));
    write("labels.npy", labels);
    write("train_mask.npy", npy_bool({4}, "1001"));
    write("val_mask.npy", npy_bool({4}, "0100"));
    write("test_mask.npy", npy_bool({4}, "0010"));
  }

  void write_graphsaint(const std::string& classes) const {
    write("adj_full.npz", zip_bytes({{"data.npy", npy_bool({2}, "11"), 8},
                                     {"format.npy", npy("|S3", {}, "csr"), 8},
                                     {"indices.npy", npy_int32({2}, {1, 1}), 8},
                                     {"indptr.npy", npy_int32({5}, {0, 1, 1, 2, 2}), 8},
                                     {"shape.npy", npy_int64({2}, {4, 4}), 8}}));
    write("feats.npy", npy_float32({4, 1}, {1, 2, 3, 4}));
    write("class_map.json", classes);
    write("role.json", R"({"tr": [0, 3], "va": [1], "te": [2]})");
  }
};

TEST_F(MultiLabelFolder, of_ogb_as_text_is_judged_by_roc_auc) {
  write_ogb_text("1,0,1.0\n0,0,nan\n0,1,0\n,nan,\n");
  EXPECT_THROWS(IoError, "node 3 has no label", read());
  write_ogb_splits();
  expect_entries(read(), Metric::kRocAuc);
  EXPECT_TRUE(refused("raw/node-label.csv.gz", gzip("1,0,1\n0,0\n0,1,0\n0,0,0\n"),
                      {"node-label.csv.gz:2: 2 labels, the first line has 3"}));
  EXPECT_TRUE(refused("raw/node-label.csv.gz", gzip("1,0,1\n0,0,2\n0,1,0\n0,0,0\n"),
                      {"node-label.csv.gz:2: label 2 among several, expected 0 or 1"}));
  EXPECT_TRUE(refused("raw/node-label.csv.gz", gzip("nan,\n,\n,\n,\n"), {"no node has a label"}));
}

TEST_F(MultiLabelFolder, of_ogb_in_binary_form_is_the_same) {
  write("raw/data.npz", npz_bytes({{"edge_index", npy_int64({2, 2}, {0, 2, 1, 1})},
                                   {"node_feat", npy_float32({4, 1}, {1, 2, 3, 4})},
                                   {"num_nodes_list", npy_int64({1}, {4})},
                                   {"num_edges_list", npy_int64({1}, {2})}}));
  write_ogb_splits();
  write("raw/node-label.npz",
        npz_bytes({{"node_label", npy_float32({4, 3}, {1, 0, 1, 0, 0, kMissing, 0, 1, 0, kMissing,
                                                       kMissing, kMissing})}}));
  expect_entries(read(), Metric::kRocAuc);
  write("raw/node-label.npz",
        npz_bytes({{"node_label", npy_int64({4, 3}, {1, 0, 1, 0, 0, -1, 0, 1, 0, -1, -1, -1})}}));
  expect_entries(read(), Metric::kRocAuc);
}

TEST_F(MultiLabelFolder, of_graphsaint_has_lists_and_is_judged_by_micro_f1) {
  write_graphsaint(R"({"2": [0, 1, 0], "0": [1, 0, 1], "1": [0, 0, 1]})");
  const Dataset data = read();
  EXPECT_EQ(data.metric, Metric::kMicroF1);
  EXPECT_EQ(integers_of(data.labels),
            (std::vector<std::int64_t>{1, 0, 1, 0, 0, 1, 0, 1, 0, 255, 255, 255}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
  for (const auto& [classes, fault] : std::vector<std::pair<std::string, std::string>>{
           {R"({"0": [1, 0], "1": [1]})", "node 1 has no list of 2 classes"},
           {R"({"0": [1, 0], "1": 1})", "node 1 has no list of 2 classes"},
           {R"({"0": [1, 2]})", "node 0 has 2 for class 1, expected 0 or 1"},
           {R"({"0": [1, "1"]})", "node 0 has \"1\" for class 1"},
           {R"({"0": []})", "empty list"},
           {R"({"9": [1, 0]})", "node 9"}}) {
    EXPECT_TRUE(refused("class_map.json", classes, {"class_map.json", fault})) << classes;
  }
}

TEST_F(MultiLabelFolder, of_arrays_says_by_which_metric_it_is_judged) {
  for (const std::string& labels :
       {npy_uint8({4, 3}, kEntries), npy_int64({4, 3}, {1, 0, 1, 0, 0, -1, 0, 1, 0, -1, 255, -1}),
        npy("|i1", {4, 3}, std::string("\1\0\1\0\0\xff\0\1\0\xff\xff\xff", 12)),
        npy_float32({4, 3}, {1, 0, 1, 0, 0, kMissing, 0, 1, 0, -1, -1, kMissing})}) {
    write_npy_folder(labels);
    expect_entries(load_dataset(root()), Metric::kMicroF1);
  }
  write("meta.json", R"({"metric": "ROC AUC", "num_classes": 3})");
  expect_entries(load_dataset(root()), Metric::kRocAuc);
  write("meta.json", R"({"metric": "micro_f1"})");
  expect_entries(load_dataset(root()), Metric::kMicroF1);
  const auto fault = [&](const std::string& meta, const std::string& text) {
    write("meta.json", meta);
    return throws<IoError>([&] { load_dataset(root()); }, {text});
  };
  EXPECT_TRUE(fault(R"({"metric": "accuracy"})", "accuracy does not fit"));
  EXPECT_TRUE(fault(R"({"num_classes": 4})", "4 classes are declared, the labels have 3 columns"));
  for (const char* role : {"train", "val", "test"}) {
    folder_.remove(std::string("set/") + role + "_mask.npy");
  }
  EXPECT_TRUE(fault("{}", "1 nodes have no label"));
}

TEST_F(MultiLabelFolder, is_converted_and_cut_into_parts_without_loss) {
  write_npy_folder(npy_uint8({4, 3}, kEntries));
  const std::string whole = folder_.path("whole");
  convert_dataset(root(), whole);
  expect_entries(load_dataset(whole), Metric::kMicroF1);
  convert_dataset(whole, folder_.path("again"));
  expect_entries(load_dataset(folder_.path("again")), Metric::kMicroF1);
  write_parts(load_dataset(whole), at::tensor({0, 0, 1, 1}, at::kLong), folder_.path("parts"),
              {.hops = 1});
  const Dataset part = load_dataset(folder_.path("parts/part0"));  // own: 0 and 1; halo: 2
  EXPECT_EQ(part.metric, Metric::kMicroF1);
  EXPECT_EQ(integers_of(part.labels),
            std::vector<std::int64_t>(kEntries.begin(), kEntries.end() - 3));
  // One item is not 0, 1 or missing.
  const std::string bad = npy_uint8({4, 3}, {1, 0, 1, 0, 7, 255, 0, 1, 0, 255, 255, 255});
  folder_.write("whole/labels.npy", bad);
  EXPECT_THROWS(IoError, "node 1 has 7 for class 1", load_dataset(whole));
}

TEST(MultiLabelDataset, is_checked) {
  Dataset data;
  data.name = "small";
  data.num_nodes = data.num_classes = 2;
  data.src = data.dst = at::zeros({1}, at::kLong);
  data.labels = at::zeros({2, 2}, at::kByte);
  data.train_masks = at::ones({2, 1}, at::kBool);
  data.val_masks = data.test_masks = at::zeros({2, 1}, at::kBool);
  data.metric = Metric::kMicroF1;
  EXPECT_NO_THROW(data.validate());
  const auto invalid = [&](const std::function<void(Dataset&)>& spoil, const std::string& fault) {
    Dataset spoilt = data;
    spoilt.labels = data.labels.clone();
    spoil(spoilt);
    return throws<InvalidArgument>([&] { spoilt.validate(); }, {"data set 'small'", fault});
  };
  EXPECT_TRUE(invalid([](Dataset& d) { d.labels = d.labels.to(at::kLong); }, "labels: expected"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.num_classes = 3; }, "expected shape [2, 3], got [2, 2]"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.labels[1][0] = 2; }, "node 1 has 2 for class 0"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.metric = Metric::kAccuracy; }, "accuracy does not fit"));
  EXPECT_TRUE(invalid([](Dataset& d) { d.labels[1].fill_(kNoEntry); }, "node 1 has no label, but"));
  EXPECT_TRUE(
      invalid([](Dataset& d) { d.labels = at::zeros({2}, at::kLong); }, "micro_f1 does not fit"));
  const auto node = data.labels[1];
  node[0] = kNoEntry;
  EXPECT_NO_THROW(data.validate()) << "one entry is enough";
}

}  // namespace
}  // namespace mezzo::test
