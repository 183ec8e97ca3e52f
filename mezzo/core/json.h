#pragma once

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

namespace mezzo {

/// Keys in the order in which people read them.
using OrderedJson = nlohmann::ordered_json;

/// null for what JSON has no number for.
inline OrderedJson json_number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

/// null for no text.
inline OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

/// On one line, with U+FFFD for bytes that are not UTF-8, which the name of a data set may hold.
inline std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

/// Whether JSON can hold the text as it is.
inline bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// As the library writes it: indented, a line break at the end, and U+FFFD as in json_line.
inline std::string json_text(const OrderedJson& value) {
  return value.dump(2, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace mezzo
