#include "mezzo/data/source/node_ids.h"

#include <utility>

namespace mezzo::data {

std::optional<std::int64_t> integer_id(const TextLines& lines, std::string_view field) {
  const std::optional<std::int64_t> id = integer_of_field(field);
  lines.check(!id || *id >= 0, "node id {} is negative", id.value_or(0));
  return id;
}

std::string word_id(const TextLines& lines, std::string_view field) {
  lines.check(!field.empty(), "a node without an id");
  return std::string(field);
}

NodeIds::NodeIds(std::vector<std::string> words) : words_(std::move(words)) {
  index_.reserve(words_.size());
  for (const std::string& word : words_) {
    index_.emplace(word, static_cast<std::int64_t>(index_.size()));
  }
}

std::int64_t NodeIds::size() const {
  return words_.empty() ? ranks_.size() : static_cast<std::int64_t>(words_.size());
}

std::int64_t NodeIds::operator()(const TextLines& lines, std::string_view id) const {
  if (words_.empty()) {
    const std::optional<std::int64_t> integer = integer_id(lines, id);
    return integer ? ranks_(*integer) : -1;
  }
  const auto found = index_.find(id);
  return found == index_.end() ? -1 : found->second;
}

}  // namespace mezzo::data
