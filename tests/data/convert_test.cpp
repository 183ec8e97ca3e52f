#include "mezzo/data/convert.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <sys/resource.h>

#include "mezzo/data/dataset.h"
#include "mezzo/data/parts.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {
namespace fs = std::filesystem;

using Number = std::int64_t;

/// An npy folder to convert: random edges, parallel ones and self loops among them.
class Convert : public testing::Test {
 protected:
  static constexpr Number kNodes = 50, kEdges = 300, kWidth = 7;

  Convert() {
    std::vector<Number> edges, labels;
    std::string train, val, test;
    for (Number i = 0; i < 2 * kEdges; ++i) edges.push_back((i * i * 31 + i * 17 + 5) % kNodes);
    for (Number i = 0; i < kNodes; ++i) {
      labels.push_back(i % 3);
      train += i % 4 == 0 ? "10" : "01";
      val += i % 4 == 1 ? "10" : "00";
      test += i % 4 == 2 ? "10" : "00";
    }
    for (Number i = 0; i < kNodes * kWidth; ++i) {
      features_.push_back(std::sin(static_cast<float>(i)) * 3);
    }
    folder_.write("in/edge_index.npy", npy_int64({2, kEdges}, edges));
    folder_.write("in/labels.npy", npy_int64({kNodes}, labels));
    folder_.write("in/train_mask.npy", npy_bool({kNodes, 2}, train));
    folder_.write("in/val_mask.npy", npy_bool({kNodes, 2}, val));
    folder_.write("in/test_mask.npy", npy_bool({kNodes, 2}, test));
    folder_.write("in/meta.json", R"({"name": "random", "class_names": ["a", "b", "c"]})");
    write_features();
  }

  void write_features() {
    folder_.write("in/features.npy", npy_float32({kNodes, kWidth}, features_));
  }

  std::string in() const { return folder_.path("in"); }
  std::string out() const { return folder_.path("out"); }

  /// Expects that the output does not exist.
  testing::AssertionResult nothing_left() const {
    if (fs::exists(out())) return testing::AssertionFailure() << out() << " is there";
    return nothing_beside();
  }

  /// Expects only the input and the output.
  testing::AssertionResult nothing_beside() const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().filename() != "in" && entry.path().filename() != "out") {
        return testing::AssertionFailure() << entry.path() << " is left";
      }
    }
    return testing::AssertionSuccess();
  }

  TempFolder folder_;
  std::vector<float> features_;
};

/// src * N + dst of every edge, ascending.
at::Tensor edge_keys(const Dataset& data) {
  at::Tensor src = data.src, dst = data.dst;
  if (data.indptr.defined()) {
    src = data.indices.to(at::kLong);
    dst = at::repeat_interleave(data.indptr.diff());
  }
  return std::get<0>((src * data.num_nodes + dst).sort());
}

void expect_same_but_features(const Dataset& converted, const Dataset& source) {
  EXPECT_EQ(converted.name, source.name);
  EXPECT_EQ(converted.num_nodes, source.num_nodes);
  EXPECT_EQ(converted.num_classes, source.num_classes);
  EXPECT_EQ(converted.num_features(), source.num_features());
  EXPECT_EQ(converted.class_names, source.class_names);
  EXPECT_EQ(converted.metric, source.metric);
  EXPECT_TRUE(at::equal(edge_keys(converted), edge_keys(source)));
  EXPECT_TRUE(at::equal(converted.labels, source.labels));
  EXPECT_TRUE(at::equal(converted.train_masks, source.train_masks));
  EXPECT_TRUE(at::equal(converted.val_masks, source.val_masks));
  EXPECT_TRUE(at::equal(converted.test_masks, source.test_masks));
}

