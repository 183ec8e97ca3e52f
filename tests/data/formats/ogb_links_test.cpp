// OGB's sets of links.
#include "mezzo/data/convert.h"

#include "data/pickle/pickle_writer.h"
#include "data/source/source_reader.h"

namespace mezzo::test::ogb_links_test {
namespace {

namespace p = pickle;

using Items = std::vector<std::pair<std::string, std::string>>;

std::string ids(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& items) {
  return p::int64_array(shape, items);
}

std::string dict(const Items& items) {
  Items texts;
  for (const auto& [key, value] : items) texts.emplace_back(p::text(key), value);
  return p::dict(texts);
}

at::Tensor tensor(at::ArrayRef<std::int64_t> values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape);
}

/// Five nodes and three edges, all for training; two links for validation and one for testing.
class OgbLinks : public SourceFolder {
 protected:
  OgbLinks() {
    write("raw/num-node-list.csv.gz", gzip("5\n"));
    write("raw/num-edge-list.csv.gz", gzip("3\n"));
    write("raw/edge.csv.gz", gzip("0,1\n1,2\n2,3\n"));
    write("raw/node-feat.csv.gz", gzip("1\n2\n3\n4\n5\n"));
    write_pt("train", {{"edge", ids({3, 2}, {2, 3, 0, 1, 1, 2})}});
    write_pt("valid",
             {{"edge", ids({2, 2}, {3, 4, 0, 1})}, {"edge_neg", ids({3, 2}, {0, 2, 0, 3, 4, 0})}});
    write_pt("test", {{"edge", ids({1, 2}, {4, 0})}, {"edge_neg", ids({1, 2}, {4, 1})}});
  }

  void write_pt(const std::string& role, const Items& items) const {
    write("split/time/" + role + ".pt", p::torch_zip(dict(items)));
  }
  testing::AssertionResult pt_refused(const std::string& role, const Items& items,
                                      const std::string& fault) const {
    const std::string file = "split/time/" + role + ".pt";
    return refused(file, p::torch_zip(dict(items)), {"split/time", fault});
  }
  Dataset load(const LoadOptions& options = {}) const { return load_dataset(root(), options); }
};

TEST_F(OgbLinks, have_the_split_and_negative_pairs_of_the_files) {
  const Dataset data = load();
  EXPECT_EQ(name_of(Tasks{}, data.task()), "link");
  EXPECT_EQ(data.tasks, std::vector<Task>{data.task()});
  EXPECT_EQ(data.split_names, std::vector<std::string>{"time"});
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {0, 1}, {4, 0}}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 1}));
  // The link from 0 to 1 is for validation too, but the graph's edge carries messages.
  EXPECT_EQ(integers_of(data.message_mask), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0}));
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, tensor({0, 0, 4, 2, 3, 0}, {2, 3})));
  EXPECT_TRUE(at::equal(data.negatives.test.pairs, tensor({4, 1}, {2, 1})));
  EXPECT_FALSE(data.negatives.train.pairs.defined());
  data.validate();
}

TEST_F(OgbLinks, may_be_in_one_file) {
  const Dataset three = load();
  write("split/time/split_dict.pt",
        p::torch_zip(dict(
            {{"train", dict({{"edge", ids({3, 2}, {2, 3, 0, 1, 1, 2})}})},
             {"valid", dict({{"edge", ids({2, 2}, {3, 4, 0, 1})},
                             {"edge_neg", ids({3, 2}, {0, 2, 0, 3, 4, 0})}})},
             {"test", dict({{"edge", ids({1, 2}, {4, 0})}, {"edge_neg", ids({1, 2}, {4, 1})}})}})));
  folder_.remove("set/split/time/train.pt");
  const Dataset one = load();
  EXPECT_EQ(edges_of(one), edges_of(three));
  EXPECT_TRUE(at::equal(one.val_masks, three.val_masks));
  EXPECT_TRUE(at::equal(one.negatives.val.pairs, three.negatives.val.pairs));
  EXPECT_TRUE(refused("split/time/split_dict.pt", p::torch_zip(dict({{"train", ids({1}, {0})}})),
                      {"split_dict.pt: train", "expected the arrays edge"}));
}

TEST_F(OgbLinks, may_have_negative_destinations) {
  const auto write_one = [&](const std::string& role, const std::vector<std::int64_t>& src,
                             const std::vector<std::int64_t>& dst,
                             const std::vector<std::int64_t>& others) {
    const auto count = static_cast<std::int64_t>(src.size());
    Items items = {{"source_node", ids({count}, src)}, {"target_node", ids({count}, dst)}};
    if (!others.empty()) items.emplace_back("target_node_neg", ids({count, 2}, others));
    write_pt(role, items);
  };
  write_one("train", {0, 1}, {1, 2}, {});
  write_one("valid", {3, 4}, {4, 2}, {0, 1, 1, 0});
  write_one("test", {0}, {3}, {2, 4});
  const Dataset data = load();
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.message_mask), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0}));
  EXPECT_TRUE(at::equal(data.negatives.val.dst, tensor({0, 1, 1, 0}, {2, 2})));
  EXPECT_TRUE(at::equal(data.negatives.test.dst, tensor({2, 4}, {1, 2})));
  EXPECT_FALSE(data.negatives.val.pairs.defined());
}

