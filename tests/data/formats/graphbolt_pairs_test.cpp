// Links and labels of edges in GraphBolt folders.
#include "mezzo/data/convert.h"

#include "data/pickle/pickle_writer.h"
#include "data/source/source_reader.h"

namespace mezzo::test::graphbolt_pairs_test {
namespace {

constexpr const char* kGraph = R"(graph:
  nodes: [{num: 5}]
  edges: [{format: numpy, path: edges.npy}]
feature_data: [{domain: node, name: feat, format: numpy, path: feat.npy}]
tasks:
)";

/// The lines of a task whose sets have these arrays, in files such as train-seeds.npy.
std::string task(const std::string& name, const std::vector<std::string>& train,
                 const std::vector<std::string>& others, const std::string& more = "") {
  std::string text = "  - name: " + name + "\n" + more;
  for (const std::string set : {"train", "validation", "test"}) {
    text += "    " + set + "_set:\n      - data:\n";
    for (const std::string& array : set == "train" ? train : others) {
      text +=
          fmt::format("          - {{name: {1}, format: numpy, path: {0}-{1}.npy}}\n", set, array);
    }
  }
  return text;
}

at::Tensor tensor(at::ArrayRef<std::int64_t> values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape);
}

/// Five nodes with six edges, of which one is parallel.
class GraphBoltPairs : public SourceFolder {
 protected:
  GraphBoltPairs() {
    write("edges.npy", npy_int64({2, 6}, {0, 1, 2, 3, 0, 4, 1, 2, 3, 4, 1, 0}));
    write("feat.npy", npy_float32({5, 1}, {1, 2, 3, 4, 5}));
    write("train-seeds.npy", npy_int64({2, 2}, {0, 1, 1, 2}));
  }

  Dataset load(const LoadOptions& options = {}) const { return load_dataset(root(), options); }
  testing::AssertionResult bad(const std::string& name, const std::string& bytes,
                               const std::string& fault) const {
    return refused_by_load(name, bytes, {root(), fault});
  }

 private:
  testing::AssertionResult refused_by_load(const std::string& name, const std::string& bytes,
                                           std::vector<std::string> fragments) const {
    std::ifstream file(root() + "/" + name, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(file), {}};
    write(name, bytes);
    testing::AssertionResult result = throws<IoError>([&] { load(); }, std::move(fragments));
    write(name, good);
    return result << " with " << name;
  }
};

class GraphBoltLinks : public GraphBoltPairs {
 protected:
  GraphBoltLinks() {
    write("metadata.yaml", kGraph + task("link_prediction", {"seeds"},
                                         {"seeds", "labels", "indexes"}, "    num_classes: 10\n"));
    // Two links, then their negative pairs.
    write("validation-seeds.npy", npy_int64({6, 2}, {2, 3, 3, 4, 3, 0, 2, 1, 2, 0, 3, 1}));
    write("validation-labels.npy", npy_float32({6}, {1, 1, 0, 0, 0, 0}));
    write("validation-indexes.npy", npy_int64({6}, {7, 2, 2, 7, 7, 2}));
    write("test-seeds.npy", npy_int64({2, 2}, {4, 2, 4, 0}));
    write("test-labels.npy", npy_int64({2, 1}, {0, 1}));
    write("test-indexes.npy", npy_int64({2}, {0, 0}));
  }
};

