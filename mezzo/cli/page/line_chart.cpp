#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/cli/page/axis.h"
#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {
namespace {

constexpr double kTop = 24, kPlotHeight = 150, kGap = 8;
constexpr double kBold = 1.15;  // width of bold letters, against others
constexpr std::size_t kMostPoints = 300;

struct Points {
  std::vector<double> x, y;
};

/// The line, or the least and the largest number of each of kMostPoints / 2 parts, and a NaN if a
/// part has a number that is not finite.
Points thinned(const Line& line) {
  const std::size_t count = line.x.size();
  if (count <= kMostPoints) return {line.x, line.y};
  Points points;
  const auto keep = [&](std::size_t i) {
    points.x.push_back(line.x[i]);
    points.y.push_back(line.y[i]);
  };
  constexpr std::size_t kParts = kMostPoints / 2;
  for (std::size_t part = 0; part < kParts; ++part) {
    std::vector<std::size_t> finite;
    std::size_t broken = count;
    for (std::size_t i = part * count / kParts; i < (part + 1) * count / kParts; ++i) {
      if (std::isfinite(line.y[i])) {
        finite.push_back(i);
      } else {
        broken = i;
      }
    }
    if (!finite.empty()) {
      const auto [least, largest] =
          std::minmax_element(finite.begin(), finite.end(),
                              [&](std::size_t a, std::size_t b) { return line.y[a] < line.y[b]; });
      keep(std::min(*least, *largest));
      if (*least != *largest) keep(std::max(*least, *largest));
    }
    if (broken != count) keep(broken);
  }
  return points;
}

/// What surrounds the lines.
struct Frame {
  Axis x, y;
  double left = 0, right = 0;
  bool has_legend = false;
};

bool has_direct_labels(const LineChart& chart) {
  constexpr std::size_t kMostLetters = 11, kMostLines = 4;
  return chart.lines.size() <= kMostLines &&
         std::all_of(chart.lines.begin(), chart.lines.end(), [](const Line& line) {
           return length_of(line.name) <= kMostLetters && !line.is_scatter;
         });
}

Frame frame_of(const LineChart& chart) {
  std::vector<double> x, y;
  double widest = 0;
  for (const Line& line : chart.lines) {
    x.insert(x.end(), line.x.begin(), line.x.end());
    y.insert(y.end(), line.y.begin(), line.y.end());
    widest = std::max(widest, kBold * width_of(line.name));
  }
  Frame frame = {.x = Axis::of(x, Scale::kLinear, /*whole=*/true),
                 .y = Axis::of(y, chart.scale),
                 .has_legend = !has_direct_labels(chart)};
  frame.left = frame.y.widest_label() + kGap;
  frame.right = kWidth - (frame.has_legend || widest == 0 ? kGap + kLetter : widest + kGap);
  frame.x.place(frame.left, frame.right);
  frame.y.place(kTop + kPlotHeight, kTop);
  return frame;
}

void draw_axes(const LineChart& chart, const Frame& frame, Svg& svg) {
  const double floor = kTop + kPlotHeight;
  for (const Tick& tick : frame.y.ticks()) {
    const double y = frame.y(tick.value);
    svg.path(
        fmt::format("M{} {}H{}", coordinate(frame.left), coordinate(y), coordinate(frame.right)),
        "grid");
    svg.text(frame.left - 5, y + 4, tick.label, "end");
  }
  for (const Tick& tick : frame.x.ticks()) {
    const double x = frame.x(tick.value);
    svg.path(fmt::format("M{} {}v4", coordinate(x), coordinate(floor)), "axis");
    svg.text(x, floor + 16, tick.label);
  }
  svg.path(
      fmt::format("M{} {}H{}", coordinate(frame.left), coordinate(floor), coordinate(frame.right)),
      "axis");
  svg.text((frame.left + frame.right) / 2, floor + 31, chart.x_label);
  svg.text(0, 11, chart.y_label + (frame.y.is_log() ? ", log scale" : ""), "start");
}

/// The runs of finite points as paths, those of one point as dots. Returns whether a point is not
/// finite.
bool draw_line(const Line& line, const Frame& frame, Svg& svg) {
  const std::string colour = fmt::format("c{}", line.look.colour % 6);
  const Points points = thinned(line);
  std::string path;
  bool has_broken = false;
  const std::size_t count = points.x.size();
  for (std::size_t i = 0; i < count; ++i) {
    const double x = frame.x(points.x[i]);
    if (!std::isfinite(points.y[i])) {
      svg.path(fmt::format("M{} {}m-3-3l6 6m0-6l-6 6", coordinate(x), coordinate(kTop)), "bad");
      has_broken = true;
      continue;
    }
    const double y = frame.y(points.y[i]);
    const bool begins = i == 0 || !std::isfinite(points.y[i - 1]);
    const bool ends = i + 1 == count || !std::isfinite(points.y[i + 1]);
    path += fmt::format("{}{} {}", begins ? "M" : "L", coordinate(x), coordinate(y));
    if (line.is_scatter || (begins && ends)) {
      svg.circle(x, y, line.is_scatter ? 2.5 : 3, "dot " + colour);
    }
  }
  if (!path.empty() && !line.is_scatter) {
    svg.path(path, fmt::format("line {} d{}", colour, line.look.dash % 6));
  }
  return has_broken;
}

/// The names beside the last points, moved apart.
void draw_labels(const LineChart& chart, const Frame& frame, Svg& svg) {
  struct Label {
    const Line* line;
    double y;
  };
  std::vector<Label> labels;
  for (const Line& line : chart.lines) {
    const auto last = std::find_if(line.y.rbegin(), line.y.rend(),
                                   [](double value) { return std::isfinite(value); });
    if (last != line.y.rend()) labels.push_back({&line, frame.y(*last)});
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.y < b.y; });
  constexpr double kBetween = 12;
  double lowest = kTop + kPlotHeight;
  for (std::size_t i = labels.size(); i-- > 0; lowest -= kBetween) {
    lowest = labels[i].y = std::min(labels[i].y, lowest);
  }
  double highest = kTop;
  for (std::size_t i = 0; i < labels.size(); ++i, highest += kBetween) {
    highest = labels[i].y = std::max(labels[i].y, highest);
  }
  for (const Label& label : labels) {
    svg.text(frame.right + 6, label.y + 4, label.line->name, "start",
             fmt::format("name c{}", label.line->look.colour % 6));
  }
}

