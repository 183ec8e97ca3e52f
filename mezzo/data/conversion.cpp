#include "mezzo/data/conversion.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::int64_t kItemsPerSlice = 1 << 20;  // of features that are converted at a time
constexpr std::int64_t kRowsPerSort = 1 << 18;    // between two calls of should_stop
constexpr std::int64_t kSortGrain = 1 << 10;

/// Writes one data set into a folder, array by array.
class Conversion {
 public:
  Conversion(GraphSource& source, std::filesystem::path folder, std::string input,
             const ConvertOptions& options, Announcer& announcer)
      : source_(source),
        folder_(std::move(folder)),
        input_(std::move(input)),
        options_(options),
        announcer_(announcer) {}

  FolderManifest run() {
    const SourceHeader header = source_.header();
    require(header.num_nodes > 0, input_, "has no nodes");
    manifest_.name = header.name;
    manifest_.num_nodes = header.num_nodes;
    manifest_.num_features = header.num_features;
    manifest_.metric = header.metric;
    // Reads labels and splits first, so their errors appear before hours of work.
    const Columns columns = read_columns(header);
    const at::Tensor offsets = source_.graph_offsets();
    if (offsets.defined()) write("graph_offsets", offsets);
    manifest_.num_classes = columns.labels.num_classes;
    manifest_.target = columns.labels.target;
    if (columns.masks) manifest_.class_names = header.class_names;
    if (columns.masks && !columns.are_of_edges()) {
      write_labels(columns.labels.labels, *columns.masks);
    }
    write_edges(header.distinct_edges || options_.symmetrize);
    if (columns.need_order()) write_in_order(columns, order_of_edges());
    const Dataset* const dataset = source_.dataset();
    if (dataset != nullptr && dataset->features.defined() &&
        dataset->features.layout() == at::kSparseCsr) {
      write_sparse_features(dataset->features);
    } else if (manifest_.num_features > 0) {
      write_features();
    }
    write_manifest(folder_, manifest_);
    verify();
    return manifest_;
  }

 private:
  /// What is read before the edges are written.
  struct Columns {
    at::Tensor weights, types;
    std::int64_t num_edge_features = 0;
    TargetLabels labels;
    std::optional<GraphSource::Masks> masks;  // if there are labels

    bool are_of_edges() const {
      return masks && (labels.target == TaskTarget::kEdge || labels.target == TaskTarget::kLink);
    }
    /// Whether something is in the order of the edges.
    bool need_order() const { return weights.defined() || num_edge_features > 0 || are_of_edges(); }
  };

  Columns read_columns(const SourceHeader& header) {
    const Dataset* const dataset = source_.dataset();
    Columns columns{.weights = source_.edge_weights(),
                    .types = dataset == nullptr ? at::Tensor() : dataset->edge_types,
                    .num_edge_features = header.num_edge_features,
                    .labels = source_.labels(),
                    .masks = std::nullopt};
    const TargetLabels& labels = columns.labels;
    require_one_task(header.tasks, labels.labels, input_);
    if (labels.labels.defined()) {
      check_task({.target = labels.target, .labels = label_kind_of(labels.labels)}, options_.task,
                 input_);
    }
    if (labels.num_classes > 0) columns.masks = masks_for(labels.labels);
    MEZZO_CHECK(!options_.symmetrize || !columns.need_order(),
                "symmetrize: {} has edge weights, or features or labels of edges, and edges that "
                "become one may have different ones; convert it without them, or list both "
                "directions",
                input_);
    return columns;
  }