TEST_F(GraphBoltLinks, have_the_split_and_the_negative_pairs_of_the_files) {
  const Dataset data = load();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "link");
  EXPECT_EQ(data.split_names, std::vector<std::string>{"link_prediction"});
  EXPECT_EQ(edges_of(data),
            (Edges{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {0, 1}, {4, 0}, {2, 3}, {3, 4}, {4, 0}}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 1, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
  // The graph has the held-out links too: no edge between their nodes may carry messages.
  EXPECT_FALSE(data.message_mask.defined());
  EXPECT_TRUE(at::equal(data.negatives.val.dst, tensor({1, 0, 0, 1}, {2, 2})));
  EXPECT_FALSE(data.negatives.val.src.defined());
  EXPECT_TRUE(at::equal(data.negatives.test.dst, tensor({2}, {1, 1})));
  convert_dataset(root(), folder_.path("out"));
  const Dataset mapped = load_dataset(folder_.path("out"));
  EXPECT_EQ(mapped.task(), data.task());
  EXPECT_EQ(mapped.val_masks.sum().item<std::int64_t>(), 2);
  EXPECT_EQ(mapped.negatives.val.dst.numel(), 4);
}

TEST_F(GraphBoltLinks, may_have_negative_sources_or_both) {
  write("validation-seeds.npy", npy_int64({4, 2}, {2, 3, 3, 4, 0, 4, 1, 3}));
  write("validation-labels.npy", npy_int64({4}, {1, 1, 0, 0}));
  write("validation-indexes.npy", npy_int64({4}, {0, 1, 1, 0}));
  EXPECT_TRUE(at::equal(load().negatives.val.src, tensor({1, 0}, {2, 1})));
  write("validation-seeds.npy", npy_int64({6, 2}, {2, 3, 3, 4, 0, 4, 1, 3, 2, 1, 3, 1}));
  write("validation-labels.npy", npy_int64({6}, {1, 1, 0, 0, 0, 0}));
  write("validation-indexes.npy", npy_int64({6}, {0, 1, 1, 0, 0, 1}));
  const NegativePairs both = load().negatives.val;
  EXPECT_TRUE(at::equal(both.src, tensor({1, 0}, {2, 1})));
  EXPECT_TRUE(at::equal(both.dst, tensor({1, 1}, {2, 1})));
}

TEST_F(GraphBoltLinks, without_indexes_the_negative_pairs_are_for_all_links) {
  write("metadata.yaml", kGraph + task("link_prediction", {"seeds"}, {"seeds", "labels"}));
  const Dataset data = load();
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, tensor({3, 2, 2, 3, 0, 1, 0, 1}, {2, 4})));
  EXPECT_FALSE(data.negatives.val.dst.defined());
}

TEST_F(GraphBoltLinks, are_read_in_the_form_of_the_first_releases) {
  write("metadata.yaml", kGraph + task("lp", {"node_pairs"}, {"node_pairs", "negative_dsts"}));
  write("train-node_pairs.npy", npy_int64({1, 2}, {0, 1}));
  write("validation-node_pairs.npy", npy_int64({2, 2}, {2, 3, 3, 4}));
  write("validation-negative_dsts.npy", npy_int64({2, 2}, {0, 1, 1, 0}));
  write("test-node_pairs.npy", npy_int64({1, 2}, {4, 0}));
  write("test-negative_dsts.npy", npy_int64({1}, {3}));
  const Dataset data = load();
  EXPECT_TRUE(at::equal(data.negatives.val.dst, tensor({0, 1, 1, 0}, {2, 2})));
  EXPECT_TRUE(at::equal(data.negatives.test.dst, tensor({3}, {1, 1})));
  EXPECT_TRUE(bad("test-negative_dsts.npy", npy_int64({2}, {3, 1}), "expected nodes [1, K]"));
  EXPECT_TRUE(
      bad("test-negative_dsts.npy", npy_int64({1}, {5}), "negative destinations: item 0 is 5"));
  write("metadata.yaml",
        kGraph + task("lp", {"node_pairs"}, {"node_pairs", "negative_dsts", "negative_srcs"}));
  write("validation-negative_srcs.npy", npy_int64({2, 2}, {0, 0, 0, 0}));
  write("test-negative_srcs.npy", npy_int64({1, 1}, {2}));
  EXPECT_TRUE(at::equal(load().negatives.test.pairs, tensor({2, 3}, {2, 1})));
  EXPECT_TRUE(bad("test-negative_srcs.npy", npy_int64({1, 2}, {2, 2}),
                  "expected shape [1, 2], got [1, 1]"));
}

