#include "data/pickle/pickle_writer.h"
#include "data/source/source_reader.h"

namespace mezzo::test::graphbolt_test {
namespace {

const std::string kMetadata = R"(dataset_name: small
graph:
  nodes:
    - num: 4
  edges:
    - format: csv
      path: edges/all.csv
feature_data:
  - domain: node
    name: feat
    format: numpy
    in_memory: false
    path: data/feat.npy
  - {domain: node, name: year, format: numpy, path: data/year.npy}
tasks:
  - name: node_classification
    num_classes: 3
    train_set:
      - data:
          - {name: seeds, format: numpy, path: set/train.npy}
          - {name: labels, format: numpy, path: set/train-labels.npy}
    validation_set:
      - data:
          - {name: seeds, format: numpy, path: set/val.npy}
          - {name: labels, format: numpy, path: set/val-labels.npy}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

class GraphBoltFolder : public SourceFolder {
 protected:
  GraphBoltFolder() {
    write("metadata.yaml", kMetadata);
    write("edges/all.csv", "0,1\n2,3\n3,3\n");
    write("edges/all.npy", npy_int32({2, 3}, {0, 2, 3, 1, 3, 3}));
    write("data/feat.npy", npy_float32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
    write("data/year.npy", npy_int64({4, 1}, {1, 2, 3, 4}));
    write("set/train.npy", npy_int64({2}, {3, 1}));
    write("set/train-labels.npy", npy_int64({2}, {2, 1}));
    write("set/val.npy", npy_int32({1}, {0}));
    write("set/val-labels.npy", npy_int64({1, 1}, {1}));
  }

  testing::AssertionResult yaml_refused(const std::string& from, const std::string& to,
                                        const std::string& fault) const {
    return refused("metadata.yaml", replaced(kMetadata, from, to), {"metadata.yaml:", fault});
  }
};

TEST_F(GraphBoltFolder, is_read_with_edges_of_text_or_an_array) {
  for (const bool array : {false, true}) {
    if (array)
      write("metadata.yaml", replaced(kMetadata, "csv\n      path: edges/all.csv",
                                      "numpy\n      path: edges/all.npy"));
    const Dataset data = read();
    EXPECT_EQ(data.name, "small");
    EXPECT_EQ(data.num_classes, 3);
    EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 3}, {3, 3}}));
    EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 1, -1, 2}));
    EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{0, 1, 0, 1}));
    EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{1, 0, 0, 0}));
    EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 0, 0}));
  }
}

TEST_F(GraphBoltFolder, a_type_that_is_null_is_none) {
  std::string metadata = replaced(kMetadata, "- num: 4", "- type: null\n      num: 4");
  metadata = replaced(metadata, "- format: csv", "- type: null\n      format: csv");
  metadata = replaced(metadata, "- data:", "- type: null\n        data:");
  metadata = replaced(metadata, "  - domain: node", "  - type: null\n    domain: node");
  write("metadata.yaml", metadata);
  const Dataset data = read();
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 3}, {3, 3}}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{0, 1, 0, 1}));
  EXPECT_TRUE(yaml_refused("num: 4", "num: null", "'num' is missing"));
}

TEST_F(GraphBoltFolder, the_task_is_the_only_one_or_the_one_that_is_named) {
  EXPECT_EQ(read({.split = "node_classification"}).num_classes, 3);
  EXPECT_EQ(read().split_names, std::vector<std::string>{"node_classification"});
  EXPECT_THROWS(InvalidArgument, "'node_classification'", read({.split = "x"}));
  write("metadata.yaml", kMetadata + "  - name: link_prediction\n");
  EXPECT_THROWS(InvalidArgument, "'link_prediction'", read());
  EXPECT_EQ(read({.split = "node_classification"}).num_classes, 3);
  write("metadata.yaml", kMetadata.substr(0, kMetadata.find("tasks:")));
  EXPECT_THROWS(IoError, "no labels", read());
  EXPECT_EQ(read_graph(root()).num_nodes, 4);
}

TEST_F(GraphBoltFolder, faults_of_the_metadata_are_io_errors_with_their_line) {
  EXPECT_TRUE(refused("metadata.yaml", "a: [1\nb: }", {"metadata.yaml:", "YAML"}));
  EXPECT_TRUE(refused("metadata.yaml", "", {"metadata.yaml:"}));
  EXPECT_TRUE(refused("metadata.yaml", "graph_topology: {}", {"preprocessed"}));
  EXPECT_TRUE(yaml_refused("num: 4", "num: four", "4: 'num' is not an integer"));
  EXPECT_TRUE(yaml_refused("num: 4", "num: 0", "no nodes"));
  EXPECT_TRUE(yaml_refused("num: 4", "num: 9223372036854775807", "at most 2^48"));
  EXPECT_TRUE(
      yaml_refused("num: 4", "num: 4\n      type: user", "in a graph whose nodes have a type"));
  EXPECT_TRUE(yaml_refused("num: 4", "num: 4\n    - num: 2", "'nodes' has 2 entries"));
  EXPECT_TRUE(yaml_refused("format: csv", "format: torch", "'torch', expected csv or numpy"));
  EXPECT_TRUE(yaml_refused("path: edges/all.csv", "file: x", "'path' is missing"));
  EXPECT_TRUE(
      refused("metadata.yaml",
              replaced(kMetadata, "format: numpy\n    in_memory", "format: torch\n    in_memory"),
              {"feat.npy", "no file of torch.save"}));
  EXPECT_TRUE(yaml_refused("format: numpy\n    in_memory", "format: csv\n    in_memory", "'csv'"));
  EXPECT_TRUE(yaml_refused("name: feat", "name: other", "'other', 'year'"));
  EXPECT_TRUE(yaml_refused("name: labels", "name: indexes", "'seeds' and 'labels'"));
  EXPECT_TRUE(yaml_refused("num_classes: 3", "num_classes: 2", "2 classes are declared"));
  EXPECT_TRUE(yaml_refused("train_set", "training_set", "'train_set' has 0 entries"));
}

