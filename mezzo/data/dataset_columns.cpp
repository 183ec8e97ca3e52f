// Sets and checks the edges, labels and split of a data set.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include "mezzo/core/random.h"
#include "mezzo/data/npy/mapped_file.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::int64_t kMaxUndirectedNodes = std::int64_t{1} << 31;
constexpr std::int64_t kMaxPackedNodes = std::int64_t{1} << 32;
constexpr std::int64_t kMaxClassesOfFewNodes = std::int64_t{1} << 16;
constexpr std::uint64_t kSplitStream = 0x53504C4954;  // "SPLIT"

std::uint64_t packed(std::int64_t src, std::int64_t dst) {
  return static_cast<std::uint64_t>(src) << 32 | static_cast<std::uint64_t>(dst);
}

/// Sets the edges of `dataset` from these keys, without duplicates, in ascending order.
void set_distinct_edges(Dataset& dataset, std::vector<std::uint64_t> keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const auto count = static_cast<std::int64_t>(keys.size());
  dataset.src = at::empty({count}, at::kLong);
  dataset.dst = at::empty({count}, at::kLong);
  auto* src = dataset.src.mutable_data_ptr<std::int64_t>();
  auto* dst = dataset.dst.mutable_data_ptr<std::int64_t>();
  for (const std::uint64_t key : keys) {
    *src++ = static_cast<std::int64_t>(key >> 32);
    *dst++ = static_cast<std::int64_t>(key & 0xFFFFFFFF);
  }
}

}  // namespace

void require_edge(std::int64_t src, std::int64_t dst, std::int64_t num_nodes,
                  const std::string& where) {
  require(src >= 0 && src < num_nodes && dst >= 0 && dst < num_nodes, where,
          "an edge from node {} to node {}, outside [0, {})", src, dst, num_nodes);
}

void set_undirected_edges(Dataset& dataset, const std::vector<Edge>& edges,
                          const std::string& where) {
  require(dataset.num_nodes <= kMaxUndirectedNodes, where, "more than 2^31 nodes");
  std::vector<std::uint64_t> keys;
  keys.reserve(2 * edges.size());
  for (const auto& [src, dst] : edges) {
    require_edge(src, dst, dataset.num_nodes, where);
    if (src == dst) continue;
    keys.push_back(packed(src, dst));
    keys.push_back(packed(dst, src));
  }
  set_distinct_edges(dataset, std::move(keys));
}

void merge_parallel_edges(Dataset& dataset) {
  require(dataset.num_nodes <= kMaxPackedNodes, dataset.origin, "{} nodes, expected at most 2^32",
          dataset.num_nodes);
  const auto* src = dataset.src.const_data_ptr<std::int64_t>();
  const auto* dst = dataset.dst.const_data_ptr<std::int64_t>();
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(dataset.num_edges()));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = packed(src[i], dst[i]);
  set_distinct_edges(dataset, std::move(keys));
}

void require_room(std::int64_t num_nodes, const std::string& where) {
  constexpr std::uint64_t kBytesPerNode = 16;
  const std::uint64_t memory = memory_of_the_machine();
  require(static_cast<std::uint64_t>(num_nodes) <= memory / kBytesPerNode, where,
          "it declares {} nodes, for which the {} bytes of this machine's memory are too few",
          num_nodes, memory);
}

void require_room_for(std::int64_t rows, std::int64_t columns, const std::string& where) {
  const std::uint64_t memory = memory_of_the_machine();
  require(static_cast<std::uint64_t>(columns) <=
              memory / sizeof(float) / static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1)),
          where, "{} rows of {} numbers do not fit in the {} bytes of this machine's memory", rows,
          columns, memory);
}

std::int64_t most_classes(std::int64_t num_nodes) {
  return std::max(num_nodes, kMaxClassesOfFewNodes);
}

