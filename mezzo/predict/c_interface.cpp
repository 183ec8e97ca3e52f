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
  mezzo::Predictor impl;
  mezzo::nn::ModelOptions model;
  bool has_graph;
};

namespace mezzo {
namespace {

/// What the pointer of an argument points to.
template <class T>
T& object(std::string_view call, std::string_view argument, T* pointer) {
  MEZZO_CHECK(pointer != nullptr, "{}: expected {}, got NULL", call, argument);
  return *pointer;
}

/// The arguments of one call to a predictor, checked.
class Arguments {
 public:
  Arguments(std::string_view call, const mezzo_predictor* predictor)
      : call_(call), model_(object(call, "predictor", predictor).model) {}

  std::string_view name() const { return call_; }
  /// The caller's memory as an array [count].
  template <class T>
  at::Tensor array(std::string_view argument, const T* items, std::int64_t count) const {
    check_size(argument, count);
    if (count > 0) object(call_, argument, items);
    // A tensor has no constant items; the functions of a Predictor only read them.
    return at::from_blob(const_cast<T*>(items), {count}, c10::CppTypeToScalarType<T>::value);
  }
  /// The caller's memory as rows [count, expected].
  at::Tensor rows(std::string_view argument, const float* items, std::int64_t count,
                  std::int64_t width, std::int64_t expected) const {
    check_size(argument, count);
    MEZZO_CHECK(width == expected, "{}: expected {} of width {}, got {}", call_, argument, expected,
                width);
    return array(argument, items, count * width).view({count, width});
  }
  at::Tensor features(const float* items, std::int64_t num_nodes, std::int64_t width) const {
    return rows("features", items, num_nodes, width, model_.in_features);
  }
  /// Rows of edges, undefined if they are NULL.
  at::Tensor edge_rows(const float* items, std::int64_t num_edges, std::int64_t width) const {
    if (items == nullptr && width == 0) return {};
    if (nn::takes_edge_features(model_.kind)) {
      return rows("rows", items, num_edges, width, model_.edge_features);
    }
    return rows("rows", items, num_edges, width, 1).flatten();
  }
  /// What a head reads of pairs, undefined if both are NULL.
  at::Tensor pair_rows(std::int64_t num_pairs, const float* features, std::int64_t width,
                       const std::int64_t* types) const {
    if (features != nullptr || width != 0) {
      MEZZO_CHECK(types == nullptr, "{}: expected features or types, got both", call_);
      return rows("features", features, num_pairs, width, model_.edge_features);
    }
    return types == nullptr ? at::Tensor() : array("types", types, num_pairs);
  }
  void check_logits(const float* logits, std::int64_t num_logits, std::int64_t num_rows) const {
    const std::int64_t width = model_.out_features;
    MEZZO_CHECK(num_logits % width == 0 && num_logits / width == num_rows,
                "{}: expected logits of {} rows of {} numbers, got a buffer of {} numbers", call_,
                num_rows, width, num_logits);
    if (num_logits > 0) object(call_, "logits", logits);
  }

 private:
  void check_size(std::string_view argument, std::int64_t count) const {
    MEZZO_CHECK(count >= 0, "{}: expected a size of {} of at least 0, got {}", call_, argument,
                count);
  }

  std::string_view call_;
  const nn::ModelOptions& model_;
};

PredictorOptions options_of(const mezzo_predictor_options* options) {
  if (options == nullptr) return {};
  PredictorOptions parsed{.resident = options->resident != 0};
  if (options->precision != nullptr) parsed.precision = amp::parse_precision(options->precision);
  return parsed;
}

/// Calls body(arguments), and turns what it throws into a status.
template <class Body>
mezzo_status answer(std::string_view call, const mezzo_predictor* predictor, const Body& body) {
  return detail::guarded([&] { body(Arguments(call, predictor)); });
}

/// Sets *predictor to make(trained, options).
template <class Make>
mezzo_status open(std::string_view call, const char* checkpoint,
                  const mezzo_predictor_options* options, bool has_graph,
                  mezzo_predictor** predictor, const Make& make) {
  return detail::guarded([&] {
    mezzo_predictor*& result = object(call, "predictor", predictor);
    const PredictorOptions parsed = options_of(options);
    const TrainedModel trained = load_checkpoint(&object(call, "checkpoint", checkpoint));
    result = new mezzo_predictor{make(trained, parsed), trained.model->options, has_graph};
  });
}

void write_rows(const at::Tensor& rows, float* logits) {
  const at::Tensor numbers = rows.contiguous();
  std::copy_n(numbers.const_data_ptr<float>(), numbers.numel(), logits);
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

const char* mezzo_version(void) {
  return mezzo::kVersion.data();  // of a literal
}

mezzo_status mezzo_predictor_open(const char* checkpoint, const char* dataset,
                                  const mezzo_predictor_options* options,
                                  mezzo_predictor** predictor) {
  return mezzo::open(__func__, checkpoint, options, /*has_graph=*/true, predictor,
                     [&](const mezzo::TrainedModel& trained, mezzo::PredictorOptions parsed) {
                       return mezzo::Predictor(trained, mezzo::dataset_of(trained, dataset),
                                               parsed);
                     });
}

mezzo_status mezzo_predictor_open_model(const char* checkpoint,
                                        const mezzo_predictor_options* options,
                                        mezzo_predictor** predictor) {
  return mezzo::open(__func__, checkpoint, options, /*has_graph=*/false, predictor,
                     [](const mezzo::TrainedModel& trained, mezzo::PredictorOptions parsed) {
                       return mezzo::Predictor(trained, parsed);
                     });
}

void mezzo_predictor_free(mezzo_predictor* predictor) {
  delete predictor;
}

mezzo_status mezzo_predictor_get_counts(const mezzo_predictor* predictor,
                                        mezzo_predictor_counts* counts) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    mezzo::object(call.name(), "counts", counts) = {
        .nodes = predictor->has_graph ? predictor->impl.num_nodes() : 0,
        .edges = predictor->has_graph ? predictor->impl.num_edges() : 0,
        .features = predictor->model.in_features,
        .classes = predictor->model.out_features,
    };
  });
}