  /// order: as order_of_edges returns it.
  void write_in_order(const Columns& columns, const at::Tensor& order) {
    const auto ordered = [&](const at::Tensor& rows) {
      require(rows.size(0) == order.numel(), input_, "has changed while it was read");
      return rows.index_select(0, order);
    };
    if (columns.weights.defined()) write("edge_weights", ordered(columns.weights));
    if (columns.types.defined()) {
      manifest_.num_edge_types = source_.dataset()->num_edge_types;
      write("edge_types", ordered(columns.types));
    }
    if (columns.are_of_edges()) {
      const GraphSource::Masks& masks = *columns.masks;
      write_labels(columns.labels.target == TaskTarget::kLink ? at::Tensor()
                                                              : ordered(columns.labels.labels),
                   {ordered(masks.train), ordered(masks.val), ordered(masks.test)});
      if (columns.labels.target == TaskTarget::kLink) write_links(*source_.dataset(), order);
    }
    if (columns.num_edge_features > 0) write_edge_features(columns.num_edge_features, order);
  }

  void write_links(const Dataset& dataset, const at::Tensor& order) {
    if (dataset.message_mask.defined()) {
      write("message_mask", dataset.message_mask.index_select(0, order));
    }
    for_each_negatives(dataset.negatives, [&](const std::string& name, const at::Tensor& nodes) {
      if (!nodes.defined()) return;
      if (name.ends_with("_negatives")) return write(name, nodes);
      const at::Tensor& mask = name.starts_with("train") ? dataset.train_masks
                               : name.starts_with("val") ? dataset.val_masks
                                                         : dataset.test_masks;
      write(name, nodes.index_select(0, rows_in_order(mask.select(1, 0), order)));
    });
  }

  /// Of the rows of the edges in a mask: which comes first, second, ... in a new order of the
  /// edges.
  static at::Tensor rows_in_order(const at::Tensor& mask, const at::Tensor& order) {
    const at::Tensor edges = order.masked_select(mask.index_select(0, order));
    return (mask.cumsum(0) - 1).index_select(0, edges);
  }

  void report(std::string_view stage, std::int64_t done, std::int64_t total) const {
    announcer_.report(stage, done, total);
  }

  void write(const std::string& name, const at::Tensor& items) {
    NpyWriter writer(folder_, name + ".npy", items.scalar_type(), items.sizes().vec());
    writer.append(items.contiguous());
    manifest_.arrays[name] = writer.finish();
  }

  void write_edges(bool distinct) {
    const at::Tensor indptr = count_edges();
    const std::int64_t most = std::max(manifest_.num_nodes, manifest_.num_edges);
    if (most <= std::numeric_limits<std::int32_t>::max()) {
      write_rows<std::int32_t>(indptr, distinct);
    } else {
      write_rows<std::int64_t>(indptr, distinct);
    }
    write("indptr", indptr);
  }

