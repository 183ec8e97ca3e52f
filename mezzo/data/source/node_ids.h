#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mezzo/data/source/source_support.h"
#include "mezzo/data/source/text_lines.h"

/// Internal.
namespace mezzo::data {

/// The ids of the nodes in a text file, ascending: integers, or words in the order of their bytes.
class NodeIds {
 public:
  explicit NodeIds(std::vector<std::int64_t> ids) : ranks_(std::move(ids)) {}
  /// words: ascending and distinct.
  explicit NodeIds(std::vector<std::string> words);

  NodeIds(NodeIds&&) = default;  // a copy's index would view the other's words
  NodeIds& operator=(NodeIds&&) = default;

  std::int64_t size() const;
  /// The index of an id, -1 if it is not among them. Throws IoError for a negative integer.
  std::int64_t operator()(const TextLines& lines, std::string_view id) const;

 private:
  IdRanks ranks_ = IdRanks({});
  std::vector<std::string> words_;
  std::unordered_map<std::string_view, std::int64_t> index_;  // the keys view words_
};

/// The integer in the field; nullopt if it is not one. Throws IoError for a negative integer.
std::optional<std::int64_t> integer_id(const TextLines& lines, std::string_view field);

/// An id that is a word. Throws IoError for an empty field.
std::string word_id(const TextLines& lines, std::string_view field);

}  // namespace mezzo::data
