#include "mezzo/cli/page/charts.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "mezzo/cli/page/page.h"
#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {
namespace {

const double kNan = std::nan(""), kInf = std::numeric_limits<double>::infinity();

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

LineChart line_chart(std::vector<Line> lines) {
  return {.title = "t", .description = "d", .x_label = "epoch", .y_label = "ms", .lines = lines};
}

TEST(Charts, texts_are_escaped) {
  EXPECT_EQ(escape("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
  EXPECT_EQ(escape("±é𝄞"), "±é𝄞");
  EXPECT_EQ(escape("a\x01\xff\xc0\xaf\xed\xa0\x80z"),
            "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
            "\xef\xbf\xbdz");
  EXPECT_EQ(escape("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(shorten("äöüß", 4), "äöüß");
  EXPECT_EQ(shorten("äöüßa", 4), "äöü…");
  EXPECT_EQ(power_of_two(-14), "2⁻¹⁴");
}

TEST(Charts, shapes_have_few_digits_and_a_title) {
  Svg svg("a<b", "c");
  svg.path("M0 1", "axis");
  svg.text(1.26, -0.01, "x&y", "end");
  svg.rectangle(0, 1, 2, 3, "cell", 0.5, "tip");
  EXPECT_EQ(svg.element(10, 20),
            "<svg viewBox=\"0 0 10 20\" role=\"img\">\n<title>a&lt;b</title>\n<desc>c</desc>\n"
            "<path d=\"M0 1\" class=\"axis\"/>\n"
            "<text x=\"1.3\" y=\"0\" text-anchor=\"end\">x&amp;y</text>\n"
            "<rect x=\"0\" y=\"1\" width=\"2\" height=\"3\" class=\"cell\" fill-opacity=\"0.50\">"
            "<title>tip</title></rect>\n</svg>\n");
}

TEST(Charts, a_line_goes_from_the_first_to_the_last_point_of_the_plot) {
  const std::string svg = draw(line_chart({{"", {1, 2, 3}, {0, 1, 2}, {}}}));
  EXPECT_TRUE(contains(svg, "<path d=\"M26 174L186 99L346 24\" class=\"line c0 d0\"/>")) << svg;
  for (const char* label : {">0.5</text>", ">2.0</text>", ">epoch</text>", ">ms</text>"}) {
    EXPECT_TRUE(contains(svg, label)) << label;
  }
}

TEST(Charts, numbers_that_are_not_finite_break_a_line_and_are_marked) {
  const std::string svg = draw(line_chart({{"", {1, 2, 3, 4, 5}, {1, kNan, 2, 3, kInf}, {}}}));
  EXPECT_EQ(count(svg, "m-3-3l6 6m0-6l-6 6"), 2);
  EXPECT_EQ(count(svg, "<circle"), 1);  // the first point is alone
  EXPECT_TRUE(contains(svg, "× inf or nan"));
  EXPECT_FALSE(contains(svg, ">nan<") || contains(svg, ">inf<"));
  const std::string none = draw(line_chart({{"", {1, 2}, {kNan, kInf}, {}}}));
  EXPECT_FALSE(contains(none, "class=\"line"));
  EXPECT_FALSE(contains(draw(line_chart({})), "nan"));
}

TEST(Charts, one_point_and_equal_points_have_a_scale) {
  const std::string one = draw(line_chart({{"", {1}, {0.5}, {}}}));
  EXPECT_EQ(count(one, "<circle"), 1);
  EXPECT_TRUE(contains(one, ">1</text>"));
  EXPECT_FALSE(contains(one, ">2</text>"));
  EXPECT_TRUE(contains(draw(line_chart({{"", {1, 2}, {0, 0}, {}}})), ">0</text>"));
}

TEST(Charts, long_lines_keep_their_extremes) {
  Line line;
  for (int i = 0; i < 100000; ++i) {
    line.x.push_back(i);
    line.y.push_back(i == 70001 ? 1000 : 990 + i % 7);
  }
  LineChart chart = line_chart({line});
  chart.scale = Scale::kLinear;
  const std::string svg = draw(chart);
  EXPECT_LT(svg.size(), 8000);
  EXPECT_TRUE(contains(svg, " 24L"));  // the highest point is at the top
}

TEST(Charts, wide_ranges_are_logarithmic) {
  const std::string svg = draw(line_chart({{"", {1, 2}, {0.01, 1}, {}}}));
  EXPECT_TRUE(contains(svg, "ms, log scale"));
  EXPECT_TRUE(contains(svg, ">0.1</text>"));
  EXPECT_TRUE(contains(draw(line_chart({{"", {1, 2}, {1, 1000}, {}}})), ">1000</text>"));
  EXPECT_FALSE(contains(draw(line_chart({{"", {1, 2}, {0, 100}, {}}})), "log scale"));
  LineChart scales = line_chart({{"", {1, 2}, {65536, 32768}, {}}});
  scales.scale = Scale::kPowersOfTwo;
  EXPECT_TRUE(contains(draw(scales), ">2¹⁶</text>"));
}

TEST(Charts, short_names_stand_at_the_lines_and_long_ones_below) {
  const std::vector<double> x = {1, 2};
  const std::string near = draw(line_chart({{"val", x, {1, 2}, {}}, {"test", x, {1, 2}, {}}}));
  EXPECT_EQ(count(near, "class=\"name c0\""), 2);
  const std::string legend =
      draw(line_chart({{"fp16, loss scale 1024", x, {1, 2}, {}}, {"fp32", x, {1, 2}, {}}}));
  EXPECT_EQ(count(legend, "class=\"name"), 0);
  EXPECT_TRUE(contains(legend, ">fp16, loss scale 1024</text>"));
}

TEST(Charts, bars_begin_at_zero) {
  const std::string svg = draw(BarChart{
      .title = "t",
      .description = "d",
      .label = "MiB",
      .bars = {{"a", 50, "50", {}}, {"b", 100, "100", {.colour = 1}}, {"c", kNan, "-", {}}}});
  EXPECT_TRUE(
      contains(svg, "<rect x=\"12\" y=\"8\" width=\"162\" height=\"16\" class=\"bar c0\"/>"))
      << svg;
  EXPECT_TRUE(contains(svg, "width=\"324\" height=\"16\" class=\"bar c1\"/>"));
  EXPECT_TRUE(contains(svg, "width=\"0\" height=\"16\""));
  EXPECT_TRUE(contains(svg, ">MiB</text>"));
}

TEST(Charts, cells_of_a_heat_map_are_shares_of_their_row) {
  const std::string svg = draw(HeatMap{.title = "t",
                                       .description = "d",
                                       .x_label = "predicted",
                                       .y_label = "true",
                                       .columns = {"a", "b"},
                                       .rows = {"a", "<b>"},
                                       .counts = {{3, 1}, {0, 0}}});
  EXPECT_TRUE(contains(svg, "fill-opacity=\"0.75\"><title>a as a: 3</title>")) << svg;
  EXPECT_TRUE(contains(svg, "fill-opacity=\"0.00\"><title>&lt;b&gt; as b: 0</title>"));
  EXPECT_TRUE(contains(svg, "class=\"on\">3</text>"));
}

TEST(Charts, exponents_are_drawn_over_the_range_of_a_dtype) {
  const std::string svg =
      draw(ExponentChart{.title = "t",
                         .description = "d",
                         .x_label = "magnitude",
                         .rows = {{"layer0", "", -20, {1, 0, 2}}},
                         .ranges = {{"float16", -24, -14, 15}, {"bfloat16", -133, -126, 127}}});
  EXPECT_TRUE(contains(svg, "float16: 2⁻²⁴ to 2¹⁶"));
  EXPECT_TRUE(contains(svg, "bfloat16: 2⁻¹³³ to 2¹²⁸"));
  EXPECT_TRUE(contains(svg, "<title>layer0, 2⁻¹⁸: 2</title>"));
  EXPECT_EQ(count(svg, "class=\"bar c0\""), 2);
  EXPECT_EQ(count(svg, "class=\"shade\""), 2);
}

TEST(Charts, a_page_escapes_its_texts) {
  Page page("<script>");
  page.table({.rows = {{"<h>", "n"}, {"<c>", "1"}}});
  page.alert("<e>");
  page.facts({{"<f>", "<g>"}});
  const std::string html = page.html();
  for (const char* tag : {"<script>", "<h>", "<c>", "<e>", "<f>", "<g>"}) {
    EXPECT_FALSE(contains(html, tag)) << tag;
    EXPECT_TRUE(contains(html, escape(tag))) << tag;
  }
  EXPECT_TRUE(contains(html, "<thead><tr><th class=\"l\">&lt;h&gt;</th><th>n</th></tr>"));
}

}  // namespace
}  // namespace mezzo::cli::page
