#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/ATen.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/predict/mezzo_predictor.h"
#include "mezzo/predict/predictor.h"
#include "mezzo/predict/status.h"
#include "mezzo/runtime/one_thread.h"
#include "mezzo/train/dataset_choice.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/version.h"

struct mezzo_predictor {
  mezzo::Predictor predictor;
  mezzo::nn::ModelOptions model;
  bool has_graph;
};

namespace mezzo {
namespace {

/// The arguments of one call, checked.
class Arguments {
 public:
  explicit Arguments(std::string_view name) : name_(name) {}

  template <class T>
  T& object(std::string_view argument, T* pointer) const {
    MEZZO_CHECK(pointer != nullptr, "{}: expected {}, got NULL", name_, argument);
    return *pointer;
  }
  /// The caller's memory as an array [count].
  template <class T>
  at::Tensor array(std::string_view argument, const T* items, std::int64_t count) const {
    check_size(argument, count);
    if (count > 0) object(argument, items);
    // A tensor has no constant items; the functions of a Predictor only read them.
    return at::from_blob(const_cast<T*>(items), {count}, c10::CppTypeToScalarType<T>::value);
  }
  /// The caller's memory as rows [count, expected].
  at::Tensor rows(std::string_view argument, const float* items, std::int64_t count,
                  std::int64_t width, std::int64_t expected) const {
    check_size(argument, count);
    MEZZO_CHECK(width == expected, "{}: expected {} of width {}, got {}", name_, argument, expected,
                width);
    return array(argument, items, count * width).view({count, width});
  }
  at::Tensor features(const mezzo_predictor& of, const float* items, std::int64_t num_nodes,
                      std::int64_t width) const {
    return rows("features", items, num_nodes, width, of.model.in_features);
  }
  /// Rows of edges, undefined if they are NULL.
  at::Tensor edge_rows(const mezzo_predictor& of, const float* items, std::int64_t num_edges,
                       std::int64_t width) const {
    if (items == nullptr && width == 0) return {};
    if (nn::takes_edge_features(of.model.kind)) {
      return rows("rows", items, num_edges, width, of.model.edge_features);
    }
    return rows("rows", items, num_edges, width, 1).flatten();
  }
  /// What a head reads of pairs, undefined if both are NULL.
  at::Tensor pair_rows(const mezzo_predictor& of, std::int64_t num_pairs, const float* features,
                       std::int64_t width, const std::int64_t* types) const {
    if (features != nullptr || width != 0) {
      MEZZO_CHECK(types == nullptr, "{}: expected features or types, got both", name_);
      return rows("features", features, num_pairs, width, of.model.edge_features);
    }
    return types == nullptr ? at::Tensor() : array("types", types, num_pairs);
  }
  void check_logits(const mezzo_predictor& of, const float* logits, std::int64_t num_logits,
                    std::int64_t num_rows) const {
    const std::int64_t width = of.model.out_features;
    MEZZO_CHECK(num_logits % width == 0 && num_logits / width == num_rows,
                "{}: expected logits of {} rows of {} numbers, got a buffer of {} numbers", name_,
                num_rows, width, num_logits);
    if (num_logits > 0) object("logits", logits);
  }

 private:
  void check_size(std::string_view argument, std::int64_t count) const {
    MEZZO_CHECK(count >= 0, "{}: expected a size of {} of at least 0, got {}", name_, argument,
                count);
  }

  std::string_view name_;
};

void write_rows(const at::Tensor& rows, float* logits) {
  const at::Tensor numbers = rows.contiguous();
  std::copy_n(numbers.const_data_ptr<float>(), numbers.numel(), logits);
}

PredictorOptions options_of(const mezzo_predictor_options* options) {
  if (options == nullptr) return {};
  PredictorOptions parsed{.resident = options->resident != 0};
  if (options->precision != nullptr) parsed.precision = amp::parse_precision(options->precision);
  return parsed;
}

/// The data set as `mezzo predict` reads it.
Dataset dataset_of(const TrainedModel& trained, const char* name) {
  std::string dataset = name != nullptr ? name : "";
  LoadOptions load{.labels_optional = true};
  choose_dataset(trained, dataset, load);
  return load_dataset(dataset, load);
}

}  // namespace
}  // namespace mezzo

using mezzo::Arguments;
using mezzo::detail::guarded;

const char* mezzo_version(void) {
  return mezzo::kVersion.data();  // of a literal
}

mezzo_status mezzo_predictor_open(const char* checkpoint, const char* dataset,
                                  const mezzo_predictor_options* options,
                                  mezzo_predictor** predictor) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_open");
    mezzo_predictor*& result = call.object("predictor", predictor);
    const mezzo::PredictorOptions parsed = mezzo::options_of(options);
    const mezzo::TrainedModel trained =
        mezzo::load_checkpoint(&call.object("checkpoint", checkpoint));
    const mezzo::Dataset data = mezzo::dataset_of(trained, dataset);
    result = new mezzo_predictor{mezzo::Predictor(trained, data, parsed), trained.model->options,
                                 /*has_graph=*/true};
  });
}

mezzo_status mezzo_predictor_open_model(const char* checkpoint,
                                        const mezzo_predictor_options* options,
                                        mezzo_predictor** predictor) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_open_model");
    mezzo_predictor*& result = call.object("predictor", predictor);
    const mezzo::PredictorOptions parsed = mezzo::options_of(options);
    const mezzo::TrainedModel trained =
        mezzo::load_checkpoint(&call.object("checkpoint", checkpoint));
    result = new mezzo_predictor{mezzo::Predictor(trained, parsed), trained.model->options,
                                 /*has_graph=*/false};
  });
}

