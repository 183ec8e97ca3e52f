#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/options/options.h"

namespace mezzo {
namespace {

using nlohmann::json;

template <class T>
json value_to_json(const T& value) {
  if constexpr (fields::kIsOptional<T>) {
    return value ? value_to_json(*value) : json(nullptr);
  } else if constexpr (fields::Textual<T>) {
    return fields::to_text(value);
  } else {
    return value;
  }
}

/// Throws IoError if the field is missing or of another type.
template <class T>
void read_value(const json& object, const char* key, T& value) {
  if constexpr (fields::kIsOptional<T>) {
    value.reset();
    if (!object.contains(key) || !object[key].is_null()) read_value(object, key, value.emplace());
  } else if constexpr (fields::Textual<T>) {
    std::string text;
    read_value(object, key, text);
    if constexpr (std::is_same_v<T, nn::ModelKind>) {
      value = nn::ModelKind::kOwn;  // no word of the command
      if (text == fields::to_text(value)) return;
    }
    try {
      fields::from_text(key, text, value);
    } catch (const InvalidArgument& error) {
      throw IoError(fmt::format("config: {}", error.what()));
    }
  } else {
    const auto field = object.find(key);
    if (field == object.end() || !holds<T>(*field)) {
      detail::raise<IoError>("config: the field '{}' is missing or of another type", key);
    }
    value = field->get<T>();
  }
}

template <class List, class Options>
json to_json(const List& list, const Options& options) {
  json object;
  fields::for_each(list, [&](const auto& field) {
    if (field.rules.in_checkpoint) object[field.name] = value_to_json(options.*field.member);
  });
  return object;
}

template <class List, class Options>
void from_json(const List& list, const json& object, Options& options) {
  fields::for_each(list, [&](const auto& field) {
    if (field.rules.in_checkpoint || object.contains(field.name)) {
      read_value(object, field.name, options.*field.member);
    }
  });
}

}  // namespace

std::string config_to_json(const TrainOptions& options) {
  json config = to_json(fields::kTraining, options);
  if (!is_utf8(options.dataset)) config["dataset"] = "";
  config["device"] = options.device.str();
  config["sampling"] =
      options.sampling ? to_json(fields::kSampling, *options.sampling) : json(nullptr);
  if (options.csv != CsvColumns()) config["csv"] = to_json(fields::kColumns, options.csv);
  return json_line(config);
}

TrainOptions config_from_json(std::string_view text) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw IoError("config: expected a JSON object");
  TrainOptions options;
  from_json(fields::kTraining, config, options);
  const auto sampling = config.find("sampling");
  if (sampling == config.end()) throw IoError("config: the field 'sampling' is missing");
  if (!sampling->is_null()) from_json(fields::kSampling, *sampling, options.sampling.emplace());
  if (config.contains("csv")) from_json(fields::kColumns, config["csv"], options.csv);
  return options;
}

}  // namespace mezzo
