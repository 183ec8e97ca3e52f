#include "mezzo/cli/options/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

namespace mezzo::cli {
namespace {

struct Alias {
  std::string_view other, name;
};
constexpr Alias kAliases[] = {
    {"learning-rate", "lr"},  {"wd", "weight-decay"},    {"data", "dataset"},
    {"num-epochs", "epochs"}, {"num-layers", "layers"},  {"hidden-channels", "hidden"},
    {"hidden-dim", "hidden"}, {"hidden-size", "hidden"}, {"dtype", "precision"},
};

std::string bare(std::string_view word) {
  std::string text(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

/// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t before = row[0]++;  // of the row above, one column to the left
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = before + (a[i] == b[j] ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string text = bare(word);
  for (const Alias& alias : kAliases) {
    if (text != alias.other) continue;
    for (const std::string& candidate : candidates) {
      if (bare(candidate) == alias.name) return candidate;
    }
  }
  constexpr std::size_t kMostEdits = 2;
  // A short word is near to every other one.
  std::size_t least = std::min(kMostEdits, text.size() / 2) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(text, bare(candidate));
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = suggestion(word, candidates);
  return nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest);
}

}  // namespace mezzo::cli
