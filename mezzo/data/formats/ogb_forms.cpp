#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/formats/ogb.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/source/array_pieces.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

/// Calls `row` for each line of a csv.gz file of num_rows lines.
void for_each_row(
    const fs::path& path, std::int64_t num_rows, const std::function<void()>& on_lines,
    const std::function<void(const TextLines&, std::vector<std::string_view>&)>& row) {
  TextLines lines(path, on_lines);
  std::string_view line;
  std::vector<std::string_view> fields;
  while (lines.next(line)) {
    lines.check(lines.number() <= num_rows, "more lines than the {} that are declared", num_rows);
    split_fields(line, Separator::kComma, fields);
    row(lines, fields);
  }
  require(lines.number() == num_rows, lines.where(), "the file ends after {} lines, expected {}",
          lines.number(), num_rows);
}

/// raw/*.csv.gz
class OgbTextSource : public OgbSource {
 public:
  using OgbSource::OgbSource;

 protected:
  OgbCounts read_counts() const override {
    return {.nodes = read_counts("num-node-list.csv.gz"),
            .edges = read_counts("num-edge-list.csv.gz")};
  }

  std::int64_t num_features(TaskTarget of) override {
    const fs::path path = raw_file(of, "feat.csv.gz");
    if (!fs::exists(path)) return 0;
    TextLines lines(path);
    std::string_view line;
    require(lines.next(line), lines.where(), "the file is empty");
    return std::count(line.begin(), line.end(), ',') + 1;
  }

  void take_features(TaskTarget of, const TakeRows& take) override {
    const std::int64_t width = num_features(of);
    if (width == 0) return;
    RowPieces pieces(width, take);
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      lines.check(static_cast<std::int64_t>(fields.size()) == width,
                  "{} columns, the first line has {}", fields.size(), width);
      float* const row = pieces.next_row();
      for (std::size_t i = 0; i < fields.size(); ++i) row[i] = feature_of_field(lines, fields[i]);
    };
    for_each_row(raw_file(of, "feat.csv.gz"), rows_of(of), on_lines(), read);
    pieces.finish();
  }

  void for_each_edge(const TakeEdge& edge) override {
    GraphOfEdge graph(counts());
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      graph.next();
      const auto [src, dst] = edge_of_fields(lines, fields, graph.num_nodes());
      edge(graph.first_node() + src, graph.first_node() + dst);
    };
    for_each_row(raw() / "edge.csv.gz", counts().num_edges, on_lines(), read);
  }

  at::Tensor edge_numbers(const char* name) override {
    const fs::path path = raw() / fmt::format("edge_{}.csv.gz", name);
    if (!fs::exists(path)) return {};
    std::vector<double> numbers;
    for_each_row(path, counts().num_edges, on_lines(), [&](const TextLines& lines, auto& fields) {
      lines.check(fields.size() == 1, "expected one number, got {} columns", fields.size());
      numbers.push_back(lines.real(fields[0]));
    });
    return at::tensor(numbers, at::kDouble);
  }

  std::pair<at::Tensor, std::string> label_values() override {
    std::vector<double> values;
    std::size_t width = 0;
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      if (lines.number() == 1) width = fields.size();
      lines.check(fields.size() == width, "{} labels, the first line has {}", fields.size(), width);
      const LabelKind expected =
          label_kind(static_cast<std::int64_t>(width)).value_or(LabelKind::kNumbers);
      for (const std::string_view field : fields) {
        values.push_back(field.empty() ? std::nan("") : lines.real(field));
        if (expected == LabelKind::kNumbers) continue;
        const std::int64_t label = label_of_field(lines, field);
        lines.check(expected == LabelKind::kClass || label <= 1,
                    "label {} among several, expected 0 or 1", label);
      }
    };
    for_each_row(raw_file(target(), "label.csv.gz"), num_targets(), on_lines(), read);
    return {at::tensor(values, at::kDouble).view({num_targets(), -1}),
            raw_file(target(), "label.csv.gz").string()};
  }

 private:
  std::vector<std::int64_t> read_counts(const char* file) const {
    TextLines lines(raw() / file);
    std::string_view line;
    std::vector<std::int64_t> counts;
    while (lines.next(line)) {
      counts.push_back(lines.integer(line));
      lines.check(counts.back() >= 0, "the count {} is negative", counts.back());
    }
    require(!counts.empty(), lines.where(), "the file is empty");
    return counts;
  }
};

