// Labels, features and sets of graphs that a conversion keeps.
#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/data/convert.h"
#include "mezzo/data/dataset.h"
#include "mezzo/data/parts.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

using nlohmann::json;

/// Two graphs: nodes 0 to 2 with five edges, two of them parallel, and node 3 with a loop.
class ConvertTargets : public testing::Test {
 protected:
  ConvertTargets() {
    folder_.write("in/edge_index.npy", npy_int64({2, 6}, {2, 0, 1, 3, 0, 2, 1, 1, 2, 3, 1, 0}));
    folder_.write("in/features.npy", npy_float32({4, 1}, {1, 2, 3, 4}));
    folder_.write("in/edge_features.npy",
                  npy_float32({6, 2}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51}));
    folder_.write("in/edge_weights.npy", npy_float32({6}, {1, 2, 3, 4, 5, 6}));
  }

  void write_edge_labels() const {
    folder_.write("in/edge_labels.npy", npy_int64({6}, {0, 1, 2, 0, 1, 2}));
  }
  void write_graphs() const {
    folder_.write("in/graph_offsets.npy", npy_int64({3}, {0, 3, 4}));
    folder_.write("in/graph_labels.npy", npy_float32({2, 2}, {0.5F, 1, NAN, 2}));
  }

  std::string in() const { return folder_.path("in"); }
  std::string out() const { return folder_.path("out"); }

  /// Replaces a value of the manifest, or removes it (null).
  testing::AssertionResult refused_with(const std::string& key, const json& value,
                                        const std::string& fault) const {
    const std::string path = out() + "/mezzo.json";
    std::ifstream stream(path);
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

/// The edges by destination, then source; parallel ones keep their order.
constexpr std::int64_t kRowOrder[] = {5, 1, 4, 0, 2, 3};

TEST_F(ConvertTargets, edges_keep_their_labels_features_and_split) {
  write_edge_labels();
  const Dataset source = load_dataset(in());
  convert_dataset(in(), out());
  const Dataset data = load_dataset(out());
  EXPECT_EQ(data.task(), source.task());
  EXPECT_EQ(data.tasks, source.tasks);
  const at::Tensor order = at::tensor(at::ArrayRef<std::int64_t>(kRowOrder), at::kLong);
  const auto ordered = [&](const at::Tensor& rows) { return rows.index_select(0, order); };
  EXPECT_TRUE(at::equal(data.indices.to(at::kLong), ordered(source.src)));
  EXPECT_TRUE(at::equal(at::repeat_interleave(data.indptr.diff()), ordered(source.dst)));
  EXPECT_TRUE(at::equal(data.labels, ordered(source.labels)));
  EXPECT_TRUE(at::equal(data.edge_features, ordered(source.edge_features)));
  EXPECT_TRUE(at::equal(data.edge_weights, ordered(source.edge_weights)));
  EXPECT_TRUE(at::equal(data.train_masks, ordered(source.train_masks)));
  EXPECT_TRUE(at::equal(data.test_masks, ordered(source.test_masks)));
  convert_dataset(out(), folder_.path("again"));
  EXPECT_TRUE(at::equal(load_dataset(folder_.path("again")).edge_features, data.edge_features));
}

TEST_F(ConvertTargets, sets_of_graphs_keep_their_offsets_and_labels) {
  write_graphs();
  const Dataset source = load_dataset(in());
  convert_dataset(in(), out());
  const Dataset data = load_dataset(out());
  EXPECT_EQ(name_of(Tasks{}, data.task()), "graph-regression");
  EXPECT_TRUE(at::equal(data.graph_offsets, source.graph_offsets));
  EXPECT_TRUE(at::equal(data.labels.nan_to_num(9), source.labels.nan_to_num(9)));
  EXPECT_TRUE(at::equal(data.train_masks, source.train_masks));
  EXPECT_EQ(data.edge_features.sizes(), source.edge_features.sizes());
}

TEST_F(ConvertTargets, wrong_manifests_are_io_errors) {
  write_edge_labels();
  convert_dataset(in(), out());
  EXPECT_TRUE(refused_with("/target", "link", "target"));
  EXPECT_TRUE(refused_with("/target", 1, "'target' is not a string"));
  EXPECT_TRUE(refused_with("/target", "node", "the array 'labels' has shape [6], the counts ask"));
  EXPECT_TRUE(refused_with("/target", "graph", "without an array 'graph_offsets'"));
  EXPECT_TRUE(refused_with("/arrays/edge_features/shape", {6, 3}, "its shape is [6, 2]"));
  EXPECT_TRUE(refused_with("/arrays/edge_features/shape", {5, 2}, "the counts ask for [6, -1]"));
  EXPECT_TRUE(refused_with("/arrays/edge_features/dtype", "int64", "expected float32"));
  folder_.write("out/edge_features.npy", npy_float32({6, 2}, std::vector<float>(12, INFINITY)));
  EXPECT_THROWS(IoError, fragments(out(), "edge features: row 0, column 0 is"),
                load_dataset(out()));
}

TEST_F(ConvertTargets, wrong_offsets_of_a_mapped_set_are_io_errors) {
  write_graphs();
  convert_dataset(in(), out());
  const auto refused = [&](const std::vector<std::int64_t>& offsets, const std::string& fault) {
    folder_.write("out/graph_offsets.npy", npy_int64({3}, offsets));
    return throws<IoError>([&] { load_dataset(out()); }, {out(), fault});
  };
  EXPECT_TRUE(refused({0, 2, 4}, "an edge joins graph 0 and another"));
  EXPECT_TRUE(refused({0, 5, 4}, "decrease after graph 1"));
  EXPECT_TRUE(refused({0, 3, 5}, "expected 0 to 4"));
  EXPECT_TRUE(refused_with("/arrays/graph_offsets/shape", json::array({2}), "its shape is [3]"));
  EXPECT_TRUE(refused_with("/arrays/graph_offsets", nullptr, "without an array 'graph_offsets'"));
}

TEST_F(ConvertTargets, what_would_lose_something_is_refused) {
  write_edge_labels();
  folder_.write("in/labels.npy", npy_int64({4}, {0, 1, 0, 1}));
  EXPECT_THROWS(InvalidArgument, fragments("several tasks", "node-class, edge-class"),
                convert_dataset(in(), out()));
  const Task edges{.target = TaskTarget::kEdge};
  EXPECT_THROWS(InvalidArgument, fragments("symmetrize: ", "labels of edges"),
                convert_dataset(in(), out(), {.task = edges, .symmetrize = true}));
  folder_.remove("in/edge_weights.npy");
  EXPECT_THROWS(InvalidArgument, fragments("parts: ", "labels of nodes"),
                write_parts(load_dataset(in(), {.task = edges}), at::zeros({4}, at::kLong), out()));
}

}  // namespace
}  // namespace mezzo::test
