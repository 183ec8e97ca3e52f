#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

/// Pictures as functions from data to the text of an <svg> element, 360 units wide. Numbers may be
/// inf or NaN. Names may be any bytes.
namespace mezzo::cli::page {

/// How a series looks: its colour and its dashes, 0 to 5 each; larger numbers repeat.
struct Look {
  std::size_t colour = 0, dash = 0;
};

/// A series of points, connected in this order.
struct Line {
  std::string name;
  std::vector<double> x, y;  ///< of equal length
  Look look;
  bool is_scatter = false;  ///< dots that are not connected
};

/// The scale of the y axis.
enum class Scale : std::uint8_t {
  kAutomatic,  ///< logarithmic if all numbers are positive and their ratio is above 15
  kLinear,
  kPowersOfTwo,  ///< logarithmic, with ticks such as 2¹⁰; the numbers are positive
};

struct LineChart {
  std::string title, description;
  std::string x_label, y_label;  ///< with the unit
  std::vector<Line> lines = {};
  Scale scale = Scale::kAutomatic;
  std::optional<double> mark = std::nullopt;  ///< an x, such as the best epoch
  std::string mark_label = {};
};

/// Lines with axes, and with their names at their ends if these are short, else in a legend. A line
/// of more than 300 points is thinned to the least and the largest number of each part of it. A
/// cross at the upper edge is a number that is not finite.
std::string draw(const LineChart& chart);

struct Bar {
  std::string label;
  double value = 0;  ///< >= 0; not finite: no bar
  std::string text;  ///< the value in words, behind the bar
  Look look;
};

struct BarChart {
  std::string title, description;
  std::string label;  ///< of the axis, with the unit
  std::vector<Bar> bars;
};

/// Horizontal bars from 0, one below the other.
std::string draw(const BarChart& chart);

struct HeatMap {
  std::string title, description;
  std::string x_label, y_label;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<std::int64_t>> counts;  ///< one vector a row
};

/// A square for each count, as dark as its share of its row, with the count in it.
std::string draw(const HeatMap& map);

/// How often each binary exponent occurs.
struct Exponents {
  std::string name, note;  ///< at the left, at the right
  int lowest = 0;          ///< exponent of the first count
  std::vector<std::int64_t> counts;
};

/// What a dtype represents: from 2^subnormal, with all digits from 2^normal, below 2^(highest + 1).
struct ExponentRange {
  std::string name;
  int subnormal = 0, normal = 0, highest = 0;
};

struct ExponentChart {
  std::string title, description;
  std::string x_label;
  std::vector<Exponents> rows = {};
  std::vector<ExponentRange> ranges = {};  ///< the first is shaded
};

/// Histograms one below the other over one axis, each as high as its largest count, with the ranges
/// above.
std::string draw(const ExponentChart& chart);

/// "2¹⁰"
std::string power_of_two(int exponent);

}  // namespace mezzo::cli::page
