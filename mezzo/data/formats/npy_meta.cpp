#include "mezzo/data/formats/npy_meta.h"

#include <string_view>

#include <nlohmann/json.hpp>

#include "mezzo/data/json_file.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

using nlohmann::json;

std::optional<std::int64_t> count_of(const json& root, const char* key, const std::string& where) {
  const auto value = root.find(key);
  if (value == root.end()) return std::nullopt;
  require(is_int64(*value) && *value >= 0, where, "'{}' is {}, expected an integer of at least 0",
          key, value->dump());
  return value->get<std::int64_t>();
}

std::optional<std::string> text_of(const json& root, const char* key, const std::string& where) {
  const auto value = root.find(key);
  if (value == root.end()) return std::nullopt;
  require(value->is_string(), where, "'{}' is not a string", key);
  return value->get<std::string>();
}

/// Lower case without blanks, '_' and '-'.
std::string plain_word(std::string_view text) {
  std::string word;
  for (const char c : text) {
    if (c == ' ' || c == '_' || c == '-') continue;
    word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return word;
}

std::optional<Metric> metric_of(const std::optional<std::string>& text, const std::string& where) {
  if (!text) return std::nullopt;
  const std::string word = plain_word(*text);
  if (word.starts_with("rocauc")) return Metric::kRocAuc;  // "ROC AUC (...)"
  if (word == "ap") return Metric::kAveragePrecision;
  std::optional<Metric> metric;
  detail::for_each(Metrics{}, [&]<class T>() {
    if (word == plain_word(T::name)) metric = T::kind;
  });
  require(metric.has_value(), where,
          "metric '{}' is not one of {} (in any case, with or without blanks, '_' and '-')", *text,
          detail::names(Metrics{}));
  return metric;
}

}  // namespace

NpyMeta read_npy_meta(const std::filesystem::path& folder) {
  NpyMeta meta;
  const std::filesystem::path path = folder / "meta.json";
  if (!std::filesystem::exists(path)) return meta;
  const std::string where = path.string();
  const json root = read_json_object(path);
  meta.name = text_of(root, "name", where);
  meta.num_nodes = count_of(root, "num_nodes", where);
  meta.num_edges = count_of(root, "num_edges", where);
  meta.num_features = count_of(root, "num_features", where);
  meta.num_classes = count_of(root, "num_classes", where);
  meta.metric = metric_of(text_of(root, "metric", where), where);
  if (const std::optional<std::string> task = text_of(root, "task", where)) {
    meta.task = parse_in_file(Tasks{}, where + ": task", task_name_of_file(*task));
  }
  if (root.contains("class_names")) {
    meta.class_names = strings_of(root["class_names"], "class_names", where);
  }
  return meta;
}

}  // namespace mezzo::data