TEST_F(GraphBoltLinks, faults_of_the_files_are_io_errors) {
  EXPECT_TRUE(bad("train-seeds.npy", npy_int64({1, 2}, {0, 5}), "destinations: item 0 is 5"));
  EXPECT_TRUE(bad("train-seeds.npy", npy_int64({1, 2}, {-1, 0}), "sources: item 0 is -1"));
  EXPECT_TRUE(bad("train-seeds.npy", npy_int64({1, 3}, {0, 1, 2}), "expected pairs of nodes"));
  EXPECT_TRUE(bad("train-seeds.npy", npy_int64({0, 2}, {}), "no training links"));
  EXPECT_TRUE(bad("train-seeds.npy", npy_float32({1, 2}, {0, NAN}), "train-seeds.npy"));
  EXPECT_TRUE(bad("validation-labels.npy", npy_float32({5}, {1, 1, 0, 0, 0}), "5 labels for 6"));
  EXPECT_TRUE(
      bad("validation-labels.npy", npy_float32({6}, {1, 1, 0, 0, 0, NAN}), "item 5 is neither"));
  EXPECT_TRUE(
      bad("validation-labels.npy", npy_float32({6}, {1, 1, 0, 0, 2, 0}), "item 4 is neither"));
  EXPECT_TRUE(bad("validation-labels.npy", npy_int64({6}, {1, 0, 0, 0, 0, 0}), "index of no link"));
  EXPECT_TRUE(
      bad("validation-labels.npy", npy_int64({6}, {1, 1, 1, 0, 0, 0}), "one link of each index"));
  EXPECT_TRUE(
      bad("validation-labels.npy", npy_int64({6}, {0, 0, 0, 0, 0, 0}), "one link of each index"));
  EXPECT_TRUE(
      bad("validation-indexes.npy", npy_int64({6}, {7, 2, 2, 7, 7, 7}), "as many negative pairs"));
  EXPECT_TRUE(
      bad("validation-indexes.npy", npy_int64({6}, {7, 2, 2, 7, 7, 3}), "index of no link"));
  EXPECT_TRUE(
      bad("validation-indexes.npy", npy_int64({6}, {7, 7, 7, 7, 7, 7}), "one link of each index"));
  EXPECT_TRUE(bad("validation-indexes.npy", npy_int64({2}, {7, 7}), "2 indexes for 6 pairs"));
  EXPECT_TRUE(bad("validation-seeds.npy", npy_int64({6, 2}, {2, 3, 3, 4, 3, 0, 2, 1, 1, 0, 3, 1}),
                  "the source or the destination"));
  const std::string good = npy_int64({2, 2}, {0, 1, 1, 2});
  EXPECT_TRUE(bad("train-seeds.npy", good.substr(0, good.size() - 1), "train-seeds.npy"));
  EXPECT_TRUE(missing("test-indexes.npy"));
}

class GraphBoltEdgeLabels : public GraphBoltPairs {
 protected:
  GraphBoltEdgeLabels() {
    write("metadata.yaml",
          kGraph + task("edges", {"seeds", "labels"}, {"seeds", "labels"}, "    num_classes: 3\n"));
    write("train-labels.npy", npy_int64({2}, {2, 0}));
    write("validation-seeds.npy", npy_int64({1, 2}, {3, 4}));
    write("validation-labels.npy", npy_int64({1}, {1}));
    write("test-seeds.npy", npy_int64({1, 2}, {4, 0}));
    write("test-labels.npy", npy_int64({1}, {2}));
  }
};

TEST_F(GraphBoltEdgeLabels, belong_to_all_edges_of_their_pair) {
  const Dataset data = load();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "edge-class");
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{2, 0, -1, 1, 2, 2}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 1, 0, 0, 1, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 1}));
  write("metadata.yaml", kGraph + task("edges", {"seeds", "labels"}, {"seeds", "labels"}));
  write("train-labels.npy", npy_float32({2}, {0.5F, -1}));
  EXPECT_EQ(name_of(Tasks{}, load().task()), "edge-regression");
  EXPECT_EQ(floats_of(load().labels.nan_to_num(9)), (std::vector<float>{0.5F, -1, 9, 1, 0.5F, 2}));
}