void mezzo_predictor_free(mezzo_predictor* predictor) {
  delete predictor;
}

mezzo_status mezzo_predictor_get_counts(const mezzo_predictor* predictor,
                                        mezzo_predictor_counts* counts) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_get_counts");
    const mezzo_predictor& self = call.object("predictor", predictor);
    call.object("counts", counts) = {
        .nodes = self.has_graph ? self.predictor.num_nodes() : 0,
        .edges = self.has_graph ? self.predictor.num_edges() : 0,
        .features = self.model.in_features,
        .classes = self.model.out_features,
    };
  });
}

mezzo_status mezzo_predictor_predict(const mezzo_predictor* predictor, const int64_t* nodes,
                                     int64_t num_nodes, float* logits, int64_t num_logits) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_predict");
    const mezzo_predictor& self = call.object("predictor", predictor);
    const at::Tensor ids = call.array("nodes", nodes, num_nodes);
    call.check_logits(self, logits, num_logits, num_nodes);
    mezzo::write_rows(self.predictor.predict(ids), logits);
  });
}

mezzo_status mezzo_predictor_predict_all(const mezzo_predictor* predictor, float* logits,
                                         int64_t num_logits) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_predict_all");
    const mezzo_predictor& self = call.object("predictor", predictor);
    call.check_logits(self, logits, num_logits, self.predictor.num_nodes());
    const at::Tensor rows = self.predictor.predict();
    call.check_logits(self, logits, num_logits, rows.size(0));  // other threads may add nodes
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_sampled(const mezzo_predictor* predictor, const int64_t* nodes,
                                             int64_t num_nodes, const int64_t* fanouts,
                                             int64_t num_fanouts, uint64_t seed, float* logits,
                                             int64_t num_logits) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_predict_sampled");
    const mezzo_predictor& self = call.object("predictor", predictor);
    const at::Tensor ids = call.array("nodes", nodes, num_nodes);
    call.array("fanouts", fanouts, num_fanouts);
    call.check_logits(self, logits, num_logits, num_nodes);
    const at::Tensor rows =
        self.predictor.predict(ids, {.fanouts = {fanouts, fanouts + num_fanouts}, .seed = seed});
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_edges(const mezzo_predictor* predictor, const int64_t* src,
                                           const int64_t* dst, int64_t num_pairs,
                                           const float* features, int64_t width,
                                           const int64_t* types, float* logits,
                                           int64_t num_logits) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_predict_edges");
    const mezzo_predictor& self = call.object("predictor", predictor);
    call.check_logits(self, logits, num_logits, num_pairs);
    const at::Tensor rows = self.predictor.predict_edges(
        call.array("src", src, num_pairs), call.array("dst", dst, num_pairs),
        call.pair_rows(self, num_pairs, features, width, types));
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_graph(const mezzo_predictor* predictor, const int64_t* src,
                                           const int64_t* dst, int64_t num_edges,
                                           const float* features, int64_t num_nodes, int64_t width,
                                           float* logits, int64_t num_logits) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_predict_graph");
    const mezzo_predictor& self = call.object("predictor", predictor);
    MEZZO_CHECK(self.model.target == mezzo::TaskTarget::kNode &&
                    !mezzo::nn::takes_edge_features(self.model.kind),
                "mezzo_predictor_predict_graph: expected a model for nodes that reads no features "
                "of edges");
    const mezzo::detail::OneThread one_thread;
    const at::Tensor x = call.features(self, features, num_nodes, width);
    call.check_logits(self, logits, num_logits, num_nodes);
    const auto graph = mezzo::Topology::from_coo(
        call.array("src", src, num_edges), call.array("dst", dst, num_edges), num_nodes, num_nodes);
    mezzo::write_rows(self.predictor.predict(graph, x), logits);
  });
}

mezzo_status mezzo_predictor_add_edges(mezzo_predictor* predictor, const int64_t* src,
                                       const int64_t* dst, int64_t num_edges, const float* rows,
                                       int64_t width) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_add_edges");
    mezzo_predictor& self = call.object("predictor", predictor);
    self.predictor.add_edges(call.array("src", src, num_edges), call.array("dst", dst, num_edges),
                             call.edge_rows(self, rows, num_edges, width));
  });
}

mezzo_status mezzo_predictor_remove_edges(mezzo_predictor* predictor, const int64_t* src,
                                          const int64_t* dst, int64_t num_edges) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_remove_edges");
    mezzo_predictor& self = call.object("predictor", predictor);
    self.predictor.remove_edges(call.array("src", src, num_edges),
                                call.array("dst", dst, num_edges));
  });
}

mezzo_status mezzo_predictor_set_features(mezzo_predictor* predictor, const int64_t* nodes,
                                          int64_t num_nodes, const float* features, int64_t width) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_set_features");
    mezzo_predictor& self = call.object("predictor", predictor);
    self.predictor.set_features(call.array("nodes", nodes, num_nodes),
                                call.features(self, features, num_nodes, width));
  });
}

mezzo_status mezzo_predictor_add_nodes(mezzo_predictor* predictor, const float* features,
                                       int64_t num_nodes, int64_t width, int64_t* first) {
  return guarded([&] {
    const Arguments call("mezzo_predictor_add_nodes");
    mezzo_predictor& self = call.object("predictor", predictor);
    const std::int64_t id =
        self.predictor.add_nodes(call.features(self, features, num_nodes, width));
    if (first != nullptr) *first = id;
  });
}
