#include "mezzo/cli/serve/request_handler.h"

#include <algorithm>
#include <initializer_list>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/predict/mezzo_predictor.h"
#include "mezzo/predict/status.h"
#include "mezzo/runtime/one_thread.h"
#include "mezzo/train/predictions.h"

namespace mezzo::cli {
namespace {

using nlohmann::json;
using Keys = std::initializer_list<std::string_view>;

/// Checks that an object has no other keys.
void check_keys(std::string_view what, const json& object, Keys keys) {
  for (const auto& item : object.items()) {
    MEZZO_CHECK(std::find(keys.begin(), keys.end(), item.key()) != keys.end(),
                "{}: expected the keys {}, got {}", what, fmt::join(keys, ", "), item.key());
  }
}

template <class T>
T value_of(const json& object, const std::string& key, std::string_view expected) {
  const auto item = object.find(key);
  MEZZO_CHECK(item != object.end() && holds<T>(*item), "{}: expected {}", key, expected);
  return item->get<T>();
}

at::Tensor ids_of(const json& object, const std::string& key) {
  return at::tensor(value_of<std::vector<std::int64_t>>(object, key, "a list of integers"),
                    at::kLong);
}

/// The rows of a list of lists as a tensor [n, width]; without rows the width is `width`.
template <class T>
at::Tensor rows_of(const json& object, const std::string& key, std::int64_t width,
                   std::string_view expected) {
  const auto rows = value_of<std::vector<std::vector<T>>>(object, key, expected);
  if (!rows.empty()) width = static_cast<std::int64_t>(rows[0].size());
  std::vector<T> items;
  for (const std::vector<T>& row : rows) {
    MEZZO_CHECK(static_cast<std::int64_t>(row.size()) == width,
                "{}: expected rows of one length, got {} and {}", key, width, row.size());
    items.insert(items.end(), row.begin(), row.end());
  }
  return at::tensor(items, c10::CppTypeToScalarType<T>::value)
      .view({static_cast<std::int64_t>(rows.size()), width});
}

struct Ends {
  at::Tensor src, dst;
};

Ends ends_of(const json& object, const std::string& key) {
  constexpr auto kExpected = "a list of pairs [source, destination] of integers";
  const at::Tensor pairs = rows_of<std::int64_t>(object, key, 2, kExpected);
  MEZZO_CHECK(pairs.size(1) == 2, "{}: expected {}", key, kExpected);
  return {pairs.select(1, 0).contiguous(), pairs.select(1, 1).contiguous()};
}

/// "rows": a number, or a list of numbers, of each edge. Int64 [n] or float32 [n] or [n, width];
/// undefined: none.
at::Tensor edge_rows_of(const json& request) {
  const auto list = request.find("rows");
  if (list == request.end()) return {};
  if (holds<std::vector<std::int64_t>>(*list)) return ids_of(request, "rows");
  if (holds<std::vector<float>>(*list)) return at::tensor(list->get<std::vector<float>>());
  return rows_of<float>(request, "rows", 0, "a list of numbers, or of lists of as many numbers");
}

/// The double with the fewest digits that is this float.
double short_double(float value) {
  return std::stod(fmt::format("{}", value));
}

template <class T>
json list_of(const at::Tensor& tensor) {
  json list = json::array();
  if (tensor.dim() > 1) {
    for (const at::Tensor& row : tensor.unbind()) list.push_back(list_of<T>(row));
    return list;
  }
  const T* item = tensor.const_data_ptr<T>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    if constexpr (std::is_same_v<T, float>) {
      list.push_back(short_double(item[i]));
    } else {
      list.push_back(item[i]);
    }
  }
  return list;
}

}  // namespace

std::string error_line(std::string_view text) {
  return json_line({{"error", std::string(text)}});
}

RequestHandler::RequestHandler(const TrainedModel& trained, const Dataset& data)
    : predictor_(trained, data, {.resident = true}),
      labels_(trained.data.task.labels),
      num_features_(trained.data.num_features) {}

std::string RequestHandler::answer(std::string_view line) {
  try {
    const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
    MEZZO_CHECK(request.is_object(), "expected a JSON object on one line");
    return json_line(respond(request));
  } catch (...) {
    detail::status_of_exception();
    return error_line(mezzo_last_error());
  }
}