/// A row for each line. Returns the height.
double draw_legend(const LineChart& chart, double top, Svg& svg) {
  constexpr std::size_t kMostLetters = 52;
  double y = top;
  for (const Line& line : chart.lines) {
    if (line.is_scatter) {
      svg.circle(14, y + 7, 3, fmt::format("dot c{}", line.look.colour % 6));
    } else {
      svg.path(fmt::format("M0 {}h28", coordinate(y + 7)),
               fmt::format("line c{} d{}", line.look.colour % 6, line.look.dash % 6));
    }
    svg.text(34, y + 11, shorten(line.name, kMostLetters), "start");
    y += kRow + 2;
  }
  return y - top;
}

}  // namespace

std::string draw(const LineChart& chart) {
  Svg svg(chart.title, chart.description);
  const Frame frame = frame_of(chart);
  draw_axes(chart, frame, svg);
  if (chart.mark) {
    const double x = frame.x(*chart.mark);
    svg.path(
        fmt::format("M{} {}V{}", coordinate(x), coordinate(kTop), coordinate(kTop + kPlotHeight)),
        "mark");
    const bool at_right = x > (frame.left + frame.right) / 2;
    svg.text(at_right ? x - 4 : x + 4, kTop + kPlotHeight - 5, chart.mark_label,
             at_right ? "end" : "start", "note");
  }
  bool has_broken = false;
  for (const Line& line : chart.lines) has_broken = draw_line(line, frame, svg) || has_broken;
  if (has_broken) svg.text(kWidth, 11, "× inf or nan", "end", "bad");
  double height = kTop + kPlotHeight + 38;
  if (frame.has_legend) {
    height += draw_legend(chart, height, svg);
  } else if (chart.lines.size() > 1) {
    draw_labels(chart, frame, svg);
  }
  return svg.element(kWidth, height);
}

}  // namespace mezzo::cli::page
