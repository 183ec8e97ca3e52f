#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "mezzo/cli/page/axis.h"
#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {

std::string draw(const BarChart& chart) {
  constexpr double kTop = 8, kBarHeight = 16, kPitch = 22, kGap = 6;
  constexpr std::size_t kMostLetters = 22;
  Svg svg(chart.title, chart.description);
  double largest = 0, label_width = 0, text_width = 0;
  for (const Bar& bar : chart.bars) {
    if (std::isfinite(bar.value)) largest = std::max(largest, bar.value);
    label_width = std::max(label_width, width_of(shorten(bar.label, kMostLetters)));
    text_width = std::max(text_width, width_of(bar.text));
  }
  const double left = label_width + kGap;
  const double floor = kTop + kPitch * static_cast<double>(chart.bars.size());
  Axis axis = Axis::from_zero(largest);
  axis.place(left, kWidth - text_width - kGap);
  for (const Tick& tick : axis.ticks()) {
    const std::string x = coordinate(axis(tick.value));
    svg.path(fmt::format("M{} {}V{}", x, coordinate(kTop - 4), coordinate(floor)), "grid");
    svg.text(axis(tick.value), floor + 14, tick.label);
  }
  double y = kTop;
  for (const Bar& bar : chart.bars) {
    svg.text(left - kGap, y + 12, shorten(bar.label, kMostLetters), "end");
    const double end = std::isfinite(bar.value) ? axis(bar.value) : left;
    svg.rectangle(left, y, end - left, kBarHeight, fmt::format("bar c{}", bar.look.colour % 6));
    svg.text(end + 4, y + 12, bar.text, "start", "note");
    y += kPitch;
  }
  svg.path(fmt::format("M{} {}V{}", coordinate(left), coordinate(kTop - 4), coordinate(floor)),
           "axis");
  svg.text((left + kWidth - text_width) / 2, floor + 29, chart.label);
  return svg.element(kWidth, floor + 36);
}

}  // namespace mezzo::cli::page
