#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mezzo::cli {

/// The candidate that a wrong word most likely stands for: the one that it is another usual name of
/// ("learning-rate" of "lr"), else the nearest one within two inserted, deleted or replaced
/// characters. Ignores leading dashes and takes '_' for '-'. Empty if there is none.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean --hidden?)", or nothing without a suggestion.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mezzo::cli
