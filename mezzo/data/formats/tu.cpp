#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndicator = "_graph_indicator.txt";
constexpr std::int64_t kMostValues = std::int64_t{1} << 16;  // of a column of labels
constexpr std::int64_t kMostTuNodes = std::int64_t{1} << 31;

/// The names DS for which a folder has DS_graph_indicator.txt.
std::vector<std::string> sets_of(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::is_directory(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kIndicator)) {
      names.push_back(file.substr(0, file.size() - std::string_view(kIndicator).size()));
    }
  }
  return names;
}

/// The files DS_<part>.txt of a set.
class TuFiles {
 public:
  TuFiles(const fs::path& folder, const LoadOptions& options)
      : folder_(folder), on_lines_(options.on_lines) {
    const std::vector<std::string> names = sets_of(folder);
    require(names.size() == 1, folder.string(), "{} files *{}, expected one", names.size(),
            kIndicator);
    name_ = names[0];
  }

  const std::string& name() const { return name_; }
  fs::path path(const char* part) const { return folder_ / fmt::format("{}_{}.txt", name_, part); }
  bool has(const char* part) const { return fs::exists(path(part)); }

  /// Calls row(lines, fields) for each line that is not empty.
  template <class Row>
  void for_each_row(const char* part, const Row& row) const {
    TextLines lines(path(part), on_lines_);
    std::string_view line;
    std::vector<std::string_view> fields;
    while (lines.next(line)) {
      if (line.empty()) continue;
      split_fields(line, Separator::kComma, fields);
      row(lines, fields);
    }
  }

  /// float64 [R, C] of a file of R lines; if `expected` is set, R must be that. integers: of 64
  /// bits, exact up to 2^53.
  at::Tensor numbers(const char* part, bool integers,
                     std::optional<std::int64_t> expected = std::nullopt) const {
    std::vector<double> values;
    std::size_t width = 0;
    std::int64_t rows = 0;
    for_each_row(part, [&](const TextLines& lines, const std::vector<std::string_view>& fields) {
      if (rows++ == 0) width = fields.size();
      lines.check(fields.size() == width, "{} columns, the first line has {}", fields.size(),
                  width);
      lines.check(!expected || rows <= *expected, "more lines than {}", expected.value_or(0));
      for (const std::string_view field : fields) {
        values.push_back(integers ? static_cast<double>(lines.integer(field)) : lines.real(field));
      }
    });
    require(rows > 0 && rows == expected.value_or(rows), path(part).string(),
            "the file ends after {} lines, expected {}", rows, expected.value_or(1));
    return at::tensor(values, at::kDouble).view({rows, -1});
  }

  /// float32 [rows, F] of the attributes and then, for each column of labels, a column for each
  /// value between the smallest and the largest: 1 for the value of the row, else 0. Undefined
  /// without both files.
  at::Tensor features(const char* attributes, const char* labels, std::int64_t rows) const {
    std::vector<at::Tensor> columns;
    if (has(attributes)) {
      columns.push_back(as_float32(numbers(attributes, false, rows), path(attributes).string()));
      require(columns[0].isfinite().all().item<bool>(), path(attributes).string(),
              "expected finite numbers");
    }
    if (has(labels)) {
      for (const at::Tensor& column : numbers(labels, true, rows).unbind(1)) {
        columns.push_back(one_hot(column, path(labels).string()));
      }
    }
    if (columns.empty()) return {};
    return at::cat(columns, 1);
  }

 private:
  static at::Tensor one_hot(const at::Tensor& values, const std::string& where) {
    const double least = values.min().item<double>(), most = values.max().item<double>();
    require(most - least < kMostValues, where, "labels from {} to {}, expected at most {} values",
            least, most, kMostValues);
    const std::int64_t width = static_cast<std::int64_t>(most - least) + 1;
    require_room_for(values.size(0), width, where);
    return at::zeros({values.size(0), width}, at::kFloat)
        .scatter_(1, (values - least).to(at::kLong).unsqueeze(1), 1);
  }

  fs::path folder_;
  std::string name_;
  std::function<void()> on_lines_;
};

/// Sets graph_offsets and num_nodes.
void read_tu_graphs(const TuFiles& files, Dataset& dataset) {
  std::vector<std::int64_t> offsets;
  std::int64_t nodes = 0;
  files.for_each_row("graph_indicator", [&](const TextLines& lines, const auto& fields) {
    lines.check(fields.size() == 1, "expected the graph of a node, got {} columns", fields.size());
    const std::int64_t graph = lines.integer(fields[0]);
    const auto last = static_cast<std::int64_t>(offsets.size());
    lines.check(graph == last + 1 || (graph == last && last > 0),
                "a node of graph {} after graph {}, expected the graphs in ascending order from 1, "
                "each with a node",
                graph, last);
    if (graph > last) offsets.push_back(nodes);
    ++nodes;
  });
  const std::string where = files.path("graph_indicator").string();
  require(nodes > 0 && nodes <= kMostTuNodes, where, "{} nodes, expected 1 to 2^31", nodes);
  offsets.push_back(nodes);
  dataset.num_nodes = nodes;
  dataset.graph_offsets = at::tensor(offsets, at::kLong);
}