TEST_F(Convert, writes_what_is_read_again_bit_for_bit) {
  const ConvertReport report = convert_dataset(in(), out());
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(report.name, "random");
  EXPECT_EQ(report.num_edges, kEdges);
  EXPECT_EQ(report.files.size(), 7U);
  const Dataset source = load_dataset(in()), converted = load_dataset(out());
  expect_same_but_features(converted, source);
  EXPECT_TRUE(converted.is_mapped);
  EXPECT_TRUE(at::equal(converted.features, source.features));
  EXPECT_EQ(converted.indices.scalar_type(), at::kInt);
  EXPECT_TRUE(nothing_beside());
}

TEST_F(Convert, rows_have_ascending_sources) {
  convert_dataset(in(), out());
  const Dataset data = load_dataset(out());
  for (Number row = 0; row < kNodes; ++row) {
    const at::Tensor sources =
        data.indices.slice(0, data.indptr[row].item<Number>(), data.indptr[row + 1].item<Number>());
    EXPECT_FALSE(sources.diff().lt(0).any().item<bool>()) << row;
  }
}

TEST_F(Convert, edge_weights_go_with_their_edges) {
  std::vector<float> weights;
  for (Number i = 0; i < kEdges; ++i) weights.push_back(static_cast<float>(i) + 0.5F);
  folder_.write("in/edge_weights.npy", npy_float32({kEdges}, weights));
  convert_dataset(in(), out());
  const Dataset source = load_dataset(in()), data = load_dataset(out());
  std::vector<Number> order(kEdges);
  std::iota(order.begin(), order.end(), 0);
  const auto* src = source.src.const_data_ptr<Number>();
  const auto* dst = source.dst.const_data_ptr<Number>();
  std::stable_sort(order.begin(), order.end(), [&](Number a, Number b) {
    return std::pair(dst[a], src[a]) < std::pair(dst[b], src[b]);
  });
  const at::Tensor expected = source.edge_weights.index_select(0, at::tensor(order, at::kLong));
  EXPECT_TRUE(at::equal(data.edge_weights, expected));
  convert_dataset(out(), folder_.path("again"));
  EXPECT_TRUE(at::equal(load_dataset(folder_.path("again")).edge_weights, expected));

  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { convert_dataset(in(), folder_.path("other"), {.symmetrize = true}); },
      {"symmetrize: ", "edge weights"}));
  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { write_parts(data, at::zeros({kNodes}, at::kLong), folder_.path("parts"), {}); },
      {"parts: ", "edge weights", "--weight"}));
}

TEST_F(Convert, rounds_features_to_the_nearest) {
  const Dataset source = load_dataset(in());
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    convert_dataset(in(), out(), {.feature_dtype = dtype, .overwrite = true});
    const Dataset converted = load_dataset(out());
    expect_same_but_features(converted, source);
    EXPECT_TRUE(at::equal(converted.features, source.features.to(dtype)));
  }
}

TEST_F(Convert, ties_go_to_even) {
  features_[0] = 1 + 0x1p-8F;
  features_[1] = 1 + 0x3p-8F;
  write_features();
  convert_dataset(in(), out(), {.feature_dtype = at::kBFloat16});
  const at::Tensor features = load_dataset(out()).features;
  EXPECT_EQ(features[0][0].item<float>(), 1);
  EXPECT_EQ(features[0][1].item<float>(), 1 + 0x1p-6F);
}

TEST_F(Convert, normalises_rows_where_asked) {
  convert_dataset(in(), out(), {.normalize_features = true});
  const at::Tensor expected = load_dataset(in(), {.normalize_features = true}).features;
  EXPECT_TRUE(at::equal(load_dataset(out()).features, expected));
}