  /// int64 [E], the edges in the order of the rows; holds them in memory.
  at::Tensor order_of_edges() {
    std::vector<at::Tensor> sources, destinations;
    source_.edges([&](const at::Tensor& src, const at::Tensor& dst) {
      sources.push_back(src);
      destinations.push_back(dst);
    });
    const auto sorted = [](const at::Tensor& ids) {
      return at::argsort(ids, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    };
    at::Tensor order = at::empty({0}, at::kLong);
    if (!sources.empty()) {
      order = sorted(at::cat(sources));
      order = order.index_select(0, sorted(at::cat(destinations).index_select(0, order)));
    }
    require(order.numel() == manifest_.num_edges, input_, "has changed while it was read");
    return order;
  }

  /// order: as order_of_edges returns it.
  void write_edge_features(std::int64_t width, const at::Tensor& order) {
    const std::int64_t edges = manifest_.num_edges;
    const at::Tensor places =
        at::empty_like(order).scatter_(0, order, at::arange(edges, at::kLong));
    const auto* place = places.const_data_ptr<std::int64_t>();
    NpyPlaces file(folder_, "edge_features.npy", at::kFloat, edges, width);
    std::int64_t done = 0;
    source_.edge_features([&](const at::Tensor& chunk) {
      require(chunk.size(1) == width && chunk.size(0) <= edges - done, input_,
              "edge features: more rows than {} edges, or not {} columns", edges, width);
      const at::Tensor rows = chunk.to(at::kFloat).contiguous();
      const auto* row = rows.const_data_ptr<float>();
      for (std::int64_t i = 0; i < rows.size(0); ++i, row += width) {
        std::copy_n(row, width, file.items<float>() + width * place[done++]);
      }
      report("features", done, edges);
    });
    require(done == edges, input_, "edge features: {} rows for {} edges", done, edges);
    manifest_.arrays["edge_features"] = file.finish(edges);
  }

  /// Passes the checked ids of every chunk to `take`.
  template <class Take>
  void scan_edges(const Take& take) {
    source_.edges([&](const at::Tensor& src, const at::Tensor& dst) {
      const at::Tensor sources = src.contiguous(), destinations = dst.contiguous();
      const auto* from = sources.const_data_ptr<std::int64_t>();
      const auto* to = destinations.const_data_ptr<std::int64_t>();
      const std::int64_t nodes = manifest_.num_nodes;
      for (std::int64_t i = 0; i < sources.numel(); ++i) {
        require(from[i] >= 0 && from[i] < nodes && to[i] >= 0 && to[i] < nodes, input_,
                "an edge from node {} to node {}, outside [0, {})", from[i], to[i], nodes);
      }
      take(from, to, sources.numel());
      if (options_.symmetrize) take(to, from, sources.numel());
    });
  }

  /// int64 [N + 1], the start of each destination's row.
  at::Tensor count_edges() {
    const at::Tensor indptr = at::zeros({manifest_.num_nodes + 1}, at::kLong);
    auto* start = indptr.mutable_data_ptr<std::int64_t>();
    std::int64_t edges = 0;
    scan_edges([&](const std::int64_t* /*from*/, const std::int64_t* to, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) ++start[to[i] + 1];
      edges += count;
      report("counting edges", edges, 0);
    });
    for (std::int64_t node = 0; node < manifest_.num_nodes; ++node) start[node + 1] += start[node];
    manifest_.num_edges = edges;
    return indptr;
  }

  /// distinct: merge parallel edges and change indptr accordingly.
  template <class Id>
  void write_rows(const at::Tensor& indptr, bool distinct) {
    NpyPlaces places(folder_, "indices.npy", c10::CppTypeToScalarType<Id>::value,
                     manifest_.num_edges);
    place_sources(indptr, places.items<Id>());
    sort_rows(indptr.const_data_ptr<std::int64_t>(), places.items<Id>());
    if (distinct) merge_edges(indptr.mutable_data_ptr<std::int64_t>(), places.items<Id>());
    manifest_.arrays["indices"] = places.finish(manifest_.num_edges);
  }