/// raw/data.npz and raw/node-label.npz or raw/graph-label.npz
class OgbBinarySource : public OgbSource {
 public:
  using OgbSource::OgbSource;

 protected:
  OgbCounts read_counts() const override {
    const NpzFile file(data());
    return {.nodes = read_counts(file, "num_nodes_list"),
            .edges = read_counts(file, "num_edges_list")};
  }

  std::int64_t num_features(TaskTarget of) override {
    if (!NpzFile(data()).contains(key_of(of))) return 0;
    const NpyStream rows(data(), key_of(of));
    check_feature_shape(rows.shape(), rows_of(of), rows.where());
    return rows.shape()[1];
  }

  void take_features(TaskTarget of, const TakeRows& take) override {
    if (num_features(of) > 0) take_rows_of_array(NpyStream(data(), key_of(of)), rows_of(of), take);
  }

  void for_each_edge(const TakeEdge& edge) override {
    const auto open = [&] { return NpyStream(data(), "edge_index"); };
    const NpyStream edges = open();
    require(edges.numel() % 2 == 0 && edges.numel() / 2 == counts().num_edges, edges.where(),
            "{} items, where num_edges_list says {} edges", edges.numel(), counts().num_edges);
    GraphOfEdge graph(counts());
    const std::string where = edges.where();
    const auto read = [&](std::int64_t src, std::int64_t dst) {
      graph.next();
      require_edge(src, dst, graph.num_nodes(), where);
      edge(graph.first_node() + src, graph.first_node() + dst);
    };
    const std::vector<std::int64_t>& nodes = counts().nodes;
    for_each_edge_of_array(open, *std::max_element(nodes.begin(), nodes.end()), read);
  }

  at::Tensor edge_numbers(const char* name) override {
    const NpzFile file(data());
    const std::string key = fmt::format("edge_{}", name), where = file.where(key);
    if (!file.contains(key)) return {};
    const at::Tensor numbers = file.numbers(key);
    require(numbers.numel() == counts().num_edges && numbers.dim() <= 2 && !numbers.is_complex(),
            where, "expected one number an edge, shape [{0}] or [{0}, 1], got {1}",
            counts().num_edges, shape_text(numbers));
    return numbers.to(at::kDouble).reshape(-1);
  }

  std::pair<at::Tensor, std::string> label_values() override {
    const NpzFile file(raw_file(target(), "label.npz"));
    const std::string key = is_set() ? "graph_label" : "node_label", where = file.where(key);
    const at::Tensor array = file.numbers(key);
    require((array.dim() == 2 || array.dim() == 1) && array.size(0) == num_targets() &&
                array.numel() > 0 && !array.is_complex(),
            where, "expected shape [{0}, 1] or [{0}, C], got {1}", num_targets(),
            shape_text(array));
    return {array.to(at::kDouble).reshape({num_targets(), -1}), where};
  }

 private:
  fs::path data() const { return raw() / "data.npz"; }

  static const char* key_of(TaskTarget of) {
    return of == TaskTarget::kEdge ? "edge_feat" : "node_feat";
  }

  static std::vector<std::int64_t> read_counts(const NpzFile& file, const char* key) {
    const at::Tensor counts = as_int64(file.numbers(key), file.where(key)).reshape(-1).contiguous();
    require(counts.numel() > 0 && counts.ge(0).all().item<bool>(), file.where(key),
            "expected counts of at least 0");
    const auto* count = counts.const_data_ptr<std::int64_t>();
    return {count, count + counts.numel()};
  }
};

std::unique_ptr<GraphSource> open_ogb(const fs::path& folder, const LoadOptions& options) {
  std::unique_ptr<OgbSource> source;
  if (fs::exists(folder / "raw" / "data.npz")) {
    source = std::make_unique<OgbBinarySource>(folder, options);
  } else {
    source = std::make_unique<OgbTextSource>(folder, options);
  }
  if (is_ogb_link_set(folder)) return source_of(read_ogb_links(*source, folder, options));
  return source;
}

}  // namespace

extern const Format kOgbFormat = {
    "OGB folder",
    {"raw/edge.csv.gz", "raw/data.npz", "raw/triplet-type-list.csv.gz", "raw/edge_index_dict.npz"},
    open_ogb};

}  // namespace mezzo::data