TEST_F(Convert, sparse_features_stay_sparse) {
  folder_.remove("in/features.npy");
  std::vector<Number> indptr = {0}, indices;
  std::vector<float> values;
  for (Number row = 0; row < kNodes; ++row) {
    if (row % 3 == 1) {
      indices.insert(indices.end(), {row % kWidth});
      values.push_back(static_cast<float>(row) / 7);
    }
    indptr.push_back(static_cast<Number>(indices.size()));
  }
  const auto count = static_cast<Number>(indices.size());
  folder_.write("in/features.npz", npz_bytes({{"data", npy_float32({count}, values)},
                                              {"indices", npy_int64({count}, indices)},
                                              {"indptr", npy_int64({kNodes + 1}, indptr)},
                                              {"shape", npy_int64({2}, {kNodes, kWidth})}}));
  const Dataset source = load_dataset(in());
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    convert_dataset(in(), out(), {.feature_dtype = dtype, .overwrite = true});
    const Dataset converted = load_dataset(out());
    expect_same_but_features(converted, source);
    EXPECT_FALSE(converted.is_mapped);
    ASSERT_EQ(converted.features.layout(), at::kSparseCsr);
    EXPECT_TRUE(at::equal(converted.features.crow_indices(), source.features.crow_indices()));
    EXPECT_TRUE(at::equal(converted.features.col_indices(), source.features.col_indices()));
    EXPECT_TRUE(
        at::equal(converted.features.values(), source.features.values().to(dtype).to(at::kFloat)));
  }
}

TEST_F(Convert, data_without_features_and_masks_get_the_random_split) {
  for (const char* name : {"features.npy", "train_mask.npy", "val_mask.npy", "test_mask.npy"}) {
    folder_.remove(std::string("in/") + name);
  }
  convert_dataset(in(), out(), {.split_seed = 9});
  expect_same_but_features(load_dataset(out()), load_dataset(in(), {.split_seed = 9}));
}

TEST_F(Convert, a_folder_can_be_converted_again_and_into_itself) {
  convert_dataset(in(), out());
  convert_dataset(out(), out(), {.feature_dtype = at::kBFloat16, .overwrite = true});
  const Dataset source = load_dataset(in()), converted = load_dataset(out());
  expect_same_but_features(converted, source);
  EXPECT_TRUE(at::equal(converted.features, source.features.to(at::kBFloat16)));
}

TEST_F(Convert, nodes_without_a_label_keep_none) {
  std::vector<Number> labels(kNodes, 2);
  labels[0] = labels[7] = -1;
  folder_.write("in/labels.npy", npy_int64({kNodes}, labels));
  convert_dataset(in(), out());
  const Dataset source = load_dataset(in()), converted = load_dataset(out());
  EXPECT_TRUE(at::equal(converted.labels, at::tensor(labels, at::kLong)));
  expect_same_but_features(converted, source);
}