TEST_F(GraphBoltEdgeLabels, of_1_and_0_are_links_if_the_task_says_so) {
  write("train-labels.npy", npy_int64({2}, {1, 0}));
  write("test-labels.npy", npy_int64({1}, {1}));
  const Dataset data = load({.task = LinkTask::kind});
  EXPECT_EQ(data.task(), LinkTask::kind);
  EXPECT_TRUE(at::equal(data.negatives.train.pairs, tensor({1, 2}, {2, 1})));
}

TEST_F(GraphBoltEdgeLabels, faults_are_io_errors) {
  EXPECT_TRUE(bad("test-seeds.npy", npy_int64({1, 2}, {4, 1}), "pair 3 is no edge"));
  EXPECT_TRUE(bad("test-seeds.npy", npy_int64({1, 2}, {3, 4}), "occurs twice"));
  EXPECT_TRUE(bad("test-seeds.npy", npy_int64({1, 2}, {4, 5}), "destinations: item 0 is 5"));
  EXPECT_TRUE(bad("test-labels.npy", npy_int64({1}, {3}), "3 classes are declared"));
  EXPECT_TRUE(bad("test-labels.npy", npy_int64({1}, {-1}), "negative label"));
  EXPECT_TRUE(bad("test-labels.npy", npy_int64({2}, {1, 1}), "one label a seed"));
  EXPECT_TRUE(bad("test-labels.npy", npy_float32({1}, {NAN}), "test-labels.npy"));
  EXPECT_TRUE(missing("test-labels.npy"));
}

TEST_F(GraphBoltEdgeLabels, one_of_several_tasks_is_chosen_by_its_kind) {
  write("metadata.yaml", kGraph + task("edges", {"seeds", "labels"}, {"seeds", "labels"}) +
                             task("links", {"seeds"}, {"seeds"}));
  const Task edges{.target = TaskTarget::kEdge};
  EXPECT_EQ(load({.task = edges}).task(), edges);
  EXPECT_EQ(load({.task = LinkTask::kind}).val_masks.sum().item<std::int64_t>(), 1);
  EXPECT_EQ(load({.split = "links"}).task(), LinkTask::kind);
  EXPECT_EQ(load({.labels_optional = true}).tasks, (std::vector<Task>{edges, LinkTask::kind}));
  EXPECT_THROWS(InvalidArgument, "'edges', 'links'", load());
  EXPECT_THROWS(InvalidArgument, "'edges', 'links'", load({.task = Task{}}));
  EXPECT_THROWS(InvalidArgument, "several tasks", convert_dataset(root(), folder_.path("out")));
  write("metadata.yaml",
        kGraph + task("a", {"seeds", "labels"}, {}) + task("b", {"seeds", "labels"}, {}));
  EXPECT_THROWS(InvalidArgument, "'a', 'b'", load({.labels_optional = true}));
}

constexpr const char* kTyped = R"(graph:
  nodes: [{type: n, num: 5}]
  edges:
    - {type: "n:b:n", format: numpy, path: b.npy}
    - {type: "n:a:n", format: csv, path: a.csv}
feature_data:
  - {domain: node, type: n, name: feat, format: numpy, path: feat.npy}
  - {domain: edge, type: "n:a:n", name: x, format: numpy, path: ax.npy}
  - {domain: edge, type: "n:b:n", name: x, format: numpy, path: bx.npy}
tasks:
  - name: links
    train_set:
      - {type: "n:b:n", data: [{name: seeds, format: numpy, path: tb.npy}]}
      - {type: "n:a:n", data: [{name: seeds, format: numpy, path: ta.npy}]}
    validation_set:
      - {type: "n:b:n", data: [{name: seeds, format: numpy, path: vb.npy}]}
)";

class GraphBoltTypes : public GraphBoltPairs {
 protected:
  GraphBoltTypes() {
    write("metadata.yaml", kTyped);
    write("a.csv", "0,1\n1,2\n");
    write("b.npy", npy_int64({2, 2}, {0, 2, 1, 3}));
    write("ax.npy", npy_float32({2, 1}, {1, 2}));
    write("bx.npy", npy_float32({2, 1}, {3, 4}));
    write("ta.npy", npy_int64({1, 2}, {0, 1}));
    write("tb.npy", npy_int64({1, 2}, {2, 3}));
    write("vb.npy", npy_int64({1, 2}, {1, 2}));
  }
  testing::AssertionResult yaml_refused(const std::string& from, const std::string& to,
                                        const std::string& fault) const {
    std::string text = kTyped;
    text.replace(text.find(from), from.size(), to);
    return bad("metadata.yaml", text, fault);
  }
};