TEST_F(OgbLinks, may_have_types) {
  const auto triples = [](const std::vector<std::int64_t>& head,
                          const std::vector<std::int64_t>& relation,
                          const std::vector<std::int64_t>& tail) {
    const auto of = [](const std::vector<std::int64_t>& items) {
      return ids({static_cast<std::int64_t>(items.size())}, items);
    };
    return Items{{"head", of(head)}, {"relation", of(relation)}, {"tail", of(tail)}};
  };
  write("raw/edge_reltype.csv.gz", gzip("0\n1\n1\n"));
  write_pt("train", triples({0, 1}, {0, 1}, {1, 2}));
  Items valid = triples({3}, {2}, {4});
  valid.emplace_back("head_neg", ids({1, 2}, {0, 1}));
  valid.emplace_back("tail_neg", ids({1, 1}, {2}));
  write_pt("valid", valid);
  write_pt("test", triples({0}, {1}, {1}));
  const Dataset data = load();
  EXPECT_EQ(data.num_edge_types, 3);
  EXPECT_EQ(integers_of(data.edge_types), (std::vector<std::int64_t>{0, 1, 1, 2, 1}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 1, 0, 0, 0}));
  EXPECT_TRUE(at::equal(data.negatives.val.src, tensor({0, 1}, {1, 2})));
  EXPECT_TRUE(at::equal(data.negatives.val.dst, tensor({2}, {1, 1})));
  EXPECT_TRUE(pt_refused("train", triples({0}, {-1}, {1}), "types: item 0 is -1"));
  EXPECT_TRUE(pt_refused("train", triples({0}, {1 << 20}, {1}), "beyond any sensible number"));
  EXPECT_TRUE(pt_refused("train", triples({0}, {0, 1}, {1}), "types: expected shape [1], got [2]"));
  EXPECT_TRUE(pt_refused("test", {{"edge", ids({1, 2}, {4, 0})}}, "no types of pairs"));
  EXPECT_TRUE(
      refused("raw/edge_reltype.csv.gz", gzip("0\n1\n0.5\n"), {"edge_reltype", "integers"}));
  EXPECT_TRUE(
      refused("raw/edge_reltype.csv.gz", gzip("0\n1\nnan\n"), {"edge_reltype", "integers"}));
  EXPECT_TRUE(refused("raw/edge_reltype.csv.gz", gzip("0\n1\n"), {"edge_reltype", "2 lines"}));
  folder_.remove("set/raw/edge_reltype.csv.gz");
  EXPECT_THROWS(IoError, "but no types of edges", load());
}

