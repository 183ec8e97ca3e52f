#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mezzo::cli {

/// The candidate that the user probably meant by a wrong word: the candidate with this synonym
/// ("learning-rate" for "lr"), else the nearest within two inserted, deleted or replaced
/// characters; empty if none is that near. Leading dashes are ignored, '_' counts as '-'.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean --hidden?)", or nothing without a suggestion.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mezzo::cli
