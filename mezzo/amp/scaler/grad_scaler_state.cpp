// Saving and loading a GradScaler: as JSON and in libtorch's archives.
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

// Keeps Python's fields first.
using json = nlohmann::ordered_json;

/// The field as a `Number`; `fallback` if an optional field is missing.
template <class Number>
Number number_in(const json& object, const char* key, const Number* fallback = nullptr) {
  const auto field = object.find(key);
  if (field == object.end()) {
    if (fallback != nullptr) return *fallback;
    mezzo::detail::raise<IoError>("scaler_state_from_json: expected a field '{}', got none", key);
  }
  const bool fits = std::is_integral_v<Number> ? field->is_number_integer() : field->is_number();
  if (!fits) {
    mezzo::detail::raise<IoError>("scaler_state_from_json: expected '{}' to be {}, got {}", key,
                                  std::is_integral_v<Number> ? "an integer" : "a number",
                                  field->dump());
  }
  return field->get<Number>();
}

std::int64_t count_in(const json& object, const char* key) {
  constexpr std::int64_t kNone = 0;
  return number_in(object, key, &kNone);
}

std::vector<double> rule_in(const json& object) {
  const auto field = object.find("rule");
  if (field == object.end()) return {};
  std::vector<double> numbers;
  for (const json& number : *field) {
    if (!field->is_array() || !number.is_number()) {
      mezzo::detail::raise<IoError>("scaler_state_from_json: expected 'rule' to be numbers, got {}",
                                    field->dump());
    }
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

c10::IValue read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected a field '{}', got none", key);
  }
  return value;
}

double read_double(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isDouble()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected '{}' to be a float, got {}", key,
                                  value.tagKind());
  }
  return value.toDouble();
}

std::int64_t read_int(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isInt()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected '{}' to be an int, got {}", key,
                                  value.tagKind());
  }
  return value.toInt();
}

std::int64_t read_count(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  return archive.try_read(key, value) ? read_int(archive, key) : 0;
}

std::vector<double> read_rule(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  if (!archive.try_read("rule", value)) return {};
  if (!value.isDoubleList()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected 'rule' to be floats, got {}",
                                  value.tagKind());
  }
  return value.toDoubleVector();
}

}  // namespace

std::string to_json(const ScalerState& state) {
  if (state.empty()) return "{}";
  json object = {{"scale", state.scale},
                 {"growth_factor", state.growth_factor},
                 {"backoff_factor", state.backoff_factor},
                 {"growth_interval", state.growth_interval},
                 {"_growth_tracker", state.growth_tracker},
                 {"hysteresis_spent", state.hysteresis_spent},
                 {"updates_since_rescale", state.updates_since_rescale},
                 {"overflows_since_rescale", state.overflows_since_rescale},
                 {"skipped_steps", state.skipped_steps}};
  if (!state.rule.empty()) object["rule"] = state.rule;
  return object.dump(2);
}

ScalerState scaler_state_from_json(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    mezzo::detail::raise<IoError>("scaler_state_from_json: expected a JSON object, got {}",
                                  object.is_discarded() ? "invalid JSON" : object.type_name());
  }
  if (object.empty()) return {};
  return {.scale = number_in<double>(object, "scale"),
          .growth_factor = number_in<double>(object, "growth_factor"),
          .backoff_factor = number_in<double>(object, "backoff_factor"),
          .growth_interval = number_in<std::int64_t>(object, "growth_interval"),
          .growth_tracker = number_in<std::int64_t>(object, "_growth_tracker"),
          .hysteresis_spent = count_in(object, "hysteresis_spent"),
          .updates_since_rescale = count_in(object, "updates_since_rescale"),
          .overflows_since_rescale = count_in(object, "overflows_since_rescale"),
          .skipped_steps = count_in(object, "skipped_steps"),
          .rule = rule_in(object)};
}

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  if (!enabled_) return;
  const ScalerState state = state_dict();
  archive.write("scale", c10::IValue(state.scale));
  archive.write("growth_factor", c10::IValue(state.growth_factor));
  archive.write("backoff_factor", c10::IValue(state.backoff_factor));
  archive.write("growth_interval", c10::IValue(state.growth_interval));
  archive.write("_growth_tracker", c10::IValue(state.growth_tracker));
  archive.write("hysteresis_spent", c10::IValue(state.hysteresis_spent));
  archive.write("updates_since_rescale", c10::IValue(state.updates_since_rescale));
  archive.write("overflows_since_rescale", c10::IValue(state.overflows_since_rescale));
  archive.write("skipped_steps", c10::IValue(state.skipped_steps));
  if (!state.rule.empty()) archive.write("rule", c10::IValue(state.rule));
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  if (!enabled_) return;
  if (archive.keys().empty()) {
    load_state_dict({});
    return;
  }
  load_state_dict({.scale = read_double(archive, "scale"),
                   .growth_factor = read_double(archive, "growth_factor"),
                   .backoff_factor = read_double(archive, "backoff_factor"),
                   .growth_interval = read_int(archive, "growth_interval"),
                   .growth_tracker = read_int(archive, "_growth_tracker"),
                   .hysteresis_spent = read_count(archive, "hysteresis_spent"),
                   .updates_since_rescale = read_count(archive, "updates_since_rescale"),
                   .overflows_since_rescale = read_count(archive, "overflows_since_rescale"),
                   .skipped_steps = read_count(archive, "skipped_steps"),
                   .rule = read_rule(archive)});
}

}  // namespace mezzo::amp
