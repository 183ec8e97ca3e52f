// The tasks of a GraphBolt folder.
#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats/graphbolt.h"
#include "mezzo/data/formats/graphbolt_set.h"
#include "mezzo/data/listed_links.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, Role> kSets[] = {
    {"train_set", Role::kTrain}, {"validation_set", Role::kVal}, {"test_set", Role::kTest}};

/// What a task is; nullopt if its training set does not say it.
std::optional<Task> kind_of(const YamlPlace& task, const fs::path& folder,
                            std::optional<Task> wanted) {
  const std::vector<YamlPlace> sets = task.list("train_set");
  if (sets.empty()) return std::nullopt;
  const GraphBoltSet set(sets[0], folder);
  if (set.seeds_name().empty()) return std::nullopt;
  TaskTarget target = TaskTarget::kNode;
  if (set.has_pairs()) {
    const bool are_links =
        !set.has("labels") || set.has("indexes") || set.has_negatives() || wanted == LinkTask::kind;
    target = are_links ? TaskTarget::kLink : TaskTarget::kEdge;
  }
  if (target == TaskTarget::kLink) return LinkTask::kind;
  if (wanted && wanted->target == target) return wanted;
  if (!set.has("labels")) return Task{.target = target};
  const at::Tensor labels = set.array("labels");
  if (!task.has("num_classes")) return Task{.target = target, .labels = label_kind_of_file(labels)};
  const bool several = labels.dim() == 2 && labels.size(1) > 1;
  return Task{.target = target, .labels = several ? LabelKind::kMultiLabel : LabelKind::kClass};
}

/// The sets of a role in the order of their types, which are of `types`.
std::vector<std::pair<std::int64_t, GraphBoltSet>> sets_of(const YamlPlace& task, const char* key,
                                                           const std::vector<std::string>& types,
                                                           const fs::path& folder) {
  std::vector<std::pair<std::int64_t, GraphBoltSet>> sets;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::size_t before = sets.size();
    for (const YamlPlace& set : task.list(key)) {
      if (set.text_if_any("type") != types[i]) continue;
      sets.emplace_back(static_cast<std::int64_t>(i), GraphBoltSet(set, folder));
    }
    task.check(sets.size() <= before + 1, "'{}' has {} sets of the type '{}', expected one", key,
               sets.size() - before, types[i]);
  }
  task.check(sets.size() == task.list(key).size(),
             "'{}' has a type that is not of the graph: expected '{}'", key,
             fmt::join(types, "', '"));
  return sets;
}

/// Tensors below each other, of as many columns.
at::Tensor joined(const std::vector<at::Tensor>& parts, int dim, const std::string& where) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& part : parts) {
    if (part.defined()) all.push_back(part);
  }
  if (all.empty()) return {};
  const auto width_of = [dim](const at::Tensor& part) {
    return part.dim() == 1 ? 1 : part.size(1 - dim);
  };
  for (const at::Tensor& part : all) {
    require(width_of(part) == width_of(all[0]), where,
            "the arrays of the sets of a task have {} and {} columns", width_of(all[0]),
            width_of(part));
  }
  return at::cat(all, dim);
}

ListedPairs joined(const std::vector<ListedPairs>& parts, const std::string& where) {
  const auto all = [&](const auto& column, int dim = 0) {
    std::vector<at::Tensor> columns;
    for (const ListedPairs& part : parts) columns.push_back(column(part));
    return joined(columns, dim, where);
  };
  for (const ListedPairs& part : parts) {
    require(part.negatives.src.defined() == parts[0].negatives.src.defined() &&
                part.negatives.dst.defined() == parts[0].negatives.dst.defined(),
            where, "only links of some types have negative pairs of their own");
  }
  ListedPairs result{.src = all([](const auto& part) { return part.src; }),
                     .dst = all([](const auto& part) { return part.dst; }),
                     .types = all([](const auto& part) { return part.types; })};
  result.negatives = {.pairs = all([](const auto& part) { return part.negatives.pairs; }, 1),
                      .src = all([](const auto& part) { return part.negatives.src; }),
                      .dst = all([](const auto& part) { return part.negatives.dst; })};
  if (parts.empty()) result.src = result.dst = at::empty({0}, at::kLong);
  return result;
}

/// Of each target: the label in its row, int64 [T] in [-1, R), or none. labels: [R] or [R, C].
TargetLabels labels_of_targets(const at::Tensor& rows, const at::Tensor& labels, Task task,
                               const YamlPlace& entry, const std::string& where) {
  require(labels.defined() && labels.size(0) > 0, where, "no {} has a label",
          name_of(TaskTargets{}, task.target));
  const std::optional<std::int64_t> num_classes =
      entry.has("num_classes") ? std::optional(entry.count("num_classes")) : std::nullopt;
  const at::Tensor none = rows.lt(0);
  at::Tensor all = labels.index_select(0, rows.clamp_min(0));
  if (task.labels == LabelKind::kClass) {
    return class_labels(all.masked_fill_(none, kNoLabel), num_classes, where, task.target);
  }
  all.masked_fill_(none.unsqueeze(1), std::numeric_limits<double>::quiet_NaN());
  if (task.labels == LabelKind::kNumbers) return number_labels(all, where, task.target);
  require(!num_classes || *num_classes == all.size(1), where,
          "{} classes are declared, the labels have {} columns", num_classes.value_or(0),
          all.size(1));
  return entry_labels(all, where, task.target);
}

}  // namespace

