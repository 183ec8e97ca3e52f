#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/cli/page/axis.h"
#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {
namespace {

constexpr std::size_t kMostNameLetters = 14;

double widest(const std::vector<std::string>& names) {
  double width = kLetter;
  for (const std::string& name : names) {
    width = std::max(width, kLetter + width_of(shorten(name, kMostNameLetters)));
  }
  return width;
}

/// A count in a cell of that width: "950", "12k"; empty if it does not fit.
std::string count_text(std::int64_t count, double room) {
  if (count == 0) return "";
  std::string text = fmt::format("{}", count);
  for (const char* unit : {"k", "M", "G"}) {
    if (width_of(text) + 2 <= room) return text;
    count = (count + 500) / 1000;
    text = fmt::format("{}{}", count, unit);
  }
  return count > 0 && width_of(text) + 2 <= room ? text : "";
}

}  // namespace

std::string draw(const HeatMap& map) {
  constexpr double kGap = 6, kLargestCell = 34;
  Svg svg(map.title, map.description);
  const double left = kRow + widest(map.rows) + kGap, top = widest(map.columns) + 2 * kRow;
  const double size =
      std::min(kLargestCell, (kWidth - left - 1) / static_cast<double>(map.columns.size()));
  const auto middle = [size](double from, std::size_t i) {
    return from + size * (static_cast<double>(i) + 0.5);
  };
  for (std::size_t column = 0; column < map.columns.size(); ++column) {
    svg.upright_text(middle(left, column) + 4, top - kGap,
                     shorten(map.columns[column], kMostNameLetters));
  }
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    const std::vector<std::int64_t>& counts = map.counts[row];
    std::int64_t total = 0;
    for (const std::int64_t count : counts) total += count;
    svg.text(left - kGap, middle(top, row) + 4, shorten(map.rows[row], kMostNameLetters), "end");
    for (std::size_t column = 0; column < counts.size(); ++column) {
      const double share =
          total == 0 ? 0 : static_cast<double>(counts[column]) / static_cast<double>(total);
      svg.rectangle(
          middle(left, column) - size / 2, middle(top, row) - size / 2, size, size, "cell", share,
          fmt::format("{} as {}: {}", map.rows[row], map.columns[column], counts[column]));
      const std::string text = count_text(counts[column], size);
      if (text.empty()) continue;
      constexpr double kDark = 0.55;
      svg.text(middle(left, column), middle(top, row) + 4, text, "middle",
               share > kDark ? "on" : "");
    }
  }
  const double bottom = middle(top, map.rows.size()) - size / 2;
  const double right = middle(left, map.columns.size()) - size / 2;
  svg.path(fmt::format("M{} {}H{}V{}H{}Z", coordinate(left), coordinate(top), coordinate(right),
                       coordinate(bottom), coordinate(left)),
           "frame");
  svg.text((left + right) / 2, kRow - 3, map.x_label);
  svg.upright_text(kRow - 3, (top + bottom) / 2, map.y_label);
  return svg.element(kWidth, bottom + 4);
}

}  // namespace mezzo::cli::page
