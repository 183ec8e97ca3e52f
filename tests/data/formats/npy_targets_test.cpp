// Labels of edges and graphs, features of edges and sets of graphs in an npy folder.
#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

/// Two graphs: nodes 0 and 1 with two edges, node 2 with a loop.
class NpyTargets : public testing::Test {
 protected:
  NpyTargets() {
    folder_.write("edge_index.npy", npy_int64({2, 3}, {0, 1, 2, 1, 0, 2}));
    folder_.write("features.npy", npy_float32({3, 1}, {1, 2, 3}));
  }

  Dataset load(const LoadOptions& options = {}) const {
    return load_dataset(folder_.path(), options);
  }
  void make_graphs() const {
    folder_.write("graph_offsets.npy", npy_int64({3}, {0, 2, 3}));
    folder_.write("graph_labels.npy", npy_int64({2}, {0, 1}));
  }
  testing::AssertionResult refused(const std::string& name, const std::string& bytes,
                                   const std::string& fault) const {
    folder_.write(name, bytes);
    return throws<IoError>([&] { load(); }, {folder_.path(), fault});
  }

  TempFolder folder_;
};

TEST_F(NpyTargets, edges_have_labels_features_and_masks) {
  folder_.write("edge_labels.npy", npy_int64({3}, {1, 0, -1}));
  folder_.write("edge_features.npy", npy_float32({3, 2}, {1, 2, 3, 4, 5, 6}));
  folder_.write("train_mask.npy", npy_bool({3}, "100"));
  folder_.write("val_mask.npy", npy_bool({3}, "010"));
  folder_.write("test_mask.npy", npy_bool({3}, "001"));
  const Dataset data = load();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "edge-class");
  EXPECT_EQ(data.num_targets(), 3);
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(data.edge_features.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_FALSE(data.test_masks.any().item<bool>());  // edge 2 has no label
  EXPECT_TRUE(refused("edge_features.npy", npy_float32({2}, {1, 2}), "[3, F], got [2]"));
  EXPECT_TRUE(refused("edge_features.npy", npy_float32({3}, {1, NAN, 2}), "edge features"));
  EXPECT_TRUE(refused("edge_labels.npy", npy_int64({2}, {1, 0}), "2 rows for 3 edges"));
  EXPECT_TRUE(refused("edge_labels.npy", npy_int64({3}, {1, 0, -2}), "edge 2 has the negative"));
}

TEST_F(NpyTargets, graphs_have_labels) {
  make_graphs();
  const Dataset data = load();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "graph-class");
  EXPECT_EQ(data.num_graphs(), 2);
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(data.train_masks.size(0), 2);
  folder_.write("graph_labels.npy", npy_float32({2, 2}, {0.5F, 1, NAN, 2}));
  EXPECT_EQ(name_of(Tasks{}, load().task()), "graph-regression");
}

TEST_F(NpyTargets, wrong_sets_of_graphs_are_errors) {
  make_graphs();
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({3}, {0, 1, 3}), "edge 0 joins two graphs"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({3}, {1, 2, 3}), "expected 0 to 3"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({3}, {0, 4, 3}), "decrease after graph 1"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({1}, {3}), "[G + 1]"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({3}, {0, 2, -1}), "outside [1, 2^48]"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({3}, {0, 2, 4}), "expected shape [4, F]"));
  EXPECT_TRUE(refused("graph_offsets.npy", npy_int64({2}, {0, 3}), "2 rows for 1 graphs"));
}

TEST_F(NpyTargets, the_task_chooses_between_labels) {
  folder_.write("labels.npy", npy_int64({3}, {0, 1, 1}));
  EXPECT_EQ(load().task(), Task{});
  make_graphs();
  EXPECT_THROWS(InvalidArgument, fragments("several tasks", "node-class, graph-class"), load());
  const Dataset both = load({.labels_optional = true});
  EXPECT_EQ(both.tasks, (std::vector<Task>{Task{}, {.target = TaskTarget::kGraph}}));
  EXPECT_FALSE(both.labels.defined());
  const Task graphs{.target = TaskTarget::kGraph};
  EXPECT_EQ(load({.task = graphs}).task(), graphs);
  EXPECT_EQ(load({.task = Task{}}).num_targets(), 3);
  folder_.write("meta.json", R"({"task": "graph-class"})");
  EXPECT_EQ(load().task(), graphs);
  EXPECT_THROWS(InvalidArgument, fragments("edge-class", "graph_labels.npy"),
                load({.task = Task{.target = TaskTarget::kEdge}}));
}

}  // namespace
}  // namespace mezzo::test
