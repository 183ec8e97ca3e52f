#include "data/source/source_reader.h"

namespace mezzo::test {
namespace {

/// Two graphs: a triangle 0, 1, 2 with a self loop and a parallel edge, and an edge 3 - 4.
class TuFolder : public SourceFolder {
 protected:
  TuFolder() {
    write("DS_graph_indicator.txt", "1\n1\n1\n2\n2\n");
    write("DS_A.txt", "1, 2\n2, 1\n2, 3\n3, 2\n2, 3\n1, 1\n4, 5\n5, 4\n");
    write("DS_graph_labels.txt", "1\n-1\n");
    write("DS_node_attributes.txt", "0.5\n1.5\n2.5\n3.5\n4.5\n");
    write("DS_node_labels.txt", "3\n4\n3\n6\n4\n");
    write("DS_edge_attributes.txt", "1\n2\n3\n4\n5\n6\n7\n8\n");
    write("DS_edge_labels.txt", "0\n0\n1\n1\n0\n0\n1\n1\n");
  }

  Dataset load(const LoadOptions& options = {}) const { return load_dataset(root(), options); }

  testing::AssertionResult bad(const std::string& file, const std::string& text,
                               const std::string& fault) const {
    return refused("DS_" + file + ".txt", text, {"DS_" + file + ".txt", fault});
  }
};

TEST_F(TuFolder, is_read_as_pyg_reads_it) {
  const Dataset data = load();
  EXPECT_EQ(data.name, "DS");
  EXPECT_EQ(name_of(Tasks{}, data.task()), "graph-class");
  EXPECT_EQ(data.tasks, std::vector<Task>{data.task()});
  EXPECT_EQ(integers_of(data.graph_offsets), (std::vector<std::int64_t>{0, 3, 5}));
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {1, 0}, {1, 2}, {2, 1}, {3, 4}, {4, 3}}));
  // The attribute, and whether the label is 3, 4, 5 or 6.
  EXPECT_TRUE(at::equal(data.features, at::tensor({0.5F, 1.F, 0.F, 0.F, 0.F,  //
                                                   1.5F, 0.F, 1.F, 0.F, 0.F,  //
                                                   2.5F, 1.F, 0.F, 0.F, 0.F,  //
                                                   3.5F, 0.F, 0.F, 0.F, 1.F,  //
                                                   4.5F, 0.F, 1.F, 0.F, 0.F})
                                           .view({5, 5})));
  // The parallel edges from 1 to 2 have the attributes 3 and 5 and the labels 1 and 0.
  EXPECT_EQ(floats_of(data.edge_features),
            (std::vector<float>{1, 1, 0, 2, 1, 0, 8, 1, 1, 4, 0, 1, 7, 0, 1, 8, 0, 1}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"-1", "1"}));
  EXPECT_EQ(data.train_masks.size(0), 2);
}

TEST_F(TuFolder, labels_and_features_may_be_missing) {
  for (const char* part : {"node_attributes", "node_labels", "edge_attributes", "edge_labels"}) {
    folder_.remove(fmt::format("set/DS_{}.txt", part));
  }
  write("DS_graph_labels.txt", "0\n1\n");
  const Dataset bare = load();
  EXPECT_EQ(bare.num_features(), 0);
  EXPECT_FALSE(bare.edge_features.defined());
  EXPECT_TRUE(bare.class_names.empty());
  folder_.remove("set/DS_graph_labels.txt");
  EXPECT_THROWS(IoError, "no labels", load());
  EXPECT_EQ(load({.labels_optional = true}).num_graphs(), 2);
  write("DS_graph_attributes.txt", "0.5, 1\n-2, 3\n");
  EXPECT_EQ(name_of(Tasks{}, load().task()), "graph-regression");
  EXPECT_EQ(floats_of(load().labels), (std::vector<float>{0.5F, 1, -2, 3}));
}

TEST_F(TuFolder, the_task_chooses_between_classes_and_numbers) {
  write("DS_graph_attributes.txt", "0.5\n1\n");
  constexpr Task kClasses{.target = TaskTarget::kGraph};
  constexpr Task kNumbers{.target = TaskTarget::kGraph, .labels = LabelKind::kNumbers};
  EXPECT_THROWS(InvalidArgument, fragments("several tasks", "graph-class, graph-regression"),
                load());
  EXPECT_EQ(load({.task = kClasses}).task(), kClasses);
  EXPECT_EQ(load({.task = kNumbers}).task(), kNumbers);
  EXPECT_EQ(load({.labels_optional = true}).tasks, (std::vector<Task>{kClasses, kNumbers}));
  EXPECT_THROWS(InvalidArgument, fragments("node-class"), load({.task = Task{}}));
}