/// Edges by source and destination, without self loops; of parallel edges the features are added.
void read_tu_edges(const TuFiles& files, Dataset& dataset) {
  const std::int64_t nodes = dataset.num_nodes;
  std::vector<std::int64_t> keys;
  files.for_each_row("A", [&](const TextLines& lines, const auto& fields) {
    const auto [src, dst] = edge_of_fields(lines, fields);
    lines.check(src >= 1 && dst >= 1 && src <= nodes && dst <= nodes,
                "edge from {} to {}, outside [1, {}]", src, dst, nodes);
    keys.push_back((src - 1) * nodes + dst - 1);
  });
  const at::Tensor all = at::tensor(keys, at::kLong);
  const at::Tensor src = all.div(nodes, "floor"), dst = all.remainder(nodes);
  const at::Tensor kept = src.ne(dst).nonzero().view(-1);
  const auto [distinct, place, counts] =
      at::_unique2(all.index_select(0, kept), /*sorted=*/true, /*return_inverse=*/true);
  dataset.src = distinct.div(nodes, "floor");
  dataset.dst = distinct.remainder(nodes);
  if (all.numel() == 0) return;
  const at::Tensor features = files.features("edge_attributes", "edge_labels", all.numel());
  if (!features.defined()) return;
  dataset.edge_features = at::zeros({distinct.numel(), features.size(1)}, at::kFloat)
                              .index_add_(0, place, features.index_select(0, kept));
}

/// Classes in the order of their labels, which are their names unless they are 0 to C - 1.
TargetLabels classes_of_graphs(const TuFiles& files, Dataset& dataset) {
  const std::string where = files.path("graph_labels").string();
  const at::Tensor labels = files.numbers("graph_labels", true, dataset.num_graphs());
  require(labels.size(1) == 1, where, "expected one label a graph, got {} columns", labels.size(1));
  const auto [values, classes, counts] =
      at::_unique2(labels.view(-1), /*sorted=*/true, /*return_inverse=*/true);
  if (!values.equal(at::arange(values.numel(), at::kDouble))) {
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      dataset.class_names.push_back(fmt::format("{:.0f}", values[i].item<double>()));
    }
  }
  return class_labels(classes, values.numel(), where, TaskTarget::kGraph);
}

void read_tu_labels(const TuFiles& files, std::optional<Task> task, Dataset& dataset) {
  const bool has_classes = files.has("graph_labels"), has_numbers = files.has("graph_attributes");
  if (has_classes) dataset.tasks.push_back({TaskTarget::kGraph, LabelKind::kClass});
  if (has_numbers) dataset.tasks.push_back({TaskTarget::kGraph, LabelKind::kNumbers});
  if (dataset.tasks.empty() || (!task && dataset.tasks.size() > 1)) return;
  const bool are_numbers = has_numbers && (!has_classes || task->labels == LabelKind::kNumbers);
  const std::string where = files.path("graph_attributes").string();
  const TargetLabels labels =
      are_numbers ? number_labels(files.numbers("graph_attributes", false, dataset.num_graphs()),
                                  where, TaskTarget::kGraph)
                  : classes_of_graphs(files, dataset);
  require_all_labelled(labels, where);
  dataset.target = labels.target;
  dataset.labels = labels.labels;
  dataset.num_classes = labels.num_classes;
  dataset.metric = usual_metric(label_kind_of(labels.labels));
}

/// A set of graphs in the text format of TU Dortmund, as PyG's read_tu_data reads it: DS_A.txt, a
/// line "source, destination" an edge, nodes from 1; DS_graph_indicator.txt, the graph of each
/// node, from 1; and perhaps DS_{node,edge}_{attributes,labels}.txt, a line a node or edge, and
/// DS_graph_labels.txt or DS_graph_attributes.txt, a line a graph. No self loops, parallel edges
/// once. A random split.
Dataset read_tu(const fs::path& folder, const LoadOptions& options) {
  refuse_named_split(options, folder.string());
  const TuFiles files(folder, options);
  Dataset dataset;
  dataset.name = files.name();
  read_tu_graphs(files, dataset);
  read_tu_labels(files, options.task, dataset);
  read_tu_edges(files, dataset);
  const at::Tensor features = files.features("node_attributes", "node_labels", dataset.num_nodes);
  if (features.defined()) dataset.features = features;
  if (dataset.labels.defined()) set_random_split(dataset, options.split_seed);
  return dataset;
}

}  // namespace

extern const Format kTuFormat = {
    "TU set of graphs", {}, open_whole<read_tu>, [](const fs::path& path) {
      return !sets_of(path).empty();
    }};

}  // namespace mezzo::data