TargetLabels class_labels(const at::Tensor& labels, std::optional<std::int64_t> declared,
                          const std::string& where, TaskTarget of) {
  const std::string_view target = name_of(TaskTargets{}, of);
  const bool column = labels.dim() == 2 && labels.size(1) == 1;
  require((labels.dim() == 1 || column) && labels.numel() > 0, where,
          "expected one label a {0}, [T] or [T, 1] with T > 0, got shape {1}", target,
          shape_text(labels));
  TargetLabels result{.target = of};
  result.labels = as_int64(labels, where).reshape(-1);
  result.has_label = result.labels.ne(kNoLabel);
  const std::int64_t num_nodes = labels.numel(), limit = most_classes(num_nodes);
  const auto* label = result.labels.const_data_ptr<std::int64_t>();
  const auto [least, most] = std::minmax_element(label, label + num_nodes);
  require(*least >= kNoLabel, where,
          "{} {} has the negative label {}, expected classes from 0, or -1 if it is unknown",
          target, least - label, *least);
  require(*most >= 0, where, "no {} has a label", target);
  require(*most < limit, where,
          "{} {} has label {}, expected less than {}, the most classes of {} {}s", target,
          most - label, *most, limit, num_nodes, target);
  result.num_classes = declared.value_or(*most + 1);
  require(result.num_classes > *most && result.num_classes <= limit, where,
          "{} classes are declared, the largest label is {} ({} {})", result.num_classes, *most,
          target, most - label);
  return result;
}

LabelKind label_kind_of(const at::Tensor& labels) {
  if (!labels.defined()) return LabelKind::kClass;
  if (labels.is_floating_point()) return LabelKind::kNumbers;
  return labels.dim() == 2 ? LabelKind::kMultiLabel : LabelKind::kClass;
}

LabelKind label_kind_of_file(const at::Tensor& labels) {
  const bool several = labels.dim() == 2 && labels.size(1) > 1;
  if (!labels.is_floating_point()) return several ? LabelKind::kMultiLabel : LabelKind::kClass;
  const auto is = [&labels](int value) { return labels.eq(value); };
  const at::Tensor entry = is(0).logical_or_(is(1)).logical_or_(is(-1)).logical_or_(is(kNoEntry));
  const bool entries = several && entry.logical_or_(labels.isnan()).all().item<bool>();
  return entries ? LabelKind::kMultiLabel : LabelKind::kNumbers;
}

at::Tensor has_label(const at::Tensor& labels) {
  switch (label_kind_of(labels)) {
    case LabelKind::kMultiLabel:
      return labels.ne(kNoEntry).any(1);
    case LabelKind::kNumbers:
      return labels.isnan().logical_not_().any(1);
    case LabelKind::kClass:
      break;
  }
  return labels.ne(kNoLabel);
}

Metric usual_metric(LabelKind labels) {
  if (labels == LabelKind::kNumbers) return Metric::kR2;
  return labels == LabelKind::kMultiLabel ? Metric::kMicroF1 : Metric::kAccuracy;
}

TargetLabels number_labels(const at::Tensor& numbers, const std::string& where, TaskTarget of) {
  const std::string_view target = name_of(TaskTargets{}, of);
  require((numbers.dim() == 1 || numbers.dim() == 2) && numbers.numel() > 0, where,
          "expected numbers [T] or [T, C] with T, C > 0, got shape {}", shape_text(numbers));
  TargetLabels result{.target = of};
  result.labels = as_float32(numbers, where).reshape({numbers.size(0), -1}).contiguous();
  result.has_label = has_label(result.labels);
  result.num_classes = result.labels.size(1);
  const at::Tensor infinite = result.labels.isinf().nonzero();
  require(infinite.size(0) == 0, where, "{} {} has inf, expected numbers, or nan if unknown",
          target, infinite.size(0) == 0 ? 0 : infinite[0][0].item<std::int64_t>());
  require(result.has_label.any().item<bool>(), where, "no {} has a number", target);
  return result;
}