TEST_F(OgbLinks, keep_weights_and_features_of_edges) {
  write("raw/edge_weight.csv.gz", gzip("2\n3\n4\n"));
  write("raw/edge-feat.csv.gz", gzip("1,2\n3,4\n5,6\n"));
  write_pt("valid", {{"edge", ids({2, 2}, {3, 4, 0, 1})}, {"weight", p::float32_array({0.5F, 7})}});
  const Dataset data = load();
  EXPECT_EQ(floats_of(data.edge_weights), (std::vector<float>{2, 3, 4, 0.5F, 7, 1}));
  EXPECT_EQ(floats_of(data.edge_features),
            (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(pt_refused("valid",
                         {{"edge", ids({1, 2}, {3, 4})}, {"weight", p::float32_array({1, 2})}},
                         "weights: expected shape [1], got [2]"));
}

TEST_F(OgbLinks, collab_and_others_get_the_inverse_of_each_edge) {
  for (const char* name : {"ogbl_collab", "ogbl-ppa", "ddi", "ogbl_ddi_pyg"}) {
    std::filesystem::rename(root(), folder_.path(name));
    const Dataset data = load_dataset(folder_.path(name));
    EXPECT_EQ(data.num_edges(), 6 + 3) << name;
    // The list has one direction of each.
    EXPECT_EQ(data.train_masks.sum().item<std::int64_t>(), 3) << name;
    EXPECT_EQ(data.message_mask.sum().item<std::int64_t>(), 6) << name;
    std::filesystem::rename(folder_.path(name), root());
  }
}

TEST_F(OgbLinks, of_the_binary_form_are_read_too) {
  const Dataset text = load();
  folder_.remove("set/raw");
  write("raw/data.npz", npz_bytes({{"edge_index", npy_int64({2, 3}, {0, 1, 2, 1, 2, 3})},
                                   {"node_feat", npy_float32({5, 1}, {1, 2, 3, 4, 5})},
                                   {"edge_weight", npy_float32({3, 1}, {2, 3, 4})},
                                   {"num_nodes_list", npy_int64({1}, {5})},
                                   {"num_edges_list", npy_int64({1}, {3})}}));
  const Dataset data = load();
  EXPECT_EQ(edges_of(data), edges_of(text));
  EXPECT_TRUE(at::equal(data.features, text.features));
  EXPECT_EQ(floats_of(data.edge_weights), (std::vector<float>{2, 3, 4, 1, 1, 1}));
  EXPECT_TRUE(at::equal(data.test_masks, text.test_masks));
  EXPECT_TRUE(refused("raw/data.npz",
                      npz_bytes({{"edge_index", npy_int64({2, 3}, {0, 1, 2, 1, 2, 3})},
                                 {"edge_weight", npy_float32({2}, {2, 3})},
                                 {"num_nodes_list", npy_int64({1}, {5})},
                                 {"num_edges_list", npy_int64({1}, {3})}}),
                      {"edge_weight", "one number an edge", "got [2]"}));
}

TEST_F(OgbLinks, training_links_that_are_no_edges_become_edges) {
  write_pt("train", {{"edge", ids({2, 2}, {3, 0, 1, 2})}});
  const Dataset data = load();
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {1, 2}, {2, 3}, {3, 0}, {3, 4}, {0, 1}, {4, 0}}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{0, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(integers_of(data.message_mask), (std::vector<std::int64_t>{1, 1, 1, 1, 0, 0, 0}));
}

TEST_F(OgbLinks, are_kept_by_a_conversion) {
  const Dataset source = load();
  convert_dataset(root(), folder_.path("out"));
  const Dataset data = load_dataset(folder_.path("out"));
  EXPECT_EQ(data.task(), source.task());
  EXPECT_EQ(data.num_edges(), source.num_edges());
  EXPECT_EQ(data.message_mask.sum().item<std::int64_t>(), 3);
  EXPECT_TRUE(at::equal(data.negatives.val.pairs, source.negatives.val.pairs));
}

TEST_F(OgbLinks, other_tasks_and_splits_are_refused) {
  EXPECT_THROWS(InvalidArgument, fragments("expected link", "got node-class"),
                load({.task = Task{}}));
  EXPECT_THROWS(InvalidArgument, "split: 'x'", load({.split = "x"}));
  EXPECT_EQ(load({.split = "time", .task = LinkTask::kind}).num_edges(), 6);
}

TEST_F(OgbLinks, faults_of_the_splits_are_io_errors) {
  const std::string one = ids({1, 2}, {0, 1});
  EXPECT_TRUE(pt_refused("train", {{"edge", ids({1, 2}, {0, 5})}}, "destinations: item 0 is 5"));
  EXPECT_TRUE(pt_refused("train", {{"edge", ids({1, 2}, {-1, 0})}}, "sources: item 0 is -1"));
  EXPECT_TRUE(pt_refused("train", {{"edge", ids({2}, {0, 1})}}, "train.pt: edge: expected pairs"));
  EXPECT_TRUE(pt_refused("train", {{"edge", ids({2, 1}, {0, 1})}}, "expected pairs"));
  EXPECT_TRUE(pt_refused("train", {{"edge", p::float32_array({0, 1})}}, "edge: "));
  EXPECT_TRUE(pt_refused("train", {{"edge", ids({0, 2}, {})}}, "no training links"));
  EXPECT_TRUE(pt_refused("train", {{"year", ids({1}, {0})}}, "it has: year"));
  EXPECT_TRUE(pt_refused("valid", {{"edge", one}, {"edge_neg", ids({1, 2}, {0, 9})}},
                         "negative pairs: item 1 is 9"));
  EXPECT_TRUE(pt_refused("valid", {{"edge", one}, {"edge_neg", ids({0, 2}, {})}},
                         "negative pairs: expected"));
  EXPECT_TRUE(pt_refused("valid", {{"edge", one}, {"edge_neg", ids({2}, {0, 1})}},
                         "edge_neg: expected pairs"));
  EXPECT_TRUE(pt_refused("valid", {{"source_node", ids({1}, {0})}}, "target_node is missing"));
  EXPECT_TRUE(pt_refused("valid",
                         {{"source_node", ids({1}, {0})}, {"target_node", ids({2}, {0, 1})}},
                         "destinations: expected shape [1], got [2]"));
  EXPECT_TRUE(pt_refused("valid",
                         {{"source_node", ids({1, 1}, {0})}, {"target_node", ids({1}, {0})}},
                         "sources: expected shape [L]"));
  EXPECT_TRUE(pt_refused("valid",
                         {{"source_node", ids({1}, {0})},
                          {"target_node", ids({1}, {1})},
                          {"target_node_neg", ids({2, 1}, {0, 1})}},
                         "negative destinations: expected 1 rows"));
  EXPECT_TRUE(pt_refused("valid", {{"head", ids({1}, {0})}, {"tail", ids({1}, {0})}},
                         "relation is missing"));
  EXPECT_TRUE(refused("split/time/test.pt", "PK", {"test.pt"}));
  EXPECT_TRUE(refused("split/time/test.pt", p::torch_zip("N"), {"test.pt", "no tensors"}));
  EXPECT_TRUE(missing("split/time/valid.pt"));
  EXPECT_TRUE(missing("raw/num-edge-list.csv.gz"));
  EXPECT_TRUE(refused("raw/num-node-list.csv.gz", gzip("4000000000\n"), {"set"}));
}

}  // namespace
}  // namespace mezzo::test::ogb_links_test
