#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "mezzo/data/readers.h"

/// GraphBolt's metadata.yaml; internal.
namespace mezzo::data {

/// A node of metadata.yaml with typed access. Errors contain file and line.
class YamlPlace {
 public:
  YamlPlace(YAML::Node node, const std::string& file) : node_(std::move(node)), file_(file) {}
  YamlPlace(const YamlPlace&) = default;
  YamlPlace& operator=(const YamlPlace&) = delete;  // that of YAML::Node changes the document

  /// Whether a value exists; GraphBolt's `type: null` counts as missing.
  bool has(const char* key) const {
    return node_.IsMap() && node_[key].IsDefined() && !node_[key].IsNull();
  }

  YamlPlace at(const char* key) const {
    check(node_.IsMap(), "expected a map");
    check(has(key), "'{}' is missing", key);
    return {node_[key], file_};
  }

  /// The items of the list under `key`; empty if the key is missing.
  std::vector<YamlPlace> list(const char* key) const {
    std::vector<YamlPlace> items;
    if (!has(key)) return items;
    const YamlPlace place = at(key);
    place.check(place.node_.IsSequence(), "'{}' is not a list", key);
    for (const YAML::Node& item : place.node_) items.emplace_back(item, file_);
    return items;
  }

  /// The one item of the list under `key`.
  YamlPlace only(const char* key) const {
    const std::vector<YamlPlace> items = list(key);
    check(items.size() == 1, "'{}' has {} entries, expected one (graphs of one type are read)", key,
          items.size());
    return items[0];
  }

  /// The text under `key`; "" if the key is missing.
  std::string text_if_any(const char* key) const { return has(key) ? text(key) : ""; }

  std::string text(const char* key) const {
    const YamlPlace place = at(key);
    place.check(place.node_.IsScalar(), "'{}' is not a single value", key);
    return place.node_.Scalar();
  }

  std::int64_t count(const char* key) const {
    const YamlPlace place = at(key);
    std::int64_t value = -1;
    const bool read =
        place.node_.IsScalar() && YAML::convert<std::int64_t>::decode(place.node_, value);
    place.check(read && value >= 0, "'{}' is not an integer that is at least 0", key);
    return value;
  }

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    require(condition, fmt::format("{}:{}", file_, node_.Mark().line + 1), text,
            std::forward<Args>(args)...);
  }

 private:
  YAML::Node node_;
  std::string file_;
};

}  // namespace mezzo::data
