#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/cli/page/axis.h"
#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {
namespace {

constexpr double kPitch = 40, kBars = 26, kLeft = 2, kRight = kWidth - 2;

/// Exponents to places: the columns of exponents low to high - 1.
struct Columns {
  int low = 0, high = 1;

  double width() const { return (kRight - kLeft) / (high - low); }
  double operator()(int exponent) const {
    return kLeft + width() * (std::clamp(exponent, low, high) - low);
  }
};

Columns columns_of(const ExponentChart& chart) {
  Columns columns = {.low = 0, .high = 1};
  if (!chart.ranges.empty()) {
    columns.low = chart.ranges.front().subnormal - 2;
    columns.high = chart.ranges.front().highest + 3;
  }
  for (const Exponents& row : chart.rows) {
    columns.low = std::min(columns.low, row.lowest - 1);
    columns.high = std::max(columns.high, row.lowest + static_cast<int>(row.counts.size()) + 1);
  }
  return columns;
}

/// A range as a bar, thin where numbers are subnormal, with an arrow where it goes on.
void draw_range(const ExponentRange& range, const Columns& columns, double y, Svg& svg) {
  const double from = columns(range.subnormal), normal = columns(range.normal),
               end = columns(range.highest + 1);
  svg.rectangle(from, y + 4, normal - from, 2, "range");
  svg.rectangle(normal, y + 2, end - normal, 6, "range");
  const bool goes_on = range.highest + 1 > columns.high;
  svg.text(goes_on ? kRight : end, y - 2,
           fmt::format("{}: {} to {}", range.name, power_of_two(range.subnormal),
                       power_of_two(range.highest + 1)),
           "end");
}

void draw_row(const Exponents& row, const Columns& columns, double floor, Svg& svg) {
  std::int64_t largest = 1;
  for (const std::int64_t count : row.counts) largest = std::max(largest, count);
  for (std::size_t i = 0; i < row.counts.size(); ++i) {
    if (row.counts[i] == 0) continue;
    const double height =
        std::max(0.7, kBars * static_cast<double>(row.counts[i]) / static_cast<double>(largest));
    const int exponent = row.lowest + static_cast<int>(i);
    svg.rectangle(columns(exponent) + 0.3, floor - height, columns.width() - 0.6, height, "bar c0",
                  1, fmt::format("{}, {}: {}", row.name, power_of_two(exponent), row.counts[i]));
  }
  svg.path(fmt::format("M{} {}H{}", coordinate(kLeft), coordinate(floor), coordinate(kRight)),
           "axis");
  svg.text(kLeft, floor - kBars - 2, shorten(row.name, 34), "start", "name");
  svg.text(kRight, floor - kBars - 2, row.note, "end", "note");
}

}  // namespace

std::string draw(const ExponentChart& chart) {
  constexpr double kRangePitch = 24;
  Svg svg(chart.title, chart.description);
  const Columns columns = columns_of(chart);
  const double top = kRangePitch * static_cast<double>(chart.ranges.size()) + 6;
  const double floor = top + kPitch * static_cast<double>(chart.rows.size());
  if (!chart.ranges.empty()) {
    const ExponentRange& first = chart.ranges.front();
    const double from = columns(first.subnormal), normal = columns(first.normal);
    const double shade_top = 14;
    svg.rectangle(from, shade_top, normal - from, floor - shade_top, "shade", 0.5);
    svg.rectangle(normal, shade_top, columns(first.highest + 1) - normal, floor - shade_top,
                  "shade");
  }
  double y = 14;
  for (const ExponentRange& range : chart.ranges) {
    draw_range(range, columns, y, svg);
    y += kRangePitch;
  }
  y = top;
  for (const Exponents& row : chart.rows) {
    y += kPitch;
    draw_row(row, columns, y, svg);
  }
  constexpr int kBetweenTicks = 8;
  const int step = kBetweenTicks * std::max(1, (columns.high - columns.low) / 64 + 1);
  for (int exponent = columns.low - columns.low % step; exponent < columns.high; exponent += step) {
    if (exponent <= columns.low) continue;
    const double x = columns(exponent);
    svg.path(fmt::format("M{} {}v4", coordinate(x), coordinate(floor)), "axis");
    svg.text(x, floor + 16, power_of_two(exponent));
  }
  svg.text(kWidth / 2, floor + 31, chart.x_label);
  return svg.element(kWidth, floor + 38);
}

}  // namespace mezzo::cli::page