TEST_F(TuFolder, faults_are_io_errors_with_their_line) {
  const auto bad_elsewhere = [&](const char* part, const char* text, const std::string& fault) {
    return refused(fmt::format("DS_{}.txt", part), text, {fault});
  };
  EXPECT_TRUE(bad_elsewhere("graph_indicator", "1\n1\n1\n2\n", "DS_A.txt:7: edge from 4 to 5"));
  EXPECT_TRUE(bad_elsewhere("graph_indicator", "1\n1\n1\n2\n2\n2\n",
                            "node_attributes.txt: the file ends after 5 lines, expected 6"));
  EXPECT_TRUE(bad("graph_indicator", "1\n1\n2\n1\n2\n", ":4: a node of graph 1 after graph 2"));
  EXPECT_TRUE(bad("graph_indicator", "1\n1\n1\n3\n3\n", ":4: a node of graph 3 after graph 1"));
  EXPECT_TRUE(bad("graph_indicator", "0\n0\n0\n1\n1\n", ":1: a node of graph 0 after graph 0"));
  EXPECT_TRUE(bad("graph_indicator", "1\n1\n9999999999999\n2\n2\n", ":3: a node of graph 9999"));
  EXPECT_TRUE(bad("graph_indicator", "1,2\n", ":1: expected the graph of a node, got 2"));
  EXPECT_TRUE(bad("graph_indicator", "", "0 nodes"));
  EXPECT_TRUE(bad("A", "1, 6\n", ":1: edge from 1 to 6, outside [1, 5]"));
  EXPECT_TRUE(bad("A", "1, 2\n0, 1\n", ":2: edge from 0 to 1"));
  EXPECT_TRUE(bad("A", "1, 2, 3\n", ":1: expected two columns of node ids, got 3"));
  EXPECT_TRUE(bad("A", "1, x\n", ":1: 'x' is not an integer"));
  EXPECT_TRUE(bad_elsewhere("A", "1, 2\n", "edge_attributes.txt:2: more lines than 1"));
  EXPECT_TRUE(
      bad_elsewhere("A", "1, 2\n2, 1\n2, 3\n3, 2\n2, 3\n1, 1\n4, 5\n3, 4\n", "joins two graphs"));
  EXPECT_TRUE(bad("graph_labels", "1\n", "ends after 1 lines, expected 2"));
  EXPECT_TRUE(bad("graph_labels", "1\n2\n3\n", ":3: more lines than 2"));
  EXPECT_TRUE(bad("graph_labels", "1, 2\n1, 2\n", "one label a graph, got 2 columns"));
  EXPECT_TRUE(bad("graph_labels", "1\n0.5\n", ":2: '0.5' is not an integer"));
  EXPECT_TRUE(bad("node_labels", "3\n4\n3, 1\n6\n4\n", ":3: 2 columns, the first line has 1"));
  EXPECT_TRUE(bad("node_labels", "3\n4\n3\n6\n9223372036854775807\n", "at most 65536 values"));
  EXPECT_TRUE(bad("node_attributes", "1\n2\nnan\n4\n5\n", "expected finite numbers"));
  EXPECT_TRUE(bad("node_attributes", "1\n2\n1e300\n4\n5\n", "node_attributes"));
  EXPECT_TRUE(bad("edge_attributes", "1\n2\n", "ends after 2 lines, expected 8"));
  const std::string packed = gzip("1\n-1\n");
  EXPECT_TRUE(bad("graph_labels", packed.substr(0, packed.size() - 3), "truncated"));
  EXPECT_TRUE(missing("DS_A.txt"));
  write("OTHER_graph_indicator.txt", "1\n");
  EXPECT_THROWS(IoError, fragments(root(), "2 files *_graph_indicator.txt"), load());
}

TEST_F(TuFolder, a_changed_byte_gives_a_set_or_an_error) {
  for (const std::string part : {"A", "graph_indicator", "graph_labels", "node_labels"}) {
    const std::string file = "DS_" + part + ".txt";
    std::ifstream stream(root() + "/" + file);
    const std::string good{std::istreambuf_iterator<char>(stream), {}};
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (const int bit : {1, 4, 32, 128}) {
        std::string damaged = good;
        damaged[i] = static_cast<char>(damaged[i] ^ bit);
        write(file, damaged);
        try {
          EXPECT_EQ(load().num_nodes, 5);
        } catch (const IoError&) {
        }
      }
    }
    write(file, good);
  }
}

}  // namespace
}  // namespace mezzo::test
