#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "mezzo/predict/mezzo_predictor.h"
#include "mezzo/predict/predictor.h"
#include "mezzo/predict/status.h"
#include "mezzo/train/trainer.h"
#include "mezzo/version.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/link_data.h"
#include "train/synthetic.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using test::fragments;
using test::same_bits;

constexpr std::int64_t kRingNodes = 40, kRingFeatures = 6, kRingClasses = 2;  // of two_rings()

/// An npy folder of data, and a checkpoint of a model for them.
class TrainedFolder {
 public:
  TrainedFolder(const Dataset& data, TrainOptions options) {
    const bool of_links = data.target == TaskTarget::kLink;
    save("edge_index", "<i8", at::stack({data.src, data.dst}));
    save("features", "<f4", data.features);
    save(data.target == TaskTarget::kNode ? "labels" : "edge_labels", "<i8",
         of_links ? data.edge_types : data.labels);
    save("train_mask", "|b1", data.train_masks);
    save("val_mask", "|b1", data.val_masks);
    save("test_mask", "|b1", data.test_masks);
    if (data.edge_weights.defined()) save("edge_weights", "<f4", data.edge_weights);
    if (data.edge_features.defined()) save("edge_features", "<f4", data.edge_features);
    options.dataset = this->data();
    options.checkpoint = checkpoint();
    train(data, options);
  }

  std::string data() const { return folder_.path("data"); }
  std::string checkpoint() const { return folder_.path("model.pt"); }
  std::string write(const std::string& name, std::string_view bytes) const {
    return folder_.write(name, bytes);
  }
  Predictor predictor(const PredictorOptions& options = {}) const {
    const TrainedModel trained = load_checkpoint(checkpoint());
    return Predictor(trained, load_dataset(data(), {.task = trained.data.task}), options);
  }

 private:
  void save(const std::string& name, const std::string& type, const at::Tensor& values) {
    const at::Tensor rows = values.contiguous();
    folder_.write("data/" + name + ".npy",
                  test::npy(type, rows.sizes().vec(),
                            {static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()}));
  }

  test::TempFolder folder_;
};

/// The same of test::two_rings(), with edge features or weights for kinds that are to read them.
class TrainedRings : public TrainedFolder {
 public:
  explicit TrainedRings(nn::ModelKind kind, bool with_weights = false)
      : TrainedFolder(data_for(kind, with_weights), options_for(kind)) {}

 private:
  static Dataset data_for(nn::ModelKind kind, bool with_weights) {
    Dataset data = test::two_rings();
    if (with_weights) data.edge_weights = at::arange(1, data.num_edges() + 1).to(at::kFloat);
    if (!nn::takes_edge_features(kind)) data.edge_features = at::Tensor();
    return data;
  }
  static TrainOptions options_for(nn::ModelKind kind) {
    TrainOptions options = test::quick_options();
    options.model = kind;
    options.normalize_features = true;
    return options;
  }
};

