#pragma once

#include <cmath>

#include <nlohmann/json.hpp>

namespace mezzo {

/// Keys in the order in which people read them.
using OrderedJson = nlohmann::ordered_json;

/// null for what JSON has no number for.
inline OrderedJson json_number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

}  // namespace mezzo
