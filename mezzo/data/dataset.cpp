#include "mezzo/data/dataset.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

constexpr std::int64_t kItemsPerCheck = 1 << 16;

/// The first index in [0, count) with bad(index), or count. Every thread checks a part.
template <class Bad>
std::int64_t first_bad(std::int64_t count, const Bad& bad) {
  std::atomic<std::int64_t> first = count;
  at::parallel_for(0, count, kItemsPerCheck, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    while (i < end && !bad(i)) ++i;
    std::int64_t least = first.load();
    while (i < end && i < least && !first.compare_exchange_weak(least, i)) {
    }
  });
  return first.load();
}

/// The checks of one data set; messages begin with its name.
class Validator {
 public:
  explicit Validator(const Dataset& dataset) : data_(dataset) {}

  void run() const {
    check(data_.num_nodes > 0, "it has no nodes");
    if (data_.indptr.defined() || data_.indices.defined()) {
      check_rows();
    } else {
      check_edges();
    }
    check_edge_weights();
    check_edge_features();
    check_edge_types();
    check_graphs();
    if (data_.labels.defined()) {
      check_labels();
      check_masks();
    } else {
      check_unlabelled();
    }
    check_features();
    if (data_.part) check_part(*data_.part);
  }

 private:
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) [[unlikely]] {
      throw InvalidArgument("data set '" + data_.name +
                            "': " + fmt::format(text, std::forward<Args>(args)...));
    }
  }

  void check_column(const at::Tensor& column, at::ScalarType dtype, std::int64_t dimensions,
                    const char* what) const {
    check(column.defined(), "{} is undefined", what);
    check(column.is_cpu() && column.layout() == at::kStrided && column.scalar_type() == dtype &&
              column.dim() == dimensions,
          "{}: expected {} of {} dimensions on the CPU, got {} {}", what,
          c10::getDtypeNames(dtype).first, dimensions,
          c10::getDtypeNames(column.scalar_type()).first, data::shape_text(column));
  }

  void check_range(const at::Tensor& column, std::int64_t bound, const char* what) const {
    const at::Tensor values = column.contiguous();
    const auto* value = values.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      check(value[i] >= 0 && value[i] < bound, "{}: item {} is {}, outside [0, {})", what, i,
            value[i], bound);
    }
  }

  void check_edges() const {
    check_column(data_.src, at::kLong, 1, "src");
    check_column(data_.dst, at::kLong, 1, "dst");
    check(data_.src.numel() == data_.dst.numel(), "{} sources for {} destinations",
          data_.src.numel(), data_.dst.numel());
    check_range(data_.src, data_.num_nodes, "src");
    check_range(data_.dst, data_.num_nodes, "dst");
  }

  void check_edge_weights() const {
    const at::Tensor& weights = data_.edge_weights;
    if (!weights.defined()) return;
    check_column(weights, at::kFloat, 1, "edge_weights");
    check(weights.numel() == data_.num_edges(), "edge_weights: {} numbers for {} edges",
          weights.numel(), data_.num_edges());
    const at::Tensor values = weights.contiguous();
    const auto* value = values.const_data_ptr<float>();
    const std::int64_t bad =
        first_bad(values.numel(), [&](std::int64_t i) { return !std::isfinite(value[i]); });
    check(bad == values.numel(), "edge_weights: number {} is not finite", bad);
  }

  void check_edge_features() const {
    const at::Tensor& features = data_.edge_features;
    if (!features.defined()) return;
    check_column(features, at::kFloat, 2, "edge features");
    check(features.size(0) == data_.num_edges() && features.size(1) > 0,
          "edge features: expected shape [{}, F], got {}", data_.num_edges(),
          data::shape_text(features));
    check_finite<float>(features.contiguous(), "edge features");
  }

  void check_edge_types() const {
    const at::Tensor& types = data_.edge_types;
    check(data_.num_edge_types >= 1 && (types.defined() || data_.num_edge_types == 1),
          "edge types: {} without the type of each edge", data_.num_edge_types);
    if (!types.defined()) return;
    check_column(types, at::kLong, 1, "edge types");
    check(types.numel() == data_.num_edges(), "edge types: {} for {} edges", types.numel(),
          data_.num_edges());
    check_range(types, data_.num_edge_types, "edge types");
  }

  void check_graphs() const {
    const at::Tensor& offsets = data_.graph_offsets;
    check(offsets.defined() || data_.target != TaskTarget::kGraph,
          "graph_offsets is undefined, but the labels belong to graphs");
    if (!offsets.defined()) return;
    check_column(offsets, at::kLong, 1, "graph_offsets");
    const std::int64_t graphs = offsets.numel() - 1;
    check(graphs > 0, "it has no graphs");
    const at::Tensor starts = offsets.contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    check(start[0] == 0 && start[graphs] == data_.num_nodes,
          "graph_offsets: they run from {} to {}, expected 0 to {}", start[0], start[graphs],
          data_.num_nodes);
    const std::int64_t bad =
        first_bad(graphs, [&](std::int64_t i) { return start[i] > start[i + 1]; });
    check(bad == graphs, "graph_offsets: they decrease after graph {}", bad);
    if (data_.indptr.defined()) {
      data_.indices.scalar_type() == at::kInt ? check_rows_of_graphs<std::int32_t>(start)
                                              : check_rows_of_graphs<std::int64_t>(start);
      return;
    }
    const at::Tensor sources = data_.src.contiguous(), targets = data_.dst.contiguous();
    const auto *src = sources.const_data_ptr<std::int64_t>(),
               *dst = targets.const_data_ptr<std::int64_t>();
    const std::int64_t across = first_bad(data_.num_edges(), [&](std::int64_t i) {
      const std::int64_t* const end = std::upper_bound(start, start + graphs + 1, src[i]);
      return dst[i] >= *end || dst[i] < *(end - 1);
    });
    check(across == data_.num_edges(), "edge {} joins two graphs", across);
  }

  /// start: graph_offsets.
  template <class Id>
  void check_rows_of_graphs(const std::int64_t* start) const {
    const at::Tensor rows = data_.indptr.contiguous(), values = data_.indices.contiguous();
    const auto* row = rows.const_data_ptr<std::int64_t>();
    const auto* source = values.const_data_ptr<Id>();
    const std::int64_t bad = first_bad(data_.num_graphs(), [&](std::int64_t i) {
      return !std::all_of(source + row[start[i]], source + row[start[i + 1]],
                          [&](Id node) { return node >= start[i] && node < start[i + 1]; });
    });
    check(bad == data_.num_graphs(), "an edge joins graph {} and another", bad);
  }

  void check_rows() const {
    check(!data_.src.defined() && !data_.dst.defined(),
          "both indptr and indices, and src or dst; expected the edges once");
    check_column(data_.indptr, at::kLong, 1, "indptr");
    const bool is_int32 = data_.indices.defined() && data_.indices.scalar_type() == at::kInt;
    check_column(data_.indices, is_int32 ? at::kInt : at::kLong, 1, "indices");
    const std::int64_t nodes = data_.num_nodes, edges = data_.indices.numel();
    check(data_.indptr.numel() == nodes + 1, "indptr: {} row starts for {} nodes",
          data_.indptr.numel(), nodes);
    const at::Tensor starts = data_.indptr.contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    check(start[0] == 0 && start[nodes] == edges, "indptr: it runs from {} to {}, expected 0 to {}",
          start[0], start[nodes], edges);
    const std::int64_t row =
        first_bad(nodes, [&](std::int64_t i) { return start[i] > start[i + 1]; });
    check(row == nodes, "indptr: it decreases after row {}", row);
    if (is_int32) {
      check_sources<std::int32_t>();
    } else {
      check_sources<std::int64_t>();
    }
  }

  template <class Id>
  void check_sources() const {
    const at::Tensor values = data_.indices.contiguous();
    const auto* source = values.const_data_ptr<Id>();
    const std::int64_t nodes = data_.num_nodes, edges = values.numel();
    const std::int64_t entry =
        first_bad(edges, [&](std::int64_t i) { return source[i] < 0 || source[i] >= nodes; });
    check(entry == edges, "indices: item {} is {}, outside [0, {})", entry,
          entry == edges ? Id{} : source[entry], nodes);
  }

  void check_part(const DatasetPart& part) const {
    const std::int64_t nodes = data_.num_nodes;
    check(part.index >= 0 && part.index < part.num_parts && part.hops >= 1,
          "part {} of {} with a halo of {} hops", part.index, part.num_parts, part.hops);
    check(data_.indptr.defined(), "a part has its edges as rows");
    for (const auto& [column, dtype, what] :
         {std::tuple{part.node_ids, at::kLong, "node_ids"},
          std::tuple{part.own_mask, at::kBool, "own_mask"},
          std::tuple{part.in_degrees, at::kLong, "in_degrees"},
          std::tuple{part.out_degrees, at::kLong, "out_degrees"}}) {
      check_column(column, dtype, 1, what);
      check(column.numel() == nodes, "{}: {} rows for {} nodes", what, column.numel(), nodes);
    }
    check_range(part.node_ids, part.num_nodes, "node_ids");
    check(nodes < 2 || part.node_ids.diff().gt(0).all().item<bool>(), "node_ids do not ascend");
    const at::Tensor in_part = data_.indptr.diff();
    check(
        in_part.le(part.in_degrees).all().item<bool>() &&
            in_part.eq(part.in_degrees).logical_or(part.own_mask.logical_not()).all().item<bool>(),
        "in_degrees: they do not fit the rows");
    check_range(part.out_degrees, part.num_edges + 1, "out_degrees");
    if (!data_.labels.defined()) return;
    const at::Tensor foreign = part.own_mask.logical_not().unsqueeze(1);
    for (const at::Tensor& mask : {data_.train_masks, data_.val_masks, data_.test_masks}) {
      check(!mask.logical_and(foreign).any().item<bool>(), "masks: a node of the halo is in one");
    }
  }

  void check_unlabelled() const {
    check(data_.num_classes == 0 && data_.class_names.empty(),
          "labels is undefined, but it has {} classes", data_.num_classes);
    check(!data_.train_masks.defined() && !data_.val_masks.defined() && !data_.test_masks.defined(),
          "labels is undefined, but it has masks");
  }

  void check_labels() const {
    check(data_.num_classes > 0, "it has no classes");
    check(fits(data_.metric, data_.task(), data_.num_classes),
          "the metric {} does not fit the task {} of {} classes", metric_name(data_.metric),
          name_of(Tasks{}, data_.task()), data_.num_classes);
    switch (data_.task().labels) {
      case LabelKind::kClass:
        check_one_label_a_target();
        break;
      case LabelKind::kClasses:
        check_entries();
        break;
      case LabelKind::kNumbers:
        check_numbers();
    }
    const auto num_names = static_cast<std::int64_t>(data_.class_names.size());
    check(num_names == 0 || num_names == data_.num_classes, "{} class names for {} classes",
          num_names, data_.num_classes);
  }

  std::string_view target() const { return name_of(TaskTargets{}, data_.target); }

  void check_one_label_a_target() const {
    check_column(data_.labels, at::kLong, 1, "labels");
    check(data_.labels.numel() == data_.num_targets(), "{} labels for {} {}s", data_.labels.numel(),
          data_.num_targets(), target());
    check_label_range();
  }

  /// Of labels with a column a class or number.
  void check_label_columns(at::ScalarType dtype) const {
    check_column(data_.labels, dtype, 2, "labels");
    check(data_.labels.size(0) == data_.num_targets() && data_.labels.size(1) == data_.num_classes,
          "labels: expected shape [{}, {}], got {}", data_.num_targets(), data_.num_classes,
          data::shape_text(data_.labels));
  }

  void check_numbers() const {
    check_label_columns(at::kFloat);
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<float>();
    const std::int64_t bad =
        first_bad(values.numel(), [&](std::int64_t i) { return std::isinf(value[i]); });
    check(bad == values.numel(), "labels: {} {} has inf, expected numbers, or nan if unknown",
          target(), bad / data_.num_classes);
  }

  void check_entries() const {
    check_label_columns(at::kByte);
    const std::int64_t classes = data_.num_classes;
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<std::uint8_t>();
    const std::int64_t bad = first_bad(
        values.numel(), [&](std::int64_t i) { return value[i] > 1 && value[i] != kNoEntry; });
    check(bad == values.numel(),
          "labels: {} {} has {} for class {}, expected 0, 1, or {} if unknown", target(),
          bad / classes, bad == values.numel() ? 0 : int{value[bad]}, bad % classes, kNoEntry);
  }

  void check_label_range() const {
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      check(value[i] >= kNoLabel && value[i] < data_.num_classes,
            "labels: item {} is {}, expected one in [0, {}), or {} for none", i, value[i],
            data_.num_classes, kNoLabel);
    }
  }

  void check_features() const {
    const at::Tensor& features = data_.features;
    if (!features.defined()) return;
    const bool sparse = features.layout() == at::kSparseCsr;
    const at::ScalarType dtype = features.scalar_type();
    const bool dense = features.layout() == at::kStrided &&
                       (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
    check(features.is_cpu() && (dense || (sparse && dtype == at::kFloat)) && features.dim() == 2 &&
              features.size(0) == data_.num_nodes,
          "features: expected float32 [{}, F], strided (also bfloat16 or float16) or sparse CSR, "
          "on the CPU, got {} {}",
          data_.num_nodes, c10::getDtypeNames(dtype).first, data::shape_text(features));
    check(dense || !data_.is_mapped, "features: sparse ones are not mapped");
    if (data_.is_mapped) return;
    if (sparse) check_sparse(features);
    const at::Tensor values = (sparse ? features.values() : features).contiguous();
    if (dtype == at::kFloat) check_finite<float>(values, "features");
    if (dtype == at::kBFloat16) check_finite<at::BFloat16>(values, "features");
    if (dtype == at::kHalf) check_finite<at::Half>(values, "features");
  }

  template <class T>
  void check_finite(const at::Tensor& values, const char* what) const {
    const auto* value = values.const_data_ptr<T>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      check(std::isfinite(static_cast<float>(value[i])),
            "{}: stored value {} is {}, expected finite ones", what, i,
            static_cast<float>(value[i]));
    }
  }

  void check_sparse(const at::Tensor& features) const {
    check_column(features.crow_indices(), at::kLong, 1, "features: row starts");
    check_column(features.col_indices(), at::kLong, 1, "features: columns");
    const at::Tensor starts = features.crow_indices().contiguous();
    const at::Tensor columns = features.col_indices().contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    const auto* column = columns.const_data_ptr<std::int64_t>();
    const std::int64_t rows = data_.num_nodes;
    check(starts.numel() == rows + 1 && start[0] == 0 && start[rows] == columns.numel() &&
              features.values().numel() == columns.numel(),
          "features: row starts do not fit {} rows and {} stored values", rows, columns.numel());
    for (std::int64_t row = 0; row < rows; ++row) {
      check(start[row] <= start[row + 1] && start[row + 1] <= columns.numel(),
            "features: row starts decrease after row {}", row);
      for (std::int64_t k = start[row]; k < start[row + 1]; ++k) {
        check(column[k] < features.size(1) && column[k] >= 0 &&
                  (k == start[row] || column[k] > column[k - 1]),
              "features: the columns of row {} do not ascend in [0, {})", row, features.size(1));
      }
    }
  }

  void check_masks() const {
    check_column(data_.train_masks, at::kBool, 2, "train masks");
    check_column(data_.val_masks, at::kBool, 2, "val masks");
    check_column(data_.test_masks, at::kBool, 2, "test masks");
    const std::int64_t splits = data_.train_masks.size(1);
    check(splits > 0, "it has no split");
    for (const at::Tensor& mask : {data_.train_masks, data_.val_masks, data_.test_masks}) {
      check(mask.size(0) == data_.num_targets() && mask.size(1) == splits,
            "masks: expected shape [{}, {}], got {}", data_.num_targets(), splits,
            data::shape_text(mask));
    }
    const at::Tensor times = data_.train_masks.to(at::kByte)
                                 .add_(data_.val_masks.to(at::kByte))
                                 .add_(data_.test_masks.to(at::kByte));
    const at::Tensor twice = times.gt(1).nonzero();
    check(twice.size(0) == 0, "masks: {} {} is in two masks of split {}", target(),
          twice.size(0) == 0 ? 0 : twice[0][0].item<std::int64_t>(),
          twice.size(0) == 0 ? 0 : twice[0][1].item<std::int64_t>());
    const at::Tensor unlabelled = data_.has_label().logical_not().unsqueeze(1);
    const at::Tensor used = unlabelled.logical_and(times.gt(0)).nonzero();
    check(used.size(0) == 0, "masks: {} {} has no label, but is in a mask of split {}", target(),
          used.size(0) == 0 ? 0 : used[0][0].item<std::int64_t>(),
          used.size(0) == 0 ? 0 : used[0][1].item<std::int64_t>());
  }

  const Dataset& data_;
};