mezzo_status mezzo_predictor_predict(const mezzo_predictor* predictor, const int64_t* nodes,
                                     int64_t num_nodes, float* logits, int64_t num_logits) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    const at::Tensor ids = call.array("nodes", nodes, num_nodes);
    call.check_logits(logits, num_logits, num_nodes);
    mezzo::write_rows(predictor->impl.predict(ids), logits);
  });
}

mezzo_status mezzo_predictor_predict_all(const mezzo_predictor* predictor, float* logits,
                                         int64_t num_logits) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    call.check_logits(logits, num_logits, predictor->impl.num_nodes());
    const at::Tensor rows = predictor->impl.predict();
    call.check_logits(logits, num_logits, rows.size(0));  // other threads may add nodes
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_sampled(const mezzo_predictor* predictor, const int64_t* nodes,
                                             int64_t num_nodes, const int64_t* fanouts,
                                             int64_t num_fanouts, uint64_t seed, float* logits,
                                             int64_t num_logits) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    const at::Tensor ids = call.array("nodes", nodes, num_nodes);
    call.array("fanouts", fanouts, num_fanouts);
    call.check_logits(logits, num_logits, num_nodes);
    const at::Tensor rows =
        predictor->impl.predict(ids, {.fanouts = {fanouts, fanouts + num_fanouts}, .seed = seed});
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_edges(const mezzo_predictor* predictor, const int64_t* src,
                                           const int64_t* dst, int64_t num_pairs,
                                           const float* features, int64_t width,
                                           const int64_t* types, float* logits,
                                           int64_t num_logits) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    call.check_logits(logits, num_logits, num_pairs);
    const at::Tensor rows = predictor->impl.predict_edges(
        call.array("src", src, num_pairs), call.array("dst", dst, num_pairs),
        call.pair_rows(num_pairs, features, width, types));
    mezzo::write_rows(rows, logits);
  });
}

mezzo_status mezzo_predictor_predict_graph(const mezzo_predictor* predictor, const int64_t* src,
                                           const int64_t* dst, int64_t num_edges,
                                           const float* features, int64_t num_nodes, int64_t width,
                                           float* logits, int64_t num_logits) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    MEZZO_CHECK(predictor->model.target == mezzo::TaskTarget::kNode &&
                    !mezzo::nn::takes_edge_features(predictor->model.kind),
                "{}: expected a model for nodes that reads no features of edges", call.name());
    const mezzo::detail::OneThread one_thread;
    const at::Tensor x = call.features(features, num_nodes, width);
    call.check_logits(logits, num_logits, num_nodes);
    const auto graph = mezzo::Topology::from_coo(
        call.array("src", src, num_edges), call.array("dst", dst, num_edges), num_nodes, num_nodes);
    mezzo::write_rows(predictor->impl.predict(graph, x), logits);
  });
}

mezzo_status mezzo_predictor_add_edges(mezzo_predictor* predictor, const int64_t* src,
                                       const int64_t* dst, int64_t num_edges, const float* rows,
                                       int64_t width) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    predictor->impl.add_edges(call.array("src", src, num_edges), call.array("dst", dst, num_edges),
                              call.edge_rows(rows, num_edges, width));
  });
}

mezzo_status mezzo_predictor_remove_edges(mezzo_predictor* predictor, const int64_t* src,
                                          const int64_t* dst, int64_t num_edges) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    predictor->impl.remove_edges(call.array("src", src, num_edges),
                                 call.array("dst", dst, num_edges));
  });
}

mezzo_status mezzo_predictor_set_features(mezzo_predictor* predictor, const int64_t* nodes,
                                          int64_t num_nodes, const float* features, int64_t width) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    predictor->impl.set_features(call.array("nodes", nodes, num_nodes),
                                 call.features(features, num_nodes, width));
  });
}

mezzo_status mezzo_predictor_add_nodes(mezzo_predictor* predictor, const float* features,
                                       int64_t num_nodes, int64_t width, int64_t* first) {
  return mezzo::answer(__func__, predictor, [&](const Arguments& call) {
    const std::int64_t id = predictor->impl.add_nodes(call.features(features, num_nodes, width));
    if (first != nullptr) *first = id;
  });
}