  template <class Id>
  void place_sources(const at::Tensor& indptr, Id* indices) {
    const auto* start = indptr.const_data_ptr<std::int64_t>();
    const at::Tensor nexts = indptr.clone();
    auto* next = nexts.mutable_data_ptr<std::int64_t>();
    std::int64_t placed = 0;
    scan_edges([&](const std::int64_t* from, const std::int64_t* to, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        require(next[to[i]] < start[to[i] + 1], input_, "has changed while it was read");
        indices[next[to[i]]++] = static_cast<Id>(from[i]);
      }
      placed += count;
      report("placing edges", placed, manifest_.num_edges);
    });
    require(placed == manifest_.num_edges, input_, "has changed while it was read");
  }

  template <class Id>
  void sort_rows(const std::int64_t* start, Id* indices) const {
    const std::int64_t nodes = manifest_.num_nodes;
    for (std::int64_t first = 0; first < nodes; first += kRowsPerSort) {
      const std::int64_t last = std::min(first + kRowsPerSort, nodes);
      at::parallel_for(first, last, kSortGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          std::sort(indices + start[row], indices + start[row + 1]);
        }
      });
      report("sorting rows", last, nodes);
    }
  }

  /// Removes duplicates from sorted rows, compacts the rows and updates their starts.
  template <class Id>
  void merge_edges(std::int64_t* start, Id* indices) {
    const std::int64_t nodes = manifest_.num_nodes;
    std::int64_t num_edges = 0, begin = 0;
    for (std::int64_t node = 0; node < nodes; ++node) {
      const std::int64_t end = start[node + 1];
      for (std::int64_t i = begin; i < end; ++i) {
        if (i == begin || indices[i] != indices[num_edges - 1]) indices[num_edges++] = indices[i];
      }
      start[node + 1] = num_edges;
      begin = end;
      if ((node + 1) % kRowsPerSort == 0) report("merging edges", node + 1, nodes);
    }
    manifest_.num_edges = num_edges;
    report("merging edges", nodes, nodes);
  }

  void write_features() {
    const std::int64_t nodes = manifest_.num_nodes, width = manifest_.num_features;
    NpyWriter writer(folder_, "features.npy", options_.feature_dtype, {nodes, width});
    const std::int64_t slice = std::max<std::int64_t>(kItemsPerSlice / width, 1);
    std::int64_t done = 0;
    source_.features([&](const at::Tensor& rows) {
      require(rows.dim() == 2 && rows.size(1) == width && done + rows.size(0) <= nodes, input_,
              "features: rows {} of shape {} for {} nodes with {} features", done, shape_text(rows),
              nodes, width);
      for (std::int64_t begin = 0; begin < rows.size(0); begin += slice) {
        const std::int64_t count = std::min(slice, rows.size(0) - begin);
        at::Tensor part = rows.narrow(0, begin, count).to(at::kFloat);
        if (options_.normalize_features) part = normalize_rows(part);
        writer.append(rounded_rows(part, options_.feature_dtype, done, input_));
        done += count;
      }
      report("features", done, nodes);
    });
    require(done == nodes, input_, "features: {} rows for {} nodes", done, nodes);
    manifest_.arrays["features"] = writer.finish();
  }

  void write_sparse_features(const at::Tensor& matrix) {
    const at::Tensor features = options_.normalize_features ? normalize_rows(matrix) : matrix;
    write("feature_indptr", features.crow_indices());
    write("feature_indices", features.col_indices());
    write("feature_values", rounded_values(features, options_.feature_dtype, input_));
    report("features", manifest_.num_nodes, manifest_.num_nodes);
  }

  /// Those of the source, or a random split.
  GraphSource::Masks masks_for(const at::Tensor& labels) {
    if (std::optional<GraphSource::Masks> masks = source_.masks()) return *masks;
    Dataset split;
    split.num_nodes = labels.size(0);
    set_random_split(split, options_.split_seed);
    return {split.train_masks, split.val_masks, split.test_masks};
  }

  /// labels: undefined for links.
  void write_labels(const at::Tensor& labels, const GraphSource::Masks& masks) {
    if (labels.defined()) write("labels", labels);
    write("train_masks", masks.train);
    write("val_masks", masks.val);
    write("test_masks", masks.test);
  }

  /// Checks that the result can be loaded.
  void verify() const {
    report("checking", 0, manifest_.num_nodes);
    try {
      read_mapped_dataset(folder_, {}).validate();
    } catch (const InvalidArgument& fault) {
      throw IoError(input_ + ": " + fault.what());
    }
    report("checking", manifest_.num_nodes, manifest_.num_nodes);
  }

  GraphSource& source_;
  std::filesystem::path folder_;
  std::string input_;
  const ConvertOptions& options_;
  Announcer& announcer_;
  FolderManifest manifest_;
};

}  // namespace

FolderManifest write_mapped_dataset(GraphSource& source, const std::filesystem::path& folder,
                                    const std::string& input, const ConvertOptions& options,
                                    Announcer& announcer) {
  return Conversion(source, folder, input, options, announcer).run();
}

}  // namespace mezzo::data
