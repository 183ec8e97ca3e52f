#pragma once

#include <string>
#include <string_view>

namespace mezzo::cli::page {

/// The text for HTML and XML: "&lt;" for "<", U+FFFD for bytes that are not UTF-8 and for control
/// characters. Fits between tags and in quotes.
std::string escape(std::string_view text);

/// The first `most` code points of the text, the last of them "…" if it is longer.
std::string shorten(const std::string& text, std::size_t most);

/// Code points of the text.
std::size_t length_of(std::string_view text);

/// The shapes of one picture, with (0, 0) at the top left. Colours are classes, which the style of
/// the page defines: "c0" to "c5" for series, "d0" to "d5" for dashes. Words are escaped.
class Svg {
 public:
  /// title, description: for screen readers, and shown when a pointer rests on the picture.
  Svg(std::string_view title, std::string_view description);

  /// anchor: "start", "middle" or "end".
  void text(double x, double y, std::string_view words, std::string_view anchor = "middle",
            std::string_view classes = "");
  /// The same, turned to read upwards.
  void upright_text(double x, double y, std::string_view words);
  /// d: the commands, e.g. "M0 1H5".
  void path(std::string_view d, std::string_view classes);
  /// share: of its opacity. tip: shown when a pointer rests on it; may be empty.
  void rectangle(double x, double y, double width, double height, std::string_view classes,
                 double share = 1, std::string_view tip = "");
  void circle(double x, double y, double radius, std::string_view classes);

  /// The element <svg>.
  std::string element(double width, double height) const;

 private:
  std::string head_, shapes_;
};

/// At most one digit behind the point: "3", "3.5".
std::string coordinate(double value);

}  // namespace mezzo::cli::page
