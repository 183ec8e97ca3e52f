#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace mezzo {

/// Whether get<T>() gives what the value is. nlohmann converts between numbers: 0.5 becomes 0.
template <class T>
bool holds(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_unsigned_v<T>) {
    return value.is_number_unsigned();
  } else if constexpr (std::is_integral_v<T>) {
    return value.is_number_integer() &&
           (!value.is_number_unsigned() ||
            value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  } else if constexpr (std::is_floating_point_v<T>) {
    return value.is_number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else if constexpr (std::is_same_v<T, nlohmann::json>) {
    return true;
  } else {  // a vector
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), holds<typename T::value_type>);
  }
}

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
