#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace mezzo {

/// Whether get<T>() returns the value unchanged. nlohmann converts numbers: 0.5 becomes 0.
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

/// Keeps keys in order of insertion.
using OrderedJson = nlohmann::ordered_json;

/// The number, or null if it is inf or NaN.
inline OrderedJson json_number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

/// The text, or null if it is empty.
inline OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

/// The value on one line, with U+FFFD for bytes that are not UTF-8 (in names of data sets, say).
inline std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

/// Whether the text is valid UTF-8.
inline bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// The value indented, with a final line break, and U+FFFD as in json_line().
inline std::string json_text(const OrderedJson& value) {
  return value.dump(2, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace mezzo