TEST_F(GraphBoltTypes, are_those_of_links) {
  const Dataset data = load();
  EXPECT_EQ(data.num_edge_types, 2);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {1, 2}, {0, 1}, {2, 3}, {1, 2}}));
  EXPECT_EQ(integers_of(data.edge_types), (std::vector<std::int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0, 1, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 0, 0, 1}));
  EXPECT_EQ(floats_of(data.edge_features), (std::vector<float>{1, 2, 3, 4, 0}));
  convert_dataset(root(), folder_.path("out"));
  EXPECT_EQ(load_dataset(folder_.path("out")).num_edge_types, 2);
}

TEST_F(GraphBoltTypes, are_kept_without_a_task) {
  const std::string text = kTyped;
  write("metadata.yaml", text.substr(0, text.find("tasks:")));
  const Dataset data = load({.labels_optional = true});
  EXPECT_EQ(integers_of(data.edge_types), (std::vector<std::int64_t>{0, 0, 1, 1}));
  convert_dataset(root(), folder_.path("out"));
  const Dataset mapped = load_dataset(folder_.path("out"), {.task = LinkTask::kind});
  EXPECT_EQ(mapped.num_edge_types, 2);
  EXPECT_EQ(mapped.edge_types.sum().item<std::int64_t>(), 2);
}

TEST_F(GraphBoltTypes, faults_are_io_errors) {
  EXPECT_TRUE(yaml_refused("n:a:n", "m:a:n", "expected 'n:relation:n'"));
  EXPECT_TRUE(yaml_refused("n:a:n", "n:n", "expected 'n:relation:n'"));
  EXPECT_TRUE(yaml_refused("n:a:n", "n:b:n", "the type 'n:b:n' occurs twice"));
  EXPECT_TRUE(yaml_refused("{type: n, num: 5}", "{num: 5}", "nodes have no type"));
  EXPECT_TRUE(yaml_refused("{type: n, num: 5}", "{type: n, num: 5}, {type: m, num: 1}",
                           "'nodes' has 2 entries"));
  EXPECT_TRUE(yaml_refused("{type: \"n:a:n\", data", "{type: \"n:c:n\", data",
                           "a type that is not of the graph"));
  EXPECT_TRUE(yaml_refused("{type: \"n:a:n\", data", "{type: \"n:b:n\", data",
                           "has 2 sets of the type 'n:b:n'"));
  EXPECT_TRUE(yaml_refused("{domain: edge, type: \"n:a:n\"", "{domain: edge, type: \"n:c:n\"",
                           "0 edge features 'x' of the type 'n:a:n'"));
  EXPECT_TRUE(
      bad("ax.npy", npy_float32({2, 2}, {1, 2, 3, 4}), "1 features, those of another type"));
  EXPECT_TRUE(bad("ax.npy", npy_float32({1, 1}, {1}), "3 rows of edge features"));
  EXPECT_TRUE(bad("a.csv", "0,1\n1,5\n", "a.csv:2"));
  EXPECT_TRUE(bad("vb.npy", npy_int64({1, 2}, {1, 5}), "destinations: item 0 is 5"));
  std::string nodes = kTyped;
  nodes = nodes.substr(0, nodes.find("tasks:")) +
          "tasks: [{train_set: [{type: n, data: [{name: seeds, format: numpy, path: s.npy},"
          " {name: labels, format: numpy, path: s.npy}]}]}]\n";
  write("s.npy", npy_int64({2}, {0, 1}));
  EXPECT_TRUE(bad("metadata.yaml", nodes, "edges of 2 types"));
}

}  // namespace
}  // namespace mezzo::test::graphbolt_pairs_test