/// Divides values[begin..end) by the sum of their magnitudes.
void normalize_range(float* values, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t k = begin; k < end; ++k) sum += std::abs(static_cast<double>(values[k]));
  if (sum == 0) return;
  for (std::int64_t k = begin; k < end; ++k) {
    values[k] = static_cast<float>(static_cast<double>(values[k]) / sum);
  }
}

}  // namespace

std::int64_t Dataset::num_edges() const {
  if (indices.defined()) return indices.numel();
  return src.defined() ? src.numel() : 0;
}

std::int64_t Dataset::num_features() const {
  return features.defined() ? features.size(1) : 0;
}

std::int64_t Dataset::num_edge_features() const {
  return edge_features.defined() ? edge_features.size(1) : 0;
}

std::int64_t Dataset::num_graphs() const {
  return graph_offsets.defined() ? graph_offsets.numel() - 1 : 1;
}

std::int64_t Dataset::count(TaskTarget of) const {
  switch (of) {
    case TaskTarget::kEdge:
    case TaskTarget::kLink:
      return num_edges();
    case TaskTarget::kGraph:
      return num_graphs();
    case TaskTarget::kNode:
      break;
  }
  return num_nodes;
}

std::int64_t Dataset::num_splits() const {
  return train_masks.defined() ? train_masks.size(1) : 0;
}