TEST_F(Convert, edge_lists_need_no_labels) {
  const std::string edges = folder_.write("in/graph.txt", "# a comment\n0 1\n2 1\n1 0\n");
  convert_dataset(edges, out());
  EXPECT_THROWS(IoError, "has no labels", load_dataset(out()));
  const Dataset converted = load_dataset(out(), {.labels_optional = true});
  EXPECT_EQ(converted.num_nodes, 3);
  EXPECT_TRUE(at::equal(converted.indptr, at::tensor({0, 1, 3, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(converted.indices, at::tensor({1, 0, 2}, at::kInt)));
}

TEST_F(Convert, parallel_edges_of_edge_lists_are_merged) {
  std::string text;
  for (Number i = 0; i < 3000; ++i) {
    text += fmt::format("{} {}\n", i * i * 31 % 97, (i * 17 + i / 5) % 97);
  }
  const std::string edges = folder_.write("in/graph.txt", text);
  const ConvertReport report = convert_dataset(edges, out());
  const Dataset source = load_dataset(edges, {.labels_optional = true});
  const Dataset converted = load_dataset(out(), {.labels_optional = true});
  EXPECT_LT(converted.num_edges(), 2900);
  EXPECT_EQ(report.num_edges, converted.num_edges());
  const at::Tensor keys = edge_keys(converted);
  EXPECT_TRUE(at::equal(keys, edge_keys(source)));
  EXPECT_TRUE(keys.diff().gt(0).all().item<bool>());  // each once
  EXPECT_EQ(static_cast<Number>(fs::file_size(out() + "/indices.npy")),
            128 + 4 * converted.num_edges());  // numpy's header; the file has no merged edges
}

TEST_F(Convert, symmetrize_adds_the_reverse_of_each_edge_and_merges) {
  convert_dataset(in(), out(), {.symmetrize = true});
  const Dataset source = load_dataset(in()), converted = load_dataset(out());
  const at::Tensor both = at::cat(
      {source.src * source.num_nodes + source.dst, source.dst * source.num_nodes + source.src});
  EXPECT_TRUE(at::equal(edge_keys(converted), std::get<0>(at::_unique(both))));
  convert_dataset(folder_.write("in/graph.txt", "4 7\n9 4\n4 9\n"), out(),
                  {.symmetrize = true, .overwrite = true});
  const Dataset small = load_dataset(out(), {.labels_optional = true});
  EXPECT_TRUE(at::equal(small.indptr, at::tensor({0, 2, 3, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(small.indices, at::tensor({1, 2, 0, 0}, at::kInt)));
}

TEST_F(Convert, values_beyond_the_range_of_the_dtype_are_named) {
  features_[3 * kWidth + 2] = 70000;
  write_features();
  EXPECT_THROWS(IoError, fragments(in(), "row 3 holds 70000", "range of float16"),
                convert_dataset(in(), out(), {.feature_dtype = at::kHalf}));
  EXPECT_TRUE(nothing_left());
  convert_dataset(in(), out(), {.feature_dtype = at::kBFloat16});
  features_[3 * kWidth + 2] = -std::numeric_limits<float>::max();
  write_features();
  EXPECT_THROWS(IoError, fragments("row 3 holds -3.4", "range of bfloat16"),
                convert_dataset(in(), out(), {.feature_dtype = at::kBFloat16, .overwrite = true}));
}

TEST_F(Convert, values_that_are_not_finite_are_refused) {
  for (const float value : {INFINITY, NAN}) {
    features_[5] = value;
    write_features();
    EXPECT_THROWS(IoError, fragments(in(), "row 0, column 5 is"), convert_dataset(in(), out()));
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Convert, an_output_that_is_there_is_replaced_only_where_asked) {
  convert_dataset(in(), out());
  EXPECT_THROWS(InvalidArgument, fragments(out(), "exists"), convert_dataset(in(), out()));
  EXPECT_NO_THROW(convert_dataset(in(), out() + "/", {.overwrite = true}));
  EXPECT_NO_THROW(load_dataset(out()));
  EXPECT_TRUE(nothing_beside());
}

TEST_F(Convert, what_is_no_mapped_dataset_is_never_replaced) {
  const std::string mine = folder_.write("mine/diary.txt", "dear diary");
  const std::string file = folder_.write("file", "text");
  for (const std::string& output : {folder_.path("mine"), file}) {
    EXPECT_THROWS(InvalidArgument, fragments(output, "no mapped dataset"),
                  convert_dataset(in(), output, {.overwrite = true}));
  }
  EXPECT_TRUE(fs::exists(mine));
  fs::create_directory(folder_.path("empty"));
  EXPECT_NO_THROW(convert_dataset(in(), folder_.path("empty")));
}

TEST_F(Convert, a_mapped_dataset_with_files_of_the_user_is_never_replaced) {
  convert_dataset(in(), out());
  const auto refused = [&](const std::string& mine, const std::string& fault) {
    const std::string path = folder_.write("out/" + mine, "dear diary");
    const auto result = throws<InvalidArgument>(
        [&] { convert_dataset(in(), out(), {.overwrite = true}); }, {out(), fault});
    EXPECT_TRUE(fs::exists(path));
    EXPECT_TRUE(fs::exists(out() + "/labels.npy"));
    folder_.remove("out/" + mine.substr(0, mine.find('/')));
    return result;
  };
  EXPECT_TRUE(refused("diary.txt", "holds 'diary.txt', which its mezzo.json does not list"));
  EXPECT_TRUE(refused("mine/diary.txt", "holds 'mine'"));
  EXPECT_TRUE(refused("partition.json", "holds 'partition.json'"));
  folder_.remove("out/labels.npy");
  const std::string hidden = folder_.write("out/labels.npy/diary.txt", "dear diary");
  EXPECT_THROWS(InvalidArgument, "holds 'labels.npy', which is a folder",
                convert_dataset(in(), out(), {.overwrite = true}));
  EXPECT_TRUE(fs::exists(hidden));
}

TEST_F(Convert, a_folder_whose_manifest_is_damaged_is_never_replaced) {
  const std::string manifest = folder_.write("out/mezzo.json", "{");
  EXPECT_THROWS(InvalidArgument, fragments("its list of files is damaged", manifest),
                convert_dataset(in(), out(), {.overwrite = true}));
  EXPECT_TRUE(fs::exists(manifest));
}

TEST_F(Convert, a_folder_with_the_data_set_in_it_is_never_replaced) {
  convert_dataset(in(), out());
  const std::string source = out() + "/in";
  fs::create_directory_symlink(out(), folder_.path("link"));
  fs::rename(in(), source);
  for (const std::string& output : {out(), folder_.path("link")}) {
    EXPECT_THROWS(InvalidArgument, fragments(output, "holds 'in'"),
                  convert_dataset(source, output, {.overwrite = true}));
  }
  EXPECT_NO_THROW(load_dataset(source));
}

TEST_F(Convert, a_folder_of_parts_is_never_replaced) {
  const Dataset source = load_dataset(in());
  write_parts(source, at::arange(kNodes).remainder(2), out());
  EXPECT_THROWS(InvalidArgument, fragments(out(), "is no mapped dataset"),
                convert_dataset(in(), out(), {.overwrite = true}));
  EXPECT_TRUE(fs::exists(out() + "/part1/mezzo.json"));
}

TEST_F(Convert, outputs_that_cannot_be_made_are_errors) {
  EXPECT_THROWS(IoError, fragments("output", "no/such does not exist"),
                convert_dataset(in(), folder_.path("no/such/folder")));
  EXPECT_THROWS(InvalidArgument, "output", convert_dataset(in(), ""));
}

TEST_F(Convert, what_others_have_beside_the_output_stays) {
  const std::string old = folder_.write("out.partial/diary.txt", "dear diary");
  const std::string other = folder_.write("out.partial-00000001/diary.txt", "dear diary");
  convert_dataset(in(), out());
  convert_dataset(in(), out(), {.overwrite = true});
  EXPECT_TRUE(fs::exists(old));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(Convert, what_comes_to_stand_at_the_output_meanwhile_stays) {
  for (const bool overwrite : {false, true}) {
    const auto interfere = [&](const ConvertProgress& progress) {
      if (progress.stage == "checking") folder_.write("out/diary.txt", "dear diary");
    };
    EXPECT_THROWS(InvalidArgument, fragments(out(), "no mapped dataset"),
                  convert_dataset(in(), out(), {.overwrite = overwrite, .on_progress = interfere}));
    EXPECT_TRUE(fs::exists(out() + "/diary.txt"));
    EXPECT_TRUE(nothing_beside());
    fs::remove_all(out());
  }
}

TEST_F(Convert, conversions_at_the_same_time_do_not_meet) {
  const auto meanwhile = [&](const ConvertProgress& progress) {
    if (progress.stage == "sorting rows") {
      convert_dataset(in(), out(), {.normalize_features = true, .overwrite = true});
    }
  };
  convert_dataset(in(), out(), {.overwrite = true, .on_progress = meanwhile});
  EXPECT_TRUE(at::equal(load_dataset(out()).features, load_dataset(in()).features));
  EXPECT_TRUE(nothing_beside());
  fs::remove_all(out());
  EXPECT_THROWS(InvalidArgument, fragments(out(), "exists"),
                convert_dataset(in(), out(), {.on_progress = meanwhile}));
  EXPECT_NO_THROW(load_dataset(out()));
  EXPECT_TRUE(nothing_beside());
}

TEST_F(Convert, a_link_to_an_old_folder_stays_and_leads_to_the_new_one) {
  convert_dataset(in(), folder_.path("in/place"));
  fs::create_directory_symlink(folder_.path("in/place"), out());
  convert_dataset(in(), out(), {.normalize_features = true, .overwrite = true});
  EXPECT_TRUE(fs::is_symlink(out()));
  const at::Tensor expected = load_dataset(in(), {.normalize_features = true}).features;
  EXPECT_TRUE(at::equal(load_dataset(folder_.path("in/place")).features, expected));
}

TEST_F(Convert, wrong_arguments_are_refused_before_any_work) {
  EXPECT_THROWS(InvalidArgument, fragments("feature_dtype", "float64"),
                convert_dataset(in(), out(), {.feature_dtype = at::kDouble}));
  EXPECT_THROWS(InvalidArgument, "no_such_name", convert_dataset("no_such_name", out()));
  EXPECT_THROWS(IoError, "no such file", convert_dataset("./no/such/path", out()));
  EXPECT_THROWS(InvalidArgument, fragments("split", "'none'"),
                convert_dataset(in(), out(), {.split = "none"}));
  EXPECT_TRUE(nothing_left());
}

TEST_F(Convert, a_stop_leaves_nothing_whenever_it_comes) {
  int num_calls = 0;
  convert_dataset(in(), out(), {.should_stop = [&] {
                    ++num_calls;
                    return false;
                  }});
  ASSERT_GE(num_calls, 4);
  fs::remove_all(out());
  for (int stop = 1; stop <= num_calls; ++stop) {
    int count = 0;
    const ConvertReport report =
        convert_dataset(in(), out(), {.should_stop = [&] { return ++count == stop; }});
    EXPECT_TRUE(report.stopped) << stop;
    EXPECT_TRUE(nothing_left()) << stop;
  }
}

TEST_F(Convert, a_stop_is_heard_while_lines_are_read_for_the_first_time) {
  constexpr Number kLines = 1 << 20;
  std::string text;
  for (Number i = 0; i < kLines; ++i) text += "0 1\n";
  const std::string edges = folder_.write("in/graph.txt", text);
  std::vector<std::pair<std::string, Number>> told;
  const ConvertReport report = convert_dataset(
      edges, out(),
      {.on_progress = [&](const ConvertProgress& p) { told.emplace_back(p.stage, p.done); },
       .should_stop = [] { return true; }});
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(told, (std::vector<std::pair<std::string, Number>>{{"reading lines", kLines}}));
  EXPECT_TRUE(nothing_left());
}

TEST_F(Convert, a_stop_keeps_the_folder_that_was_there) {
  convert_dataset(in(), out());
  const ConvertReport report =
      convert_dataset(in(), out(), {.overwrite = true, .should_stop = [] { return true; }});
  EXPECT_TRUE(report.stopped);
  EXPECT_NO_THROW(load_dataset(out()));
}

TEST_F(Convert, tells_how_far_it_is) {
  std::vector<std::string> stages;
  Number last = 0;
  convert_dataset(in(), out(), {.on_progress = [&](const ConvertProgress& progress) {
                    if (stages.empty() || stages.back() != progress.stage) {
                      stages.emplace_back(progress.stage);
                    }
                    last = progress.total - progress.done;
                  }});
  EXPECT_EQ(stages, (std::vector<std::string>{"counting edges", "placing edges", "sorting rows",
                                              "features", "checking"}));
  EXPECT_EQ(last, 0);
}

/// Limits files to `bytes` during its lifetime, like a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit old_limit_{};
};

TEST_F(Convert, a_full_disk_is_an_io_error_and_leaves_nothing) {
  const std::vector<std::pair<rlim_t, std::string>> cases = {
      {100, "labels.npy"}, {1000, "indices.npy"}, {1400, "features.npy"}};
  for (const auto& [bytes, blamed] : cases) {
    const SmallDisk disk(bytes);
    EXPECT_THROWS(IoError, blamed, convert_dataset(in(), out())) << bytes;
    EXPECT_TRUE(nothing_left()) << bytes;
  }
}

}  // namespace
}  // namespace mezzo::test
