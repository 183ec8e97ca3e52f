#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The header of a matrix.
struct MatrixHeader {
  bool has_values = false;
  bool is_general = false;
  std::int64_t num_nodes = 0;
  std::int64_t num_entries = 0;
};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

/// A square MatrixMarket coordinate matrix (real, integer or pattern; general, symmetric or
/// skew-symmetric). Entry (i, j) is the edge from i to j, and from j to i if the matrix is not
/// general; entries of value 0 and on the diagonal are dropped, other values ignored.
class MatrixMarketSource : public GraphSource {
 public:
  MatrixMarketSource(const std::filesystem::path& path, const LoadOptions& options)
      : path_(path), on_lines_(options.on_lines) {
    refuse_named_split(options, path.string());
  }

  SourceHeader header() override {
    return {.name = name_of_file(path_, ".mtx"), .num_nodes = num_nodes(), .distinct_edges = true};
  }

  void edges(const TakeEdges& take) override {
    TextLines lines(path_, on_lines_);
    const MatrixHeader matrix = read_header(lines);
    lines.check(matrix.num_nodes == num_nodes(), kFileChanged);
    EdgePieces pieces(take);
    for_each_entry(lines, matrix, [&](std::int64_t row, std::int64_t column) {
      if (row == column) return;
      pieces.add(row, column);
      if (!matrix.is_general) pieces.add(column, row);
    });
    pieces.finish();
  }

 private:
  std::int64_t num_nodes() {
    if (!num_nodes_) {
      TextLines lines(path_);
      num_nodes_ = read_header(lines).num_nodes;
    }
    return *num_nodes_;
  }

  static void read_banner(TextLines& lines, MatrixHeader& header) {
    std::string_view line;
    std::vector<std::string_view> fields;
    require(lines.next(line), lines.where(), "the file is empty");
    split_fields(line, Separator::kBlanks, fields);
    lines.check(fields.size() == 5 && lower_case(fields[0]) == "%%matrixmarket" &&
                    lower_case(fields[1]) == "matrix",
                "expected '%%MatrixMarket matrix <format> <type> <symmetry>'");
    const std::string format = lower_case(fields[2]), type = lower_case(fields[3]),
                      symmetry = lower_case(fields[4]);
    lines.check(format == "coordinate", "format '{}', expected coordinate", format);
    lines.check(type == "real" || type == "integer" || type == "pattern",
                "type '{}', expected real, integer or pattern", type);
    lines.check(symmetry == "general" || symmetry == "symmetric" || symmetry == "skew-symmetric",
                "symmetry '{}', expected general, symmetric or skew-symmetric", symmetry);
    header.has_values = type != "pattern";
    header.is_general = symmetry == "general";
  }

  /// The next line that is neither blank nor a comment.
  static bool next_fields(TextLines& lines, std::vector<std::string_view>& fields) {
    std::string_view line;
    while (lines.next(line)) {
      if (line.starts_with('%')) continue;
      split_fields(line, Separator::kBlanks, fields);
      if (!fields.empty()) return true;
    }
    return false;
  }

  static MatrixHeader read_header(TextLines& lines) {
    MatrixHeader header;
    read_banner(lines, header);
    std::vector<std::string_view> fields;
    require(next_fields(lines, fields), lines.where(), "the file ends before the sizes");
    lines.check(fields.size() == 3, "expected rows, columns and entries, got {} columns",
                fields.size());
    header.num_nodes = lines.integer(fields[0]);
    const std::int64_t columns = lines.integer(fields[1]);
    header.num_entries = lines.integer(fields[2]);
    lines.check(header.num_nodes > 0 && header.num_nodes == columns,
                "a matrix of shape [{}, {}] is no graph, expected a square one", header.num_nodes,
                columns);
    lines.check(header.num_nodes <= kMostNodes, "{} nodes, expected at most 2^48",
                header.num_nodes);
    lines.check(header.num_entries >= 0, "{} entries", header.num_entries);
    return header;
  }

  /// Calls entry(row, column), counted from 0, for each entry that is not 0.
  template <class Entry>
  static void for_each_entry(TextLines& lines, const MatrixHeader& header, Entry&& entry) {
    const std::size_t columns = header.has_values ? 3 : 2;
    std::vector<std::string_view> fields;
    std::int64_t count = 0;
    while (next_fields(lines, fields)) {
      lines.check(++count <= header.num_entries, "more entries than the {} that are declared",
                  header.num_entries);
      lines.check(fields.size() == columns, "expected {} columns, got {}", columns, fields.size());
      const std::int64_t row = lines.integer(fields[0]);
      const std::int64_t column = lines.integer(fields[1]);
      lines.check(std::min(row, column) >= 1 && std::max(row, column) <= header.num_nodes,
                  "entry ({}, {}) is outside the matrix of {} rows and columns", row, column,
                  header.num_nodes);
      if (header.has_values && lines.real(fields[2]) == 0) continue;
      entry(row - 1, column - 1);
    }
    require(count == header.num_entries, lines.where(),
            "the file ends after {} entries, it declares {}", count, header.num_entries);
  }

  std::filesystem::path path_;
  std::function<void()> on_lines_;
  std::optional<std::int64_t> num_nodes_;
};

}  // namespace

extern const Format kMatrixMarketFormat = {
    "MatrixMarket file", {}, open_as<MatrixMarketSource>, [](const std::filesystem::path& path) {
      return text_by_name(path) == GraphText::kMatrixMarket;
    }};

}  // namespace mezzo::data
