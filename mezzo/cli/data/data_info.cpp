#include "mezzo/cli/data/data_info.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/cli/data/edge_statistics.h"
#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/graph.h"

namespace mezzo::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::int64_t count(const at::Tensor& values) {
  return values.sum().item<std::int64_t>();
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? kNaN : static_cast<double>(part) / static_cast<double>(whole);
}

std::int64_t nonzeros(const at::Tensor& features) {
  if (features.layout() == at::kSparseCsr) return count(at::ne(features.values(), 0));
  return count(at::ne(features, 0));
}

void describe_edges(const Dataset& dataset, DatasetInfo& info) {
  const Topology topology = topology_of(dataset);
  const at::Tensor in = topology.in_degrees(), out = topology.out_degrees();
  if (dataset.num_nodes > 0) {
    info.min_in_degree = in.min().item<std::int64_t>();
    info.max_in_degree = in.max().item<std::int64_t>();
  }
  info.mean_in_degree = share(dataset.num_edges(), dataset.num_nodes);
  info.isolated_nodes = count(at::eq(in + out, 0));
  const bool are_classes = dataset.task() == Task{TaskTarget::kNode, LabelKind::kClass};
  const EdgeStatistics statistics =
      edge_statistics(topology, are_classes ? dataset.labels : at::Tensor());
  info.is_undirected = statistics.is_undirected;
  info.self_loops = statistics.self_loops;
  info.parallel_edges = statistics.parallel_edges;
  info.homophily = share(statistics.between_equals, statistics.labelled);
  const at::Tensor& weights = dataset.edge_weights;
  if (!weights.defined() || weights.numel() == 0) return;
  const auto number = [](const at::Tensor& value) { return value.item<double>(); };
  info.edge_weights = {number(weights.min()), number(weights.mean(at::kDouble)),
                       number(weights.max())};
}

void describe_features(const Dataset& dataset, DatasetInfo& info) {
  const at::Tensor& features = dataset.features;
  if (!features.defined()) return;
  info.feature_dtype =
      c10::getDtypeNames(dataset.stored_dtype.value_or(features.scalar_type())).first;
  info.sparse_features = features.layout() == at::kSparseCsr;
  info.mapped_features = dataset.is_mapped;
  if (dataset.is_mapped) return;
  info.feature_density = share(nonzeros(features), info.num_nodes * info.num_features);
}

/// The class or number of a column.
std::string column_name(const Dataset& dataset, std::int64_t column) {
  const auto index = static_cast<std::size_t>(column);
  return index < dataset.class_names.size() ? dataset.class_names[index] : std::to_string(column);
}

void describe_numbers(const Dataset& dataset, DatasetInfo& info) {
  for (std::int64_t c = 0; c < dataset.num_classes; ++c) {
    const at::Tensor column = dataset.labels.select(1, c).to(at::kDouble);
    const at::Tensor known = column.masked_select(column.isnan().logical_not());
    const bool any = known.numel() > 0;
    info.numbers.push_back({.name = column_name(dataset, c),
                            .count = known.numel(),
                            .min = any ? known.min().item<double>() : kNaN,
                            .mean = any ? known.mean().item<double>() : kNaN,
                            .max = any ? known.max().item<double>() : kNaN});
  }
}

void describe_labels(const Dataset& dataset, DatasetInfo& info) {
  info.unlabelled = dataset.num_targets();
  if (!dataset.labels.defined()) return;
  const at::Tensor has_label = dataset.has_label();
  info.unlabelled -= count(has_label);
  if (dataset.task().labels == LabelKind::kNumbers) return describe_numbers(dataset, info);
  const at::Tensor counts =
      dataset.task().labels == LabelKind::kMultiLabel
          ? dataset.labels.eq(1).sum(0)
          : at::bincount(dataset.labels.masked_select(has_label), {}, dataset.num_classes);
  for (std::int64_t c = 0; c < dataset.num_classes; ++c) {
    info.classes.push_back({column_name(dataset, c), counts[c].item<std::int64_t>()});
  }
}