/// A mezzo_predictor, freed at the end.
struct Handle {
  explicit Handle(const TrainedFolder& trained, const mezzo_predictor_options* options = nullptr) {
    EXPECT_EQ(
        mezzo_predictor_open(trained.checkpoint().c_str(), trained.data().c_str(), options, &get),
        MEZZO_OK)
        << mezzo_last_error();
  }
  ~Handle() { mezzo_predictor_free(get); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  mezzo_predictor* get = nullptr;
};

/// Room for the logits of nodes, in NaN.
at::Tensor room(std::int64_t rows) {
  return at::full({rows, kRingClasses}, std::numeric_limits<float>::quiet_NaN());
}

at::Tensor all_logits(const mezzo_predictor* predictor, std::int64_t rows) {
  at::Tensor logits = room(rows);
  EXPECT_EQ(mezzo_predictor_predict_all(predictor, logits.data_ptr<float>(), logits.numel()),
            MEZZO_OK)
      << mezzo_last_error();
  return logits;
}

#define EXPECT_INVALID(part, ...)                   \
  EXPECT_EQ((__VA_ARGS__), MEZZO_INVALID_ARGUMENT); \
  EXPECT_TRUE(test::mentions(mezzo_last_error(), fragments(part)))

TEST(CInterface, is_the_predictor) {
  const TrainedRings rings(nn::ModelKind::kSage);
  const struct {
    mezzo_predictor_options options;
    PredictorOptions same;
  } cases[] = {
      {{0, nullptr}, {}},
      {{1, "fp32"}, {.resident = true, .precision = amp::Precision::kFloat32}},
      {{1, "bf16"}, {.resident = true, .precision = amp::Precision::kBFloat16}},
      {{0, "fp16"}, {.precision = amp::Precision::kFloat16}},
  };
  for (const auto& [options, same] : cases) {
    const Handle handle(rings, &options);
    Predictor expected = rings.predictor(same);
    EXPECT_TRUE(same_bits(all_logits(handle.get, kRingNodes), expected.predict()));

    const std::int64_t nodes[] = {7, 0, 39, 7}, fanouts[] = {1, 1};
    const at::Tensor ids = at::tensor({7, 0, 39, 7});
    at::Tensor logits = room(4);
    auto* to = logits.data_ptr<float>();
    EXPECT_EQ(mezzo_predictor_predict(handle.get, nodes, 4, to, 8), MEZZO_OK);
    EXPECT_TRUE(same_bits(logits, expected.predict(ids)));
    EXPECT_EQ(mezzo_predictor_predict_sampled(handle.get, nodes, 4, fanouts, 2, 9, to, 8),
              MEZZO_OK);
    EXPECT_TRUE(same_bits(logits, expected.predict(ids, {.fanouts = {1, 1}, .seed = 9})));

    const std::int64_t src[] = {1, 40}, dst[] = {0, 7}, changed[] = {5};
    const at::Tensor features = at::rand({1, kRingFeatures}) + 1;
    const auto* rows = features.const_data_ptr<float>();
    std::int64_t first = -1;
    EXPECT_EQ(mezzo_predictor_add_nodes(handle.get, rows, 1, kRingFeatures, &first), MEZZO_OK);
    EXPECT_EQ(first, expected.add_nodes(features));
    EXPECT_EQ(mezzo_predictor_add_nodes(handle.get, rows, 1, kRingFeatures, nullptr), MEZZO_OK);
    expected.add_nodes(features);
    EXPECT_EQ(mezzo_predictor_add_edges(handle.get, src, dst, 2, nullptr, 0), MEZZO_OK);
    expected.add_edges(at::tensor({1, 40}), at::tensor({0, 7}));
    EXPECT_EQ(mezzo_predictor_remove_edges(handle.get, src, dst, 1), MEZZO_OK);
    expected.remove_edges(at::tensor({1}), at::tensor({0}));
    EXPECT_EQ(mezzo_predictor_set_features(handle.get, changed, 1, rows, kRingFeatures), MEZZO_OK);
    expected.set_features(at::tensor({5}), features);
    EXPECT_TRUE(same_bits(all_logits(handle.get, kRingNodes + 2), expected.predict()));

    mezzo_predictor_counts counts;
    EXPECT_EQ(mezzo_predictor_get_counts(handle.get, &counts), MEZZO_OK);
    EXPECT_EQ(counts.nodes, kRingNodes + 2);
    EXPECT_EQ(counts.edges, expected.num_edges());
    EXPECT_EQ(counts.features, kRingFeatures);
    EXPECT_EQ(counts.classes, kRingClasses);
  }
}

TEST(CInterface, takes_rows_of_edges) {
  const std::int64_t src[] = {1, 3}, dst[] = {0, 0};
  const float rows[] = {2, 0.5F, 1, 3};
  {
    const TrainedRings rings(nn::ModelKind::kGcn, /*with_weights=*/true);
    const Handle handle(rings);
    EXPECT_EQ(mezzo_predictor_add_edges(handle.get, src, dst, 2, rows, 1), MEZZO_OK);
    Predictor expected = rings.predictor();
    expected.add_edges(at::tensor({1, 3}), at::tensor({0, 0}), at::tensor({2.F, 0.5F}));
    EXPECT_TRUE(same_bits(all_logits(handle.get, kRingNodes), expected.predict()));
    EXPECT_INVALID("rows", mezzo_predictor_add_edges(handle.get, src, dst, 2, nullptr, 0));
    EXPECT_INVALID("width 1, got 2", mezzo_predictor_add_edges(handle.get, src, dst, 2, rows, 2));
  }
  const TrainedRings rings(nn::ModelKind::kGine);
  const Handle handle(rings);
  EXPECT_EQ(mezzo_predictor_add_edges(handle.get, src, dst, 2, rows, 2), MEZZO_OK);
  Predictor expected = rings.predictor();
  expected.add_edges(at::tensor({1, 3}), at::tensor({0, 0}),
                     at::tensor({2.F, 0.5F, 1.F, 3.F}).view({2, 2}));
  EXPECT_TRUE(same_bits(all_logits(handle.get, kRingNodes), expected.predict()));
  EXPECT_INVALID("width 2, got 1", mezzo_predictor_add_edges(handle.get, src, dst, 2, rows, 1));
  EXPECT_INVALID("features of edges",
                 mezzo_predictor_predict_graph(handle.get, src, dst, 2, rows, 1, kRingFeatures,
                                               nullptr, kRingClasses));
}

TEST(CInterface, predicts_edges) {
  TrainOptions options = test::quick_options();
  options.model = nn::ModelKind::kSage;
  const TrainedFolder edges(test::edges_with_labels(LabelKind::kClass), options);
  const Handle handle(edges);
  const std::int64_t src[] = {0, 59, 7}, dst[] = {5, 1, 7}, types[] = {1, 0, 1};
  const float features[] = {1, 0, 0.5F};
  const auto predict = [&](const float* of_edges, std::int64_t width, const std::int64_t* of_links,
                           at::Tensor& logits) {
    return mezzo_predictor_predict_edges(handle.get, src, dst, 3, of_edges, width, of_links,
                                         logits.data_ptr<float>(), logits.numel());
  };
  at::Tensor logits = room(3);
  EXPECT_INVALID(fragments("rows", "[3, 1]"), predict(nullptr, 0, nullptr, logits));
  EXPECT_INVALID(fragments("rows", "[3, 1]"), predict(nullptr, 0, types, logits));
  EXPECT_INVALID("both", predict(features, 1, types, logits));
  EXPECT_INVALID(fragments("width 1", "2"), predict(features, 2, nullptr, logits));
  EXPECT_INVALID(fragments("features", "NULL"), predict(nullptr, 1, nullptr, logits));
  at::Tensor less = room(2);
  EXPECT_INVALID("3 rows of 2", predict(features, 1, nullptr, less));
  EXPECT_INVALID(fragments("node", "edge"),
                 mezzo_predictor_predict(handle.get, src, 1, logits.data_ptr<float>(), 2));
  EXPECT_TRUE(logits.isnan().all().item<bool>()) << "a failed call wrote logits";
  EXPECT_EQ(predict(features, 1, nullptr, logits), MEZZO_OK) << mezzo_last_error();
  EXPECT_TRUE(same_bits(
      logits, edges.predictor().predict_edges(at::tensor({0, 59, 7}), at::tensor({5, 1, 7}),
                                              at::tensor({1.F, 0.F, 0.5F}).view({3, 1}))));
}

TEST(CInterface, predicts_links) {
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  options.epochs = 2;
  const TrainedFolder links(test::links_within_groups(/*with_types=*/true), options);
  const Handle handle(links);
  const std::int64_t src[] = {0, 59, 7}, dst[] = {5, 1, 7}, types[] = {1, 0, 2};
  at::Tensor logits = at::full({2, 1}, NAN);
  const auto predict = [&](const std::int64_t* of_links, std::int64_t count) {
    return mezzo_predictor_predict_edges(handle.get, src, dst, count, nullptr, 0, of_links,
                                         logits.data_ptr<float>(), count);
  };
  EXPECT_INVALID(fragments("rows", "2"), predict(types + 1, 2));
  EXPECT_TRUE(logits.isnan().all().item<bool>()) << "a failed call wrote logits";
  const at::Tensor from = at::tensor({0, 59}), to = at::tensor({5, 1});
  EXPECT_EQ(predict(types, 2), MEZZO_OK) << mezzo_last_error();
  EXPECT_TRUE(same_bits(logits, links.predictor().predict_edges(from, to, at::tensor({1, 0}))));
  EXPECT_EQ(predict(nullptr, 2), MEZZO_OK) << mezzo_last_error();
  EXPECT_TRUE(same_bits(logits, links.predictor().predict_edges(from, to)));
}

TEST(CInterface, opens_the_data_set_of_the_training) {
  const TrainedRings rings(nn::ModelKind::kGcn);
  mezzo_predictor* predictor = nullptr;
  EXPECT_EQ(mezzo_predictor_open(rings.checkpoint().c_str(), nullptr, nullptr, &predictor),
            MEZZO_OK)
      << mezzo_last_error();
  EXPECT_TRUE(same_bits(all_logits(predictor, kRingNodes), rings.predictor().predict()));
  mezzo_predictor_free(predictor);
}

TEST(CInterface, predicts_on_another_graph) {
  const TrainedRings rings(nn::ModelKind::kSage);
  mezzo_predictor* predictor = nullptr;
  ASSERT_EQ(mezzo_predictor_open_model(rings.checkpoint().c_str(), nullptr, &predictor), MEZZO_OK)
      << mezzo_last_error();
  const std::int64_t src[] = {0, 1, 2}, dst[] = {1, 2, 0};
  const at::Tensor x = at::rand({4, kRingFeatures});
  const Predictor expected(load_checkpoint(rings.checkpoint()));
  const auto graph = Topology::from_coo(at::tensor({0, 1, 2}), at::tensor({1, 2, 0}), 4, 4);
  at::Tensor logits = room(4);
  EXPECT_EQ(mezzo_predictor_predict_graph(predictor, src, dst, 3, x.const_data_ptr<float>(), 4,
                                          kRingFeatures, logits.data_ptr<float>(), 8),
            MEZZO_OK)
      << mezzo_last_error();
  EXPECT_TRUE(same_bits(logits, expected.predict(graph, x)));

  mezzo_predictor_counts counts;
  EXPECT_EQ(mezzo_predictor_get_counts(predictor, &counts), MEZZO_OK);
  EXPECT_EQ(counts.nodes, 0);
  EXPECT_EQ(counts.edges, 0);
  EXPECT_EQ(counts.features, kRingFeatures);
  auto* to = logits.data_ptr<float>();
  EXPECT_INVALID("expected a graph", mezzo_predictor_predict(predictor, src, 3, to, 6));
  EXPECT_INVALID("expected a graph", mezzo_predictor_predict_all(predictor, to, 8));
  EXPECT_INVALID("expected a graph", mezzo_predictor_add_edges(predictor, src, dst, 3, nullptr, 0));
  EXPECT_INVALID(fragments("dst", "4"), [&] {
    const std::int64_t beyond[] = {1, 2, 4};
    return mezzo_predictor_predict_graph(predictor, src, beyond, 3, x.const_data_ptr<float>(), 4,
                                         kRingFeatures, to, 8);
  }());
  EXPECT_INVALID(fragments("width", "6", "5"),
                 mezzo_predictor_predict_graph(predictor, src, dst, 3, x.const_data_ptr<float>(), 4,
                                               5, to, 8));
  mezzo_predictor_free(predictor);
}

TEST(CInterface, checks_pointers_and_sizes) {
  const TrainedRings rings(nn::ModelKind::kSage);
  const Handle handle(rings);
  mezzo_predictor* const self = handle.get;
  const at::Tensor before = all_logits(self, kRingNodes);
  const std::int64_t nodes[] = {1, 2, 40}, fanouts[] = {2, 2, 2};
  at::Tensor logits = room(2);
  auto* to = logits.data_ptr<float>();
  const auto predict = [&](const mezzo_predictor* of, const std::int64_t* ids, std::int64_t count,
                           float* result, std::int64_t size) {
    return mezzo_predictor_predict(of, ids, count, result, size);
  };
  EXPECT_INVALID(fragments("predictor", "NULL"), predict(nullptr, nodes, 2, to, 4));
  EXPECT_INVALID(fragments("nodes", "NULL"), predict(self, nullptr, 2, to, 4));
  EXPECT_INVALID(fragments("nodes", "at least 0", "-1"), predict(self, nodes, -1, to, 4));
  EXPECT_INVALID(fragments("logits", "NULL"), predict(self, nodes, 2, nullptr, 4));
  for (const std::int64_t size : {0, 2, 3, 5, 6, -4}) {
    EXPECT_INVALID(fragments("2 rows of 2", std::to_string(size)),
                   predict(self, nodes, 2, to, size));
  }
  EXPECT_INVALID("40", predict(self, nodes + 1, 2, to, 4));
  EXPECT_TRUE(logits.isnan().all().item<bool>()) << "a failed call wrote logits";
  EXPECT_EQ(predict(self, nullptr, 0, nullptr, 0), MEZZO_OK) << mezzo_last_error();
  EXPECT_INVALID("40 rows of 2", mezzo_predictor_predict_all(self, to, 4));
  EXPECT_INVALID(fragments("2 fanouts", "3"),
                 mezzo_predictor_predict_sampled(self, nodes, 2, fanouts, 3, 0, to, 4));
  EXPECT_INVALID(fragments("fanouts", "NULL"),
                 mezzo_predictor_predict_sampled(self, nodes, 2, nullptr, 2, 0, to, 4));
  EXPECT_INVALID(fragments("counts", "NULL"), mezzo_predictor_get_counts(self, nullptr));

  const float row[kRingFeatures] = {};
  EXPECT_INVALID(fragments("src", "NULL"),
                 mezzo_predictor_add_edges(self, nullptr, nodes, 2, nullptr, 0));
  EXPECT_INVALID("40", mezzo_predictor_add_edges(self, nodes, nodes, 3, nullptr, 0));
  EXPECT_INVALID("rows", mezzo_predictor_add_edges(self, nodes, nodes, 2, row, 1));
  EXPECT_INVALID("1 to 1", mezzo_predictor_remove_edges(self, nodes, nodes, 1));
  EXPECT_INVALID(fragments("width", "6", "5"),
                 mezzo_predictor_set_features(self, nodes, 1, row, 5));
  EXPECT_INVALID(fragments("features", "NULL"),
                 mezzo_predictor_set_features(self, nodes, 1, nullptr, kRingFeatures));
  EXPECT_INVALID(fragments("features", "-2"),
                 mezzo_predictor_add_nodes(self, row, -2, kRingFeatures, nullptr));
  EXPECT_INVALID(fragments("predictor", "NULL"),
                 mezzo_predictor_add_nodes(nullptr, row, 1, kRingFeatures, nullptr));
  EXPECT_TRUE(same_bits(all_logits(self, kRingNodes), before));
}

TEST(CInterface, checks_what_it_opens) {
  const TrainedRings rings(nn::ModelKind::kSage);
  const std::string file = rings.checkpoint(), data = rings.data();
  mezzo_predictor* predictor = nullptr;
  const auto open = [&](const char* checkpoint, const char* dataset,
                        const mezzo_predictor_options* options) {
    return mezzo_predictor_open(checkpoint, dataset, options, &predictor);
  };
  EXPECT_INVALID(fragments("checkpoint", "NULL"), open(nullptr, data.c_str(), nullptr));
  EXPECT_INVALID(fragments("predictor", "NULL"),
                 mezzo_predictor_open(file.c_str(), data.c_str(), nullptr, nullptr));
  const mezzo_predictor_options wrong{0, "fp17"}, resident{1, nullptr};
  EXPECT_INVALID("fp17", open(file.c_str(), data.c_str(), &wrong));
  EXPECT_INVALID("no_such_data", open(file.c_str(), "no_such_data", nullptr));
  EXPECT_INVALID("resident", mezzo_predictor_open_model(file.c_str(), &resident, &predictor));
  EXPECT_INVALID(fragments("checkpoint", "NULL"),
                 mezzo_predictor_open_model(nullptr, nullptr, &predictor));

  EXPECT_EQ(open("no_such.pt", data.c_str(), nullptr), MEZZO_IO_ERROR);
  EXPECT_TRUE(test::mentions(mezzo_last_error(), "no_such.pt"));
  EXPECT_EQ(open(rings.write("bad.pt", "no checkpoint").c_str(), data.c_str(), nullptr),
            MEZZO_IO_ERROR);
  rings.write("data/features.npy", "cut");
  EXPECT_EQ(open(file.c_str(), data.c_str(), nullptr), MEZZO_IO_ERROR);
  EXPECT_TRUE(test::mentions(mezzo_last_error(), "features.npy"));
  EXPECT_EQ(predictor, nullptr);
  mezzo_predictor_free(nullptr);
}

/// The status of an exception.
template <class Error>
mezzo_status status_of(const Error& error) {
  return detail::guarded([&] { throw error; });
}

TEST(CInterface, has_a_status_for_every_error) {
  EXPECT_EQ(detail::guarded([] {}), MEZZO_OK);
  EXPECT_EQ(status_of(InvalidArgument("of the caller")), MEZZO_INVALID_ARGUMENT);
  EXPECT_STREQ(mezzo_last_error(), "of the caller");
  EXPECT_EQ(status_of(IoError("of a file")), MEZZO_IO_ERROR);
  EXPECT_STREQ(mezzo_last_error(), "of a file");
  EXPECT_EQ(status_of(NumericError("of numbers\nand a second line")), MEZZO_NUMERIC_ERROR);
  EXPECT_STREQ(mezzo_last_error(), "of numbers");
  EXPECT_EQ(status_of(LogicError("of order")), MEZZO_INTERNAL_ERROR);
  EXPECT_STREQ(mezzo_last_error(), "of order");
  EXPECT_EQ(status_of(std::runtime_error("another")), MEZZO_INTERNAL_ERROR);
  EXPECT_STREQ(mezzo_last_error(), "another");
  EXPECT_EQ(status_of(std::bad_alloc()), MEZZO_OUT_OF_MEMORY);
  EXPECT_STREQ(mezzo_last_error(), "out of memory");
  EXPECT_EQ(detail::guarded([] { TORCH_CHECK(false, "allocator: can't allocate memory: 1 byte"); }),
            MEZZO_OUT_OF_MEMORY);
  EXPECT_STREQ(mezzo_last_error(), "out of memory");
  EXPECT_EQ(status_of(std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried to "
                                         "allocate 9 bytes. Error code 12")),
            MEZZO_OUT_OF_MEMORY);
  EXPECT_STREQ(mezzo_last_error(), "out of memory: 9 bytes were requested");
  EXPECT_EQ(detail::guarded([] { TORCH_CHECK(false, "of libtorch"); }), MEZZO_INTERNAL_ERROR);
  EXPECT_STREQ(mezzo_last_error(), "of libtorch");
  EXPECT_EQ(status_of(3), MEZZO_INTERNAL_ERROR);
}

TEST(CInterface, keeps_the_last_error_of_each_thread) {
  EXPECT_EQ(status_of(IoError("here")), MEZZO_IO_ERROR);
  std::thread([] {
    EXPECT_STREQ(mezzo_last_error(), "");
    EXPECT_EQ(status_of(IoError("there")), MEZZO_IO_ERROR);
  }).join();
  EXPECT_STREQ(mezzo_last_error(), "here");
}

TEST(CInterface, has_the_version_of_the_library) {
  EXPECT_EQ(mezzo_version(), kVersion);
}

}  // namespace
}  // namespace mezzo
