#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mezzo/data/readers.h"

/// JSON files of data sets. Every error is an IoError that begins with the file.
namespace mezzo::data {

/// Reads a file that holds one object.
inline nlohmann::json read_json_object(const std::filesystem::path& path) {
  nlohmann::json root = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  require(!root.is_discarded(), path.string(), "not valid JSON");
  require(root.is_object(), path.string(), "expected a JSON object");
  return root;
}

/// The strings of a list.
inline std::vector<std::string> strings_of(const nlohmann::json& list, const char* key,
                                           const std::string& where) {
  require(list.is_array(), where, "'{}' is not a list", key);
  std::vector<std::string> strings;
  for (const nlohmann::json& item : list) {
    require(item.is_string(), where, "'{}' holds more than strings", key);
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

/// Whether `value` is an integer that fits int64; larger ones would wrap.
inline bool is_int64(const nlohmann::json& value) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<std::uint64_t>() > kMost);
}

}  // namespace mezzo::data