TargetLabels entry_labels(const at::Tensor& entries, const std::string& where, TaskTarget of) {
  const std::string_view target = name_of(TaskTargets{}, of);
  require(entries.dim() == 2 && entries.numel() > 0 && !entries.is_complex(), where,
          "expected real numbers [T, C] with T, C > 0, got shape {}", shape_text(entries));
  // Not every 8-bit dtype can hold -1 or 255.
  const at::Tensor values =
      c10::elementSize(entries.scalar_type()) == 1 ? entries.to(at::kShort) : entries;
  const at::Tensor missing =
      values.ne(values).logical_or_(values.eq(-1)).logical_or_(values.eq(kNoEntry));
  const at::Tensor bad =
      values.eq(0).logical_or_(values.eq(1)).logical_or_(missing).logical_not_().nonzero();
  if (bad.size(0) > 0) {
    const auto row = bad[0][0].item<std::int64_t>(), one = bad[0][1].item<std::int64_t>();
    detail::raise<IoError>("{}: {} {} has {} for class {}, expected 0 or 1, or -1 for none", where,
                           target, row, values[row][one].item<double>(), one);
  }
  TargetLabels result{.target = of};
  result.labels = values.masked_fill(missing, kNoEntry).to(at::kByte).contiguous();
  result.has_label = has_label(result.labels);
  result.num_classes = entries.size(1);
  require(result.has_label.any().item<bool>(), where, "no {} has a label", target);
  return result;
}

void set_labels(Dataset& dataset, const TargetLabels& labels) {
  dataset.labels = labels.labels;
  dataset.num_nodes = labels.labels.size(0);
  dataset.num_classes = labels.num_classes;
}

void require_one_task(const std::vector<Task>& tasks, const at::Tensor& labels,
                      const std::string& origin) {
  if (labels.defined() || tasks.size() < 2) return;
  std::vector<std::string_view> names;
  for (const Task task : tasks) names.push_back(name_of(Tasks{}, task));
  MEZZO_CHECK(false, "task: {} has labels for several tasks, choose one of {}", origin,
              fmt::join(names, ", "));
}

void require_labels(const Dataset& dataset, const LoadOptions& options) {
  if (!options.labels_optional) require_one_task(dataset.tasks, dataset.labels, dataset.origin);
  require(
      dataset.num_classes > 0 || options.labels_optional, dataset.origin,
      "has no labels, which are needed here{} (mezzo predict, bench, data info, data convert and "
      "data partition do without)",
      dataset.graph_offsets.defined() ? "" : "; --task link learns the edges without");
}

void clear_unlabelled(Dataset& dataset, const at::Tensor& has_label) {
  if (has_label.all().item<bool>()) return;
  for (at::Tensor* masks : {&dataset.train_masks, &dataset.val_masks, &dataset.test_masks}) {
    *masks = masks->logical_and(has_label.unsqueeze(1));
  }
}

std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // Inside-out shuffle: number i moves to a random position among the first i + 1.
    const auto place = random_below(static_cast<std::uint64_t>(i) + 1, seed, kSplitStream,
                                    static_cast<std::uint64_t>(i));
    order[static_cast<std::size_t>(i)] = order[place];
    order[place] = i;
  }
  return order;
}

void set_random_split(Dataset& dataset, std::uint64_t seed) {
  const std::int64_t count = dataset.num_targets();
  const std::vector<std::int64_t> order = random_order(count, seed);
  const std::int64_t num_train = count * 3 / 5;
  const std::int64_t num_val = count / 5;
  const auto mask_of = [&](std::int64_t begin, std::int64_t end) {
    at::Tensor mask = at::zeros({count, 1}, at::kBool);
    for (std::int64_t i = begin; i < end; ++i) {
      mask.mutable_data_ptr<bool>()[order[static_cast<std::size_t>(i)]] = true;
    }
    return mask;
  };
  dataset.train_masks = mask_of(0, num_train);
  dataset.val_masks = mask_of(num_train, num_train + num_val);
  dataset.test_masks = mask_of(num_train + num_val, count);
}

void refuse_named_split(const LoadOptions& options, const std::string& where) {
  MEZZO_CHECK(options.split.empty(),
              "split: '{}' is not a split of {}, which has the default split only", options.split,
              where);
}

}  // namespace mezzo::data