Task Dataset::task() const {
  return {.target = target, .labels = data::label_kind_of(labels)};
}

at::Tensor Dataset::has_label() const {
  return data::has_label(labels);
}

SplitMasks Dataset::split(std::int64_t index) const {
  MEZZO_CHECK(index >= 0 && index < num_splits(),
              "split: index {} is outside [0, {}) of data set {}", index, num_splits(), name);
  return {train_masks.select(1, index).contiguous(), val_masks.select(1, index).contiguous(),
          test_masks.select(1, index).contiguous()};
}

void Dataset::validate() const {
  Validator(*this).run();
}

at::Tensor normalize_rows(const at::Tensor& features) {
  MEZZO_CHECK(features.defined() && features.dim() == 2 && features.is_cpu() &&
                  features.scalar_type() == at::kFloat &&
                  (features.layout() == at::kStrided || features.layout() == at::kSparseCsr),
              "normalize_rows: expected float32 [N, F] on the CPU, strided or sparse CSR, got {}",
              features.defined() ? data::shape_text(features) : "an undefined tensor");
  if (features.layout() == at::kStrided) {
    at::Tensor out = features.clone(at::MemoryFormat::Contiguous);
    auto* values = out.mutable_data_ptr<float>();
    const std::int64_t width = out.size(1);
    for (std::int64_t row = 0; row < out.size(0); ++row) {
      normalize_range(values, row * width, (row + 1) * width);
    }
    return out;
  }
  const at::Tensor starts = features.crow_indices().to(at::kLong).contiguous();
  const at::Tensor values = features.values().clone();
  const auto* start = starts.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < features.size(0); ++row) {
    normalize_range(values.mutable_data_ptr<float>(), start[row], start[row + 1]);
  }
  return at::_sparse_csr_tensor_unsafe(features.crow_indices(), features.col_indices(), values,
                                       features.sizes(), features.options());
}

}  // namespace mezzo
