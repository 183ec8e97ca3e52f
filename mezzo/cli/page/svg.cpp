#include "mezzo/cli/page/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

namespace mezzo::cli::page {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The bytes of the code point that the text begins with; 0 if it is not valid UTF-8.
std::size_t bytes_of_first(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = lead < 0x80                    ? 1
                            : lead >= 0xC2 && lead < 0xE0  ? 2
                            : lead >= 0xE0 && lead < 0xF0  ? 3
                            : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                           : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes), continues))
    return 0;
  const auto second = bytes > 1 ? static_cast<unsigned char>(text[1]) : 0;
  const bool is_overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool is_surrogate = lead == 0xED && second >= 0xA0;
  const bool is_too_large = lead == 0xF4 && second >= 0x90;
  const bool is_no_character =  // U+FFFE and U+FFFF, which XML refuses
      lead == 0xEF && second == 0xBF && static_cast<unsigned char>(text[2]) >= 0xBE;
  return is_overlong || is_surrogate || is_too_large || is_no_character ? 0 : bytes;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t bytes = bytes_of_first(text);
    const char c = text[0];
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == '\x7f';
    if (bytes == 0 || is_control) {
      escaped += kReplacement;
    } else if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\'') {
      escaped += "&#39;";
    } else {
      escaped += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return escaped;
}

std::size_t length_of(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues));
}

std::string shorten(const std::string& text, std::size_t most) {
  if (length_of(text) <= most) return text;
  std::size_t end = 0;
  for (std::size_t points = 0; end < text.size(); ++end) {
    if (!continues(text[end]) && points++ == most - 1) break;
  }
  return text.substr(0, end) + "…";
}

std::string coordinate(double value) {
  const double rounded = std::round(10 * value) / 10;
  return fmt::format("{}", rounded == 0 ? 0.0 : rounded);
}

Svg::Svg(std::string_view title, std::string_view description)
    : head_(fmt::format("<title>{}</title>\n<desc>{}</desc>\n", escape(title),
                        escape(description))) {}

void Svg::text(double x, double y, std::string_view words, std::string_view anchor,
               std::string_view classes) {
  shapes_ +=
      fmt::format(R"(<text x="{}" y="{}" text-anchor="{}")", coordinate(x), coordinate(y), anchor);
  if (!classes.empty()) shapes_ += fmt::format(R"( class="{}")", classes);
  shapes_ += fmt::format(">{}</text>\n", escape(words));
}

void Svg::upright_text(double x, double y, std::string_view words) {
  shapes_ += fmt::format("<text transform=\"translate({} {})rotate(-90)\">{}</text>\n",
                         coordinate(x), coordinate(y), escape(words));
}

void Svg::path(std::string_view d, std::string_view classes) {
  shapes_ += fmt::format("<path d=\"{}\" class=\"{}\"/>\n", d, classes);
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view classes,
                    double share, std::string_view tip) {
  shapes_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" class="{}")", coordinate(x),
                         coordinate(y), coordinate(width), coordinate(height), classes);
  if (share < 1) shapes_ += fmt::format(" fill-opacity=\"{:.2f}\"", share);
  shapes_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape(tip));
}

void Svg::circle(double x, double y, double radius, std::string_view classes) {
  shapes_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{}\"/>\n", coordinate(x),
                         coordinate(y), coordinate(radius), classes);
}

std::string Svg::element(double width, double height) const {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n{}{}</svg>\n", coordinate(width),
                     coordinate(height), head_, shapes_);
}

}  // namespace mezzo::cli::page
