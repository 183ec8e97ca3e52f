#include "mezzo/cli/page/page.h"

#include <cstddef>

#include <fmt/format.h>

#include "mezzo/cli/page/svg.h"
#include "mezzo/train/files/files.h"
#include "mezzo/version.h"

namespace mezzo::cli::page {
namespace {

/// Series have colours that differ for colour-blind readers too, beside their dashes.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ground:#fff;--card:#f6f7f9;--text:#1d2329;--soft:#56606b;
--grid:#dfe3e8;--axis:#8a94a0;--shade:#dcebdc;--range:#4f8a55;--bad:#b3261e;--on:#fff;
--c0:#2f6fb0;--c1:#a8690c;--c2:#66758c;--c3:#1f7a5c;--c4:#8550a6;--c5:#b0413e}
@media(prefers-color-scheme:dark){:root{--ground:#14171b;--card:#1d2228;--text:#e4e8ec;
--soft:#a3adb8;--grid:#323941;--axis:#77828e;--shade:#25382a;--range:#7fbf86;--bad:#ff8a80;
--on:#10151b;--c0:#78b3ee;--c1:#e2ae5c;--c2:#a4b1c4;--c3:#63c5a1;--c4:#c8a2e4;--c5:#f0908b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:16px;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5em;line-height:1.25;margin:.3em 0}
h2{font-size:1.15em;margin:1.6em 0 .5em}
h3{font-size:1em;margin:0 0 .5em}
p,ul{margin:.5em 0;max-width:75ch}
ul{padding-left:1.2em}
footer{margin:2em 0 1em;font-size:13px}
.soft,footer,figcaption,dt{color:var(--soft)}
.alert{border-left:4px solid var(--bad);background:var(--card);padding:.5em .8em}
dl{display:flex;flex-wrap:wrap;gap:8px;margin:1em 0}
dl div{background:var(--card);border-radius:6px;padding:8px 14px;flex:1 1 130px;
display:flex;flex-direction:column-reverse}
dt{font-size:13px}
dd{margin:0;font-size:1.25em;font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:16px;
align-items:start}
figure{margin:0;background:var(--card);border-radius:6px;padding:12px 14px}
figcaption{font-size:13px;margin-top:.4em}
svg{display:block;width:100%;max-width:460px;height:auto;margin:auto;font-size:11px}
svg text{fill:var(--text)}
.scroll{overflow-x:auto;width:fit-content;max-width:100%;
background:var(--card);border-radius:6px;padding:4px 12px;margin:.7em 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;
overflow-wrap:normal}
td,th{padding:4px 16px 4px 0;text-align:right;white-space:nowrap;font-weight:400}
td.l,th.l{text-align:left}
td.w{white-space:normal;min-width:16em}
thead th{color:var(--soft)}
tr+tr>*,tbody tr>*{border-top:1px solid var(--grid)}
table.plain tr:first-child>*{border-top:0}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}
.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.line{fill:none;stroke:var(--c);stroke-width:1.6;stroke-linejoin:round}
.d1{stroke-dasharray:6 2.5}.d2{stroke-dasharray:2 2}.d3{stroke-dasharray:9 2.5 2 2.5}
.d4{stroke-dasharray:12 3}.d5{stroke-dasharray:4 2 1.5 2 1.5 2}
.dot,.bar{fill:var(--c)}
svg .name{font-weight:600;fill:var(--c,var(--text))}
svg .note{fill:var(--soft)}
svg .on{fill:var(--on)}
svg path.bad{stroke:var(--bad);stroke-width:1.5}
svg text.bad{fill:var(--bad)}
.grid{stroke:var(--grid)}
.axis,.frame{stroke:var(--axis);fill:none}
.mark{stroke:var(--soft);stroke-dasharray:3 3}
.cell{fill:var(--c0)}
.shade{fill:var(--shade)}
.range{fill:var(--range)}
)";

/// Texts in cells wrap from this length on.
constexpr std::size_t kLongCell = 48;

/// The classes of the cells of each column: at the left, or with long texts.
std::vector<std::string> classes_of(const Table& table) {
  std::vector<std::string> classes;
  for (const auto& row : table.rows) {
    if (row.size() > classes.size()) classes.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (length_of(row[i]) > kLongCell) classes[i] = "l w";
      if (i < table.left_columns && classes[i].empty()) classes[i] = "l";
    }
  }
  return classes;
}

std::string row_of(const std::vector<std::string>& cells, const char* tag,
                   const std::vector<std::string>& classes) {
  std::string row = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string name = classes[i].empty() ? "" : fmt::format(" class=\"{}\"", classes[i]);
    row += fmt::format("<{}{}>{}</{}>", tag, name, escape(cells[i]), tag);
  }
  return row + "</tr>\n";
}

}  // namespace

void Page::element(const std::string& tag, const std::string& text) {
  body_ += fmt::format("<{}>{}</{}>\n", tag, escape(text), tag.substr(0, tag.find(' ')));
}

void Page::heading(const std::string& text) {
  element("h2", text);
}

void Page::paragraph(const std::string& text) {
  element("p", text);
}

void Page::alert(const std::string& text) {
  element("p class=\"alert\"", text);
}

void Page::list(const std::vector<std::string>& items) {
  body_ += "<ul>\n";
  for (const std::string& item : items) element("li", item);
  body_ += "</ul>\n";
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& names_and_values) {
  body_ += "<dl>\n";
  for (const auto& [name, value] : names_and_values) {
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
  }
  body_ += "</dl>\n";
}

void Page::figures(const std::vector<Figure>& figures) {
  body_ += "<div class=\"figures\">\n";
  for (const Figure& figure : figures) {
    body_ += fmt::format("<figure><h3>{}</h3>\n{}", escape(figure.title), figure.svg);
    if (!figure.caption.empty()) element("figcaption", figure.caption);
    body_ += "</figure>\n";
  }
  body_ += "</div>\n";
}

void Page::table(const Table& table) {
  body_ += fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table{}>\n",
      table.has_header ? "" : " class=\"plain\"");
  const std::vector<std::string> classes = classes_of(table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const bool is_header = table.has_header && i == 0;
    const std::string row = row_of(table.rows[i], is_header ? "th" : "td", classes);
    if (is_header) {
      body_ += fmt::format("<thead>{}</thead>\n<tbody>\n", row);
    } else {
      body_ += (i == 0 ? "<tbody>\n" : "") + row;
    }
  }
  body_ += "</tbody></table></div>\n";
}

std::string Page::html() const {
  const std::string title = escape(title_);
  return fmt::format(
      "{}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n{}</main>\n"
      "<footer>mezzo {}</footer>\n</body>\n</html>\n",
      kPageMark, title, kStyle, title, body_, kVersion);
}

}  // namespace mezzo::cli::page
