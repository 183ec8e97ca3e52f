#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "mezzo/predict/predictor.h"
#include "mezzo/train/trained_model.h"

namespace mezzo::cli {

/// Answers requests to a model of nodes, edges or links. A request and its answer are JSON objects
/// on one line:
///
///     {"nodes": [3, 1]}                  {"classes": [...], "probabilities": [...]}, as
///       also "fanouts", "seed"             Predictions, or {"numbers": [[...], ...]}
///     {"edges": [[src, dst], ...]}       the same, by Predictor::predict_edges()
///       also "rows", of each edge
///     {"add_edges": [[src, dst], ...]}   {"nodes": N, "edges": E}, the sizes of the graph
///       also "rows", of each edge
///     {"remove_edges": [[src, dst], ...]}
///     {"set_features": {"nodes": [...], "features": [[...], ...]}}
///     {"add_nodes": [[...], ...]}        {"first": id, "nodes": N, "edges": E}
///     anything else, or a failure        {"error": "..."}
///
/// Any number of threads may call it, as Predictor.
class RequestHandler {
 public:
  /// Makes a resident Predictor. Throws InvalidArgument as it does.
  RequestHandler(const TrainedModel& trained, const Dataset& data);

  /// Throws nothing but std::bad_alloc.
  std::string answer(std::string_view line);

 private:
  nlohmann::json respond(const nlohmann::json& request);
  nlohmann::json predict(const nlohmann::json& request);
  nlohmann::json predict_edges(const nlohmann::json& request);
  nlohmann::json add_edges(const nlohmann::json& request);
  nlohmann::json remove_edges(const nlohmann::json& request);
  nlohmann::json set_features(const nlohmann::json& request);
  nlohmann::json add_nodes(const nlohmann::json& request);
  nlohmann::json predictions(const at::Tensor& logits) const;
  nlohmann::json sizes() const;

  Predictor predictor_;
  LabelKind labels_;
  std::int64_t num_features_;
};

/// {"error": text}, on one line.
std::string error_line(std::string_view text);

}  // namespace mezzo::cli