/// "500, undirected (every edge has its reverse)"
std::string edges_text(const DatasetInfo& info) {
  if (info.num_edges == 0) return "0";
  return fmt::format("{}, {}", info.num_edges,
                     info.is_undirected ? "undirected (every edge has its reverse)" : "directed");
}

/// "500, float32, sparse, share of nonzeros 0.1"
std::string features_text(const DatasetInfo& info, const std::string& density) {
  if (info.num_features == 0) return "none";
  const char* layout = info.sparse_features ? "sparse" : info.mapped_features ? "mapped" : "dense";
  const std::string facts =
      fmt::format("{}, {}, {}", info.num_features, info.feature_dtype, layout);
  return info.mapped_features ? facts : fmt::format("{}, share of nonzeros {}", facts, density);
}

std::string weights_text(const std::vector<double>& weights) {
  if (weights.empty()) return "none";
  return fmt::format("min {:.4g}, mean {:.4g}, max {:.4g}", weights[0], weights[1], weights[2]);
}

std::string tasks_text(const DatasetInfo& info) {
  if (info.tasks.empty()) return "none";
  const bool chosen = info.num_labelled_tasks == 1 || !info.splits.empty();
  return fmt::format("{}{}", fmt::join(info.tasks, ", "), chosen ? "" : " (choose with --task)");
}

/// The values of --split.
std::string named_splits_text(const DatasetInfo& info) {
  std::string text;
  for (const std::string& name : info.split_names) {
    if (!name.empty()) text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "none" : text;
}

/// Whether the edges may be learnt as links, which the labels do not say.
bool has_links(const Dataset& dataset) {
  const bool is_listed =
      std::find(dataset.tasks.begin(), dataset.tasks.end(), LinkTask::kind) != dataset.tasks.end();
  return !is_listed && dataset.num_edges() > 0 && !dataset.graph_offsets.defined() && !dataset.part;
}

}  // namespace

DatasetInfo describe(const Dataset& dataset) {
  DatasetInfo info;
  info.name = dataset.name;
  info.origin = dataset.origin;
  info.task = name_of(Tasks{}, dataset.task());
  for (const Task task : dataset.tasks) info.tasks.emplace_back(name_of(Tasks{}, task));
  info.num_labelled_tasks = info.tasks.size();
  if (has_links(dataset)) info.tasks.emplace_back(LinkTask::name);
  info.target = name_of(TaskTargets{}, dataset.target);
  info.metric = metric_name(dataset.metric);
  info.num_nodes = dataset.num_nodes;
  info.num_edges = dataset.num_edges();
  info.num_edge_features = dataset.num_edge_features();
  if (dataset.graph_offsets.defined()) info.num_graphs = dataset.num_graphs();
  info.num_features = dataset.num_features();
  info.feature_density = info.homophily = kNaN;
  describe_features(dataset, info);
  describe_labels(dataset, info);
  for (std::int64_t s = 0; s < dataset.num_splits(); ++s) {
    const SplitMasks masks = dataset.split(s);
    info.splits.push_back({count(masks.train), count(masks.val), count(masks.test)});
  }
  info.split_names = dataset.split_names;
  describe_edges(dataset, info);
  return info;
}