json RequestHandler::respond(const json& request) {
  using Handler = json (RequestHandler::*)(const json&);
  static const std::vector<std::pair<const char*, Handler>> handlers = {
      {"nodes", &RequestHandler::predict},
      {"edges", &RequestHandler::predict_edges},
      {"add_edges", &RequestHandler::add_edges},
      {"remove_edges", &RequestHandler::remove_edges},
      {"set_features", &RequestHandler::set_features},
      {"add_nodes", &RequestHandler::add_nodes},
  };
  for (const auto& [key, handle] : handlers) {
    if (request.contains(key)) return (this->*handle)(request);
  }
  std::vector<std::string> keys;
  for (const auto& item : request.items()) keys.push_back(item.key());
  detail::raise<InvalidArgument>("expected one of the keys {}, got {}",
                                 fmt::join(handlers | std::views::keys, ", "),
                                 keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", ")));
}

json RequestHandler::predict(const json& request) {
  check_keys("nodes", request, {"nodes", "fanouts", "seed"});
  const at::Tensor nodes = ids_of(request, "nodes");
  const bool is_sampled = request.contains("fanouts");
  MEZZO_CHECK(is_sampled || !request.contains("seed"), "seed: expected fanouts beside it");
  SampledNeighbors sampled;
  if (is_sampled) {
    sampled.fanouts = value_of<std::vector<std::int64_t>>(request, "fanouts", "a list of integers");
  }
  if (request.contains("seed")) {
    sampled.seed = value_of<std::uint64_t>(request, "seed", "an integer of at least 0");
  }
  return predictions(is_sampled ? predictor_.predict(nodes, sampled) : predictor_.predict(nodes));
}

json RequestHandler::predict_edges(const json& request) {
  check_keys("edges", request, {"edges", "rows"});
  const Ends ends = ends_of(request, "edges");
  return predictions(predictor_.predict_edges(ends.src, ends.dst, edge_rows_of(request)));
}

json RequestHandler::predictions(const at::Tensor& logits) const {
  const detail::OneThread one_thread;  // beside the other connections
  const Predictions result = detail::predictions_of(logits, labels_);
  if (result.numbers.defined()) return {{"numbers", list_of<float>(result.numbers)}};
  return {{"classes", labels_ == LabelKind::kMultiLabel ? list_of<std::uint8_t>(result.classes)
                                                        : list_of<std::int64_t>(result.classes)},
          {"probabilities", list_of<float>(result.probabilities)}};
}

json RequestHandler::add_edges(const json& request) {
  check_keys("add_edges", request, {"add_edges", "rows"});
  const Ends ends = ends_of(request, "add_edges");
  const at::Tensor rows = edge_rows_of(request);
  predictor_.add_edges(ends.src, ends.dst, rows.defined() ? rows.to(at::kFloat) : rows);
  return sizes();
}

json RequestHandler::remove_edges(const json& request) {
  check_keys("remove_edges", request, {"remove_edges"});
  const Ends ends = ends_of(request, "remove_edges");
  predictor_.remove_edges(ends.src, ends.dst);
  return sizes();
}

json RequestHandler::set_features(const json& request) {
  check_keys("a request", request, {"set_features"});
  const json& rows = request["set_features"];
  MEZZO_CHECK(rows.is_object(), "set_features: expected an object with nodes and features");
  check_keys("set_features", rows, {"nodes", "features"});
  predictor_.set_features(ids_of(rows, "nodes"), rows_of<float>(rows, "features", num_features_,
                                                                "a list of lists of numbers"));
  return sizes();
}

json RequestHandler::add_nodes(const json& request) {
  check_keys("add_nodes", request, {"add_nodes"});
  const std::int64_t first = predictor_.add_nodes(
      rows_of<float>(request, "add_nodes", num_features_, "a list of lists of numbers"));
  json result = sizes();
  result["first"] = first;
  return result;
}

json RequestHandler::sizes() const {
  return {{"nodes", predictor_.num_nodes()}, {"edges", predictor_.num_edges()}};
}

}  // namespace mezzo::cli
