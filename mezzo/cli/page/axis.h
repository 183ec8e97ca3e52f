#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mezzo/cli/page/charts.h"

namespace mezzo::cli::page {

/// The width of a picture, which is that of a telephone's screen.
inline constexpr double kWidth = 360;
/// The mean width of a letter, and the distance of two lines of text.
inline constexpr double kLetter = 6, kRow = 14;

/// The width of a text in the picture, about.
double width_of(std::string_view text);

struct Tick {
  double value = 0;
  std::string label;
};

/// Numbers to places in the picture.
class Axis {
 public:
  /// From the least to the largest of `values` that are finite, extended to the next ticks.
  /// whole: ticks are integers, and the ends stay. Without finite values: 0 to 1, without ticks.
  static Axis of(const std::vector<double>& values, Scale scale, bool whole = false);
  /// From 0, for bars.
  static Axis from_zero(double largest);

  /// The places of the ends of the axis.
  void place(double low_place, double high_place) {
    low_place_ = low_place;
    high_place_ = high_place;
  }
  double operator()(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  bool is_log() const { return is_log_; }
  double widest_label() const;

 private:
  void set_linear(double low, double high, bool whole);
  void set_log(double low, double high);
  void set_powers_of_two(double low, double high);

  double low_ = 0, high_ = 1, low_place_ = 0, high_place_ = 1;
  bool is_log_ = false;
  std::vector<Tick> ticks_;
};

}  // namespace mezzo::cli::page
