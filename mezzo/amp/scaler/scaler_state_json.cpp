#include <type_traits>

#include <nlohmann/json.hpp>

#include "mezzo/amp/scaler/scaler_state.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

// Keeps Python's fields first.
using json = nlohmann::ordered_json;

/// The field as a `Number`; `missing` if an optional field is absent.
template <class Number>
Number read(const json& object, const char* key, const Number* missing = nullptr) {
  const auto field = object.find(key);
  if (field == object.end()) {
    if (missing != nullptr) return *missing;
    mezzo::detail::raise<IoError>("scaler_state_from_json: there is no '{}'", key);
  }
  const bool fits = std::is_integral_v<Number> ? field->is_number_integer() : field->is_number();
  if (!fits) {
    mezzo::detail::raise<IoError>("scaler_state_from_json: expected '{}' to be {}, got {}", key,
                                  std::is_integral_v<Number> ? "an integer" : "a number",
                                  field->dump());
  }
  return field->get<Number>();
}

std::int64_t read_count(const json& object, const char* key) {
  constexpr std::int64_t kNone = 0;
  return read(object, key, &kNone);
}

std::vector<double> read_rule(const json& object) {
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
    mezzo::detail::raise<IoError>("scaler_state_from_json: expected a JSON object");
  }
  if (object.empty()) return {};
  return {.scale = read<double>(object, "scale"),
          .growth_factor = read<double>(object, "growth_factor"),
          .backoff_factor = read<double>(object, "backoff_factor"),
          .growth_interval = read<std::int64_t>(object, "growth_interval"),
          .growth_tracker = read<std::int64_t>(object, "_growth_tracker"),
          .hysteresis_spent = read_count(object, "hysteresis_spent"),
          .updates_since_rescale = read_count(object, "updates_since_rescale"),
          .overflows_since_rescale = read_count(object, "overflows_since_rescale"),
          .skipped_steps = read_count(object, "skipped_steps"),
          .rule = read_rule(object)};
}

}  // namespace mezzo::amp