GraphBoltTask::GraphBoltTask(const GraphBoltGraph& graph, const LoadOptions& options)
    : graph_(graph) {
  const std::vector<YamlPlace> tasks = graph.metadata().list("tasks");
  std::vector<const YamlPlace*> fitting;
  const auto find = [&](const auto& fits) {
    for (const YamlPlace& task : tasks) {
      if (fits(task)) fitting.push_back(&task);
    }
  };
  if (!options.split.empty()) {
    find([&](const YamlPlace& task) { return task.text_if_any("name") == options.split; });
  } else if (tasks.size() == 1) {
    fitting.push_back(tasks.data());
  } else {
    find([&](const YamlPlace& task) {
      const std::optional<Task> kind = kind_of(task, graph.folder(), std::nullopt);
      if (kind && std::count(kinds_.begin(), kinds_.end(), *kind) == 0) kinds_.push_back(*kind);
      return options.task && kind == options.task;
    });
  }
  if (fitting.empty() && options.split.empty() && options.task) {
    find([&](const YamlPlace& task) {
      return kind_of(task, graph.folder(), options.task) == options.task;
    });
  }
  // Every graph has links, and several kinds of tasks can be listed.
  const bool may_be_none = options.labels_optional &&
                           (options.task == LinkTask::kind || (!options.task && kinds_.size() > 1));
  if (tasks.empty() && options.split.empty()) return;
  if (fitting.empty() && options.split.empty() && may_be_none) return;
  MEZZO_CHECK(fitting.size() == 1, "split: '{}' does not name one task of {}, which has: '{}'",
              options.split, graph.folder().string(), fmt::join(names(), "', '"));
  entry_.emplace(*fitting[0]);
  entry_->check(!entry_->list("train_set").empty(), "'train_set' has 0 entries, expected one");
  kind_ = kind_of(*entry_, graph.folder(), options.task);
  entry_->check(kind_.has_value(), "expected data called 'seeds' in 'train_set'");
}

std::vector<std::string> GraphBoltTask::names() const {
  std::vector<std::string> names;
  for (const YamlPlace& task : graph_.metadata().list("tasks")) {
    if (task.has("name")) names.push_back(task.text("name"));
  }
  return names;
}

GraphBoltTask::Labels GraphBoltTask::node_labels() const {
  SplitBuilder split(graph_.num_nodes());
  at::Tensor rows = at::full({graph_.num_nodes()}, -1, at::kLong);
  auto* const row = rows.mutable_data_ptr<std::int64_t>();
  std::vector<at::Tensor> labels;
  std::int64_t next = 0;
  for (const auto& [key, role] : kSets) {
    for (const auto& [type, set] : sets_of(*entry_, key, {graph_.node_type()}, graph_.folder())) {
      const std::string where = set.where(set.seeds_name());
      const at::Tensor seeds = as_int64(set.seeds(), where).contiguous();
      require(seeds.dim() == 1, where, "expected node ids of shape [n], got {}", shape_text(seeds));
      labels.push_back(set.labels(kind_->labels, seeds.numel()));
      const auto* seed = seeds.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < seeds.numel(); ++i) {
        split.assign(seed[i], role, [&where = where] { return where; });
        row[seed[i]] = next++;
      }
    }
  }
  Labels result;
  result.labels = labels_of_targets(rows, joined(labels, 0, where()), *kind_, *entry_, where());
  result.masks = split.masks(result.labels.has_label);
  return result;
}

void GraphBoltTask::add_to(Dataset& dataset) const {
  const bool are_links = kind_->target == TaskTarget::kLink;
  const auto list_of = [&](const char* key) {
    std::vector<ListedPairs> parts;
    for (const auto& [type, set] : sets_of(*entry_, key, graph_.edge_types(), graph_.folder())) {
      parts.push_back(are_links ? set.links()
                                : pairs_of_columns(set.seeds(), set.where(set.seeds_name())));
      if (dataset.edge_types.defined()) parts.back().types = at::full_like(parts.back().src, type);
    }
    ListedPairs all = joined(parts, where());
    if (dataset.edge_types.defined() && !all.types.defined()) all.types = all.src;
    check_pairs(all, dataset, where() + ": " + key);
    return all;
  };
  const ListedSplit split{
      .train = list_of("train_set"), .val = list_of("validation_set"), .test = list_of("test_set")};
  if (are_links) return add_links(dataset, split, /*messages=*/false, where());
  add_labels(dataset, split);
}

void GraphBoltTask::add_labels(Dataset& dataset, const ListedSplit& split) const {
  std::vector<at::Tensor> labels;
  for (const auto& [key, role] : kSets) {
    for (const auto& [type, set] : sets_of(*entry_, key, graph_.edge_types(), graph_.folder())) {
      labels.push_back(set.labels(kind_->labels, set.seeds().size(0)));
    }
  }
  const at::Tensor rows =
      rows_of_edges(joined({split.train, split.val, split.test}, where()), dataset, where());
  const TargetLabels of_edges =
      labels_of_targets(rows, joined(labels, 0, where()), *kind_, *entry_, where());
  dataset.target = TaskTarget::kEdge;
  dataset.labels = of_edges.labels;
  dataset.num_classes = of_edges.num_classes;
  dataset.metric = usual_metric(kind_->labels);
  const std::int64_t val = split.train.src.numel(), test = val + split.val.src.numel();
  const auto mask_of = [&](const at::Tensor& in_role) {
    return in_role.logical_and(of_edges.has_label).unsqueeze(1);
  };
  dataset.train_masks = mask_of(rows.ge(0).logical_and(rows.lt(val)));
  dataset.val_masks = mask_of(rows.ge(val).logical_and(rows.lt(test)));
  dataset.test_masks = mask_of(rows.ge(test));
}

}  // namespace mezzo::data