TEST_F(GraphBoltFolder, faults_of_the_files_are_io_errors) {
  EXPECT_TRUE(refused("edges/all.csv", "src,dst\n0,1\n", {"all.csv:1: ", "'src'"}));
  EXPECT_TRUE(refused("edges/all.csv", "0,1\n0,4\n", {"all.csv:2: ", "outside [0, 4)"}));
  EXPECT_TRUE(refused("data/feat.npy", npy_float32({3, 1}, {1, 2, 3}), {"feat.npy", "[4, F]"}));
  EXPECT_TRUE(refused("set/train.npy", npy_int64({2}, {3, 4}), {"train.npy", "node 4"}));
  EXPECT_TRUE(
      refused("set/val.npy", npy_int64({1}, {3}), {"val.npy", "already in the split, as train"}));
  EXPECT_TRUE(refused("set/train.npy", npy_int64({1, 2}, {3, 1}), {"val.npy", "expected pairs"}));
  EXPECT_TRUE(refused("set/train-labels.npy", npy_int64({1}, {3}), {"train-labels.npy", "[2]"}));
  EXPECT_TRUE(refused("set/train-labels.npy", npy_int64({2}, {0, -1}), {"negative"}));
  EXPECT_TRUE(missing("edges/all.csv"));
  EXPECT_TRUE(missing("data/feat.npy"));
  EXPECT_TRUE(missing("set/train.npy"));
}

TEST_F(GraphBoltFolder, numbers_are_labels_without_classes) {
  const std::string metadata = replaced(kMetadata, "    num_classes: 3\n", "");
  write("metadata.yaml", metadata);
  EXPECT_EQ(name_of(Tasks{}, read().task()), "node-class");
  EXPECT_EQ(read().num_classes, 3);
  write("set/train-labels.npy", npy_float32({2}, {0.5F, 2}));
  write("set/val-labels.npy", npy_float32({1, 1}, {-1}));
  const Dataset data = read();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "node-regression");
  EXPECT_EQ(data.metric, Metric::kR2);
  EXPECT_EQ(floats_of(data.labels.nan_to_num(9)), (std::vector<float>{-1, 2, 9, 0.5F}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{0, 1, 0, 1}));
  EXPECT_TRUE(refused("set/train-labels.npy", npy_float32({2}, {INFINITY, 2}), {"inf"}));
  EXPECT_TRUE(refused("set/train-labels.npy", npy_float32({2, 2}, {1, 2, 3, 4}), {"2 and 1"}));
  EXPECT_TRUE(refused("set/train-labels.npy", npy_float32({3}, {1, 2, 3}), {"2 seeds", "[3]"}));
  write("set/train-labels.npy", npy_float32({2, 2}, {0, 1, 1, 1}));
  write("set/val-labels.npy", npy_float32({1, 2}, {0, NAN}));
  EXPECT_EQ(name_of(Tasks{}, read().task()), "node-labels");
  EXPECT_EQ(integers_of(read().labels), (std::vector<std::int64_t>{0, 255, 1, 1, 255, 255, 0, 1}));
  const Task numbers{.labels = LabelKind::kNumbers};
  EXPECT_EQ(read({.task = numbers}).task(), numbers);
}

TEST_F(GraphBoltFolder, edges_have_features) {
  write("metadata.yaml",
        replaced(kMetadata, "tasks:",
                 "  - {domain: edge, name: weight, format: numpy, path: data/edge.npy}\ntasks:"));
  write("data/edge.npy", npy_float32({3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(floats_of(read().edge_features), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(
      refused("data/edge.npy", npy_float32({2, 2}, {1, 2, 3, 4}), {"2 rows", "expected 3"}));
  EXPECT_TRUE(refused("data/edge.npy", npy_float32({3, 1}, {1, 2, NAN}), {"edge.npy", "row 2"}));
  EXPECT_TRUE(refused("data/edge.npy", npy_float32({3, 1, 1}, {1, 2, 3}), {"[3, 1, 1]"}));
  EXPECT_TRUE(missing("data/edge.npy"));
  write("data/edge.npy", npy_float32({3}, {1, 2, 3}));
  EXPECT_EQ(read().edge_features.sizes(), at::IntArrayRef({3, 1}));
  EXPECT_TRUE(refused("data/edge.npy", npy_float32({3}, {1, 2, NAN}), {"edge.npy", "finite"}));
}

TEST_F(GraphBoltFolder, tensors_of_pytorch_are_read) {
  std::string metadata =
      replaced(kMetadata, "format: numpy\n    in_memory", "format: torch\n    in_memory");
  write("metadata.yaml", replaced(metadata, "labels, format: numpy", "labels, format: torch"));
  write("data/feat.npy", pickle::torch_zip(pickle::int32_array({4, 1}, {1, 2, 3, 4})));
  write("set/train-labels.npy", pickle::torch_zip(pickle::int64_array({2}, {2, 1})));
  const Dataset data = read();
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 1, -1, 2}));
  EXPECT_TRUE(refused("data/feat.npy", pickle::torch_zip(pickle::int32_array({3, 1}, {1, 2, 3})),
                      {"feat.npy", "[4, F]"}));
  EXPECT_TRUE(
      refused("data/feat.npy",
              pickle::torch_zip(pickle::dict({{pickle::text("a"), pickle::int32_array({1}, {1})}})),
              {"feat.npy", "expected a tensor, got a dict"}));
}

}  // namespace
}  // namespace mezzo::test::graphbolt_test