std::string format_info(const DatasetInfo& info) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  const auto four_digits = [](double value) {
    return std::isnan(value) ? std::string("-") : fmt::format("{:.4g}", value);
  };
  std::vector<std::vector<std::string>> facts = {
      {"name", info.name},
      {"origin", info.origin},
      {"nodes", text(info.num_nodes)},
      {"edges", edges_text(info)},
      {"graphs", info.num_graphs ? text(*info.num_graphs) : "one"},
      {"self loops", text(info.self_loops)},
      {"parallel edges", text(info.parallel_edges)},
      {"edge weights", weights_text(info.edge_weights)},
      {"edge features", info.num_edge_features > 0 ? text(info.num_edge_features) : "none"},
      {"features", features_text(info, four_digits(info.feature_density))},
      {"in-degree", fmt::format("min {}, mean {:.2f}, max {}", info.min_in_degree,
                                info.mean_in_degree, info.max_in_degree)},
      {"isolated nodes", text(info.isolated_nodes)},
      {"homophily", four_digits(info.homophily)},
      {"tasks", tasks_text(info)},
      {"task", info.task},
      {"metric", info.metric},
      {"classes", text(info.classes.size())},
      {info.target + "s without a label", text(info.unlabelled)},
      {"splits", text(info.splits.size())},
      {"named splits", named_splits_text(info)},
  };
  std::vector<std::vector<std::string>> classes = {{"class", info.target + "s"}};
  for (const DatasetInfo::Class& one : info.classes) {
    classes.push_back({one.name, text(one.count)});
  }
  if (!info.numbers.empty()) classes = {{"number", info.target + "s", "min", "mean", "max"}};
  for (const DatasetInfo::Number& one : info.numbers) {
    classes.push_back({one.name, text(one.count), four_digits(one.min), four_digits(one.mean),
                       four_digits(one.max)});
  }
  std::vector<std::vector<std::string>> splits = {{"split", "train", "val", "test"}};
  for (std::size_t s = 0; s < info.splits.size(); ++s) {
    const DatasetInfo::Split& split = info.splits[s];
    splits.push_back({text(s), text(split.train), text(split.val), text(split.test)});
  }
  return format_table(facts, 2) + '\n' + format_table(classes) + '\n' + format_table(splits);
}

std::string info_to_json(const DatasetInfo& info) {
  OrderedJson classes = OrderedJson::array();
  for (const DatasetInfo::Class& one : info.classes) {
    classes.push_back({{"name", one.name}, {info.target + "s", one.count}});
  }
  OrderedJson numbers = OrderedJson::array();
  for (const DatasetInfo::Number& one : info.numbers) {
    numbers.push_back({{"name", one.name},
                       {info.target + "s", one.count},
                       {"min", json_number(one.min)},
                       {"mean", json_number(one.mean)},
                       {"max", json_number(one.max)}});
  }
  OrderedJson splits = OrderedJson::array();
  for (const DatasetInfo::Split& split : info.splits) {
    splits.push_back({{"train", split.train}, {"val", split.val}, {"test", split.test}});
  }
  OrderedJson weights = nullptr;
  if (const std::vector<double>& facts = info.edge_weights; !facts.empty()) {
    weights = {{"min", facts[0]}, {"mean", facts[1]}, {"max", facts[2]}};
  }
  const OrderedJson object = {
      {"dataset", info.name},
      {"origin", info.origin},
      {"nodes", info.num_nodes},
      {"edges", info.num_edges},
      {"graphs", info.num_graphs.value_or(1)},
      {"undirected", info.is_undirected},
      {"self_loops", info.self_loops},
      {"parallel_edges", info.parallel_edges},
      {"edge_weights", weights},
      {"edge_features", info.num_edge_features},
      {"features",
       {{"count", info.num_features},
        {"dtype", text_or_null(info.feature_dtype)},
        {"sparse", info.sparse_features},
        {"mapped", info.mapped_features},
        {"density", json_number(info.feature_density)}}},
      {"tasks", info.tasks},
      {"task", info.task},
      {"classes", classes},
      {"numbers", numbers},
      {"unlabelled_" + info.target + "s", info.unlabelled},
      {"splits", splits},
      {"split_names", info.split_names},
      {"in_degree",
       {{"min", info.min_in_degree},
        {"mean", json_number(info.mean_in_degree)},
        {"max", info.max_in_degree}}},
      {"isolated_nodes", info.isolated_nodes},
      {"homophily", json_number(info.homophily)},
      {"metric", info.metric},
  };
  return json_text(object);
}

}  // namespace mezzo::cli
