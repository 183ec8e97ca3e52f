#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/task.h"
#include "mezzo/core/type_list.h"

namespace mezzo {

/// The metric for predictions on a data set.
enum class Metric : std::uint8_t {
  kAccuracy,
  kRocAuc,   ///< of two classes; of multi-label data the mean over the classes, see mean_roc_auc()
  kMicroF1,  ///< of multi-label data
  kMacroF1,  ///< the mean of the F1 scores of the classes
  kAveragePrecision,  ///< of the same labels as kRocAuc
  /// Of links: the mean of 1 / rank among NegativePairs::src and dst, or else among all nodes
  /// without the other known links.
  kMrr,
  /// Of links: the share of such ranks up to 10. If the data fix NegativePairs::pairs alone, the
  /// share of links that score above the 10th best pair.
  kHitsAt10,
  kRawMrr,  ///< kMrr and kHitsAt10 among all nodes, with the known links
  kRawHitsAt10,
  kR2,  ///< of numbers, as kMae and kRmse
  kMae,
  kRmse,
};

struct AccuracyMetric {
  static constexpr Metric kind = Metric::kAccuracy;
  static constexpr std::string_view name = "accuracy";
};
struct RocAucMetric {
  static constexpr Metric kind = Metric::kRocAuc;
  static constexpr std::string_view name = "roc_auc";
};
struct MicroF1Metric {
  static constexpr Metric kind = Metric::kMicroF1;
  static constexpr std::string_view name = "micro_f1";
};
struct MacroF1Metric {
  static constexpr Metric kind = Metric::kMacroF1;
  static constexpr std::string_view name = "macro_f1";
};
struct AveragePrecisionMetric {
  static constexpr Metric kind = Metric::kAveragePrecision;
  static constexpr std::string_view name = "average_precision";
};
struct MrrMetric {
  static constexpr Metric kind = Metric::kMrr;
  static constexpr std::string_view name = "mrr";
};
struct HitsAt10Metric {
  static constexpr Metric kind = Metric::kHitsAt10;
  static constexpr std::string_view name = "hits@10";
};
struct RawMrrMetric {
  static constexpr Metric kind = Metric::kRawMrr;
  static constexpr std::string_view name = "raw_mrr";
};
struct RawHitsAt10Metric {
  static constexpr Metric kind = Metric::kRawHitsAt10;
  static constexpr std::string_view name = "raw_hits@10";
};
struct R2Metric {
  static constexpr Metric kind = Metric::kR2;
  static constexpr std::string_view name = "r2";
};
struct MaeMetric {
  static constexpr Metric kind = Metric::kMae;
  static constexpr std::string_view name = "mae";
};
struct RmseMetric {
  static constexpr Metric kind = Metric::kRmse;
  static constexpr std::string_view name = "rmse";
};
using Metrics = TypeList<AccuracyMetric, RocAucMetric, AveragePrecisionMetric, MicroF1Metric,
                         MacroF1Metric, MrrMetric, HitsAt10Metric, RawMrrMetric, RawHitsAt10Metric,
                         R2Metric, MaeMetric, RmseMetric>;

/// The name in Metrics.
inline std::string metric_name(Metric metric) {
  return std::string(name_of(Metrics{}, metric));
}

/// Whether a smaller value of the metric is better.
constexpr bool is_error(Metric metric) {
  return metric == Metric::kMae || metric == Metric::kRmse;
}
/// Whether score `a` is better than `b`; false if one is NaN.
constexpr bool is_better(Metric metric, double a, double b) {
  return is_error(metric) ? a < b : a > b;
}
/// Whether the metric is for labels that are numbers.
constexpr bool is_of_numbers(Metric metric) {
  return metric == Metric::kR2 || is_error(metric);
}

/// Whether the metric ranks links.
constexpr bool is_of_ranks(Metric metric) {
  return metric == Metric::kMrr || metric == Metric::kHitsAt10 || metric == Metric::kRawMrr ||
         metric == Metric::kRawHitsAt10;
}
/// Whether the metric is for labels of that task.
constexpr bool fits(Metric metric, Task task, std::int64_t num_classes) {
  if (is_of_numbers(metric)) return task.labels == LabelKind::kNumbers;
  if (is_of_ranks(metric)) return task.target == TaskTarget::kLink;
  if (metric == Metric::kAccuracy) return task.labels == LabelKind::kClass;
  const bool several = task.labels == LabelKind::kMultiLabel;
  if (metric == Metric::kMicroF1) return several;
  if (metric == Metric::kMacroF1) return several || task.labels == LabelKind::kClass;
  return several || (task.labels == LabelKind::kClass && num_classes == 2);
}

/// The label of an unlabelled target.
inline constexpr std::int64_t kNoLabel = -1;

/// In multi-label data: it is unknown whether the target belongs to the class.
inline constexpr std::uint8_t kNoEntry = 255;

/// The masks of one split: bool [T] each, one row a target, disjoint; some may be in no mask.
struct SplitMasks {
  at::Tensor train, val, test;
};

/// Pairs of nodes that are no links, which the data fix for the links of one mask. Node ids are
/// int64 in [0, N).
struct NegativePairs {
  /// [2, M]: sources and destinations, compared with every link of the mask; pair j has the type of
  /// its link j L / M; undefined: none.
  at::Tensor pairs = {};
  /// [L, K], K > 0, of the L links in the mask, in the order of the edges: the nodes in the place
  /// of the source, and in that of the destination, of each link; undefined: none.
  at::Tensor src = {}, dst = {};
};

/// The negative pairs that a data set fixes for its links; they have one split then.
struct LinkNegatives {
  NegativePairs train = {}, val = {}, test = {};
};

/// How a part relates to the whole data set; see write_parts. All tensors are on the CPU; ids and
/// degrees are memory-mapped.
struct DatasetPart {
  std::int64_t index = 0;  ///< in [0, num_parts)
  std::int64_t num_parts = 1;
  /// In-neighbourhoods of own nodes are complete up to this many hops, >= 1. A model with more
  /// layers gives wrong results on the part.
  std::int64_t hops = 1;
  std::int64_t num_nodes = 0, num_edges = 0;  ///< of the whole
  at::Tensor node_ids;                        ///< int64 [N], ids in the whole, ascending
  at::Tensor own_mask;                 ///< bool [N], the part's own nodes; the others are its halo
  at::Tensor in_degrees, out_degrees;  ///< int64 [N], in the whole
};

/// A graph, or a set of graphs, whose nodes, edges or graphs (the targets) have labels to be
/// learnt, read from files; plain values on the CPU. Node i is row i of every column of nodes. The
/// edges are either src and dst, or CSR rows by destination.
struct MEZZO_API Dataset {
  std::string name;
  std::string origin;            ///< the file or folder it was read from, for reports
  std::int64_t num_nodes = 0;    ///< N
  std::int64_t num_classes = 0;  ///< C; of numbers: how many a target has
  /// int64 [G + 1], ascending from 0 to N: the nodes of graph i are [graph_offsets[i],
  /// graph_offsets[i + 1]), and no edge joins two graphs; undefined unless the data are a set of
  /// graphs.
  at::Tensor graph_offsets = {};
  at::Tensor src, dst;  ///< int64 [E]; an undirected edge is stored in both directions
  /// Replace src and dst, which are then undefined: int64 [N + 1], and int32 or int64 [E]. The
  /// sources of node v's in-edges are indices[indptr[v]] to indices[indptr[v + 1] - 1]; edge i is
  /// entry i. They may be memory-mapped and are then read-only: a write ends the process.
  at::Tensor indptr, indices;
  /// float32 [E], finite: of each edge, in the order of the edges; undefined: they have none. May
  /// be memory-mapped.
  at::Tensor edge_weights;
  /// float32 [E, F_e], finite, in the order of the edges; undefined: they have none.
  at::Tensor edge_features = {};
  /// int64 [E] in [0, num_edge_types), in the order of the edges; undefined: all are of one type.
  /// Read by decoders of links.
  at::Tensor edge_types = {};
  std::int64_t num_edge_types = 1;
  /// Of links: bool [E], the edges that carry messages, none of them held out; undefined: all but
  /// those held out for validation and testing and others between the same two nodes.
  at::Tensor message_mask = {};
  LinkNegatives negatives = {};  ///< of links, if the data fix some
  /// [N, F] of float32, bfloat16 or float16, strided, or sparse CSR of float32; undefined if there
  /// are no features.
  at::Tensor features;
  /// Whether `features` is a read-only view of a file, which may be larger than memory. Its values
  /// were checked when the file was written; loading does not read them.
  bool is_mapped = false;
  /// The dtype of the features in the file; nullopt if it is the dtype of `features`, or unknown.
  std::optional<at::ScalarType> stored_dtype = {};
  TaskTarget target = TaskTarget::kNode;  ///< what the labels belong to
  /// What LoadOptions::task may be: a task for each kind of labels in the files. The task link fits
  /// any graph besides. Set by load_dataset.
  std::vector<Task> tasks = {};
  /// int64 [T] in [0, C), or kNoLabel; undefined if the data have no labels: C and S are then 0.
  /// Multi-label data: uint8 [T, C], 1 if the target belongs to the class, 0 if not, or kNoEntry.
  /// Numbers: float32 [T, C], finite, or NaN if unknown. A target without a label, any entry or any
  /// number is in no mask. Links: uint8 [E, 1] of 1.
  at::Tensor labels;
  at::Tensor train_masks, val_masks, test_masks;  ///< bool [T, S], one column a split
  /// What LoadOptions::split may be, "" for the default; empty if splits have no names.
  std::vector<std::string> split_names = {};
  std::vector<std::string> class_names;  ///< [C], or empty; of numbers: their names
  Metric metric = Metric::kAccuracy;
  std::optional<DatasetPart> part = {};  ///< set for a part; its masks hold own nodes only

  std::int64_t num_edges() const;                             ///< E, directed
  std::int64_t num_features() const;                          ///< F, 0 without features
  std::int64_t num_edge_features() const;                     ///< F_e, 0 without
  std::int64_t num_graphs() const;                            ///< G, 1 without graph_offsets
  std::int64_t count(TaskTarget of) const;                    ///< N, E, G or E
  std::int64_t num_targets() const { return count(target); }  ///< T
  std::int64_t num_splits() const;                            ///< S

  Task task() const;  ///< by the dtype of the labels; of one class without labels

  /// bool [T], allocated: which targets have a label, or at least one entry or number. `labels`
  /// must be defined.
  at::Tensor has_label() const;

  /// The masks of split `index` in [0, S). Throws InvalidArgument outside.
  SplitMasks split(std::int64_t index) const;

  /// Checks the data: ids in range, one row a node, edge or graph, graphs apart, labels in range,
  /// masks disjoint and only of targets with labels, held-out links without messages, negative
  /// pairs that fit the masks, valid sparse structure, finite features (mapped features are not
  /// read) and edge weights.
  /// Throws InvalidArgument with the data set and the fault. Every reader calls it and reports the
  /// fault as IoError with the file.
  void validate() const;
};

/// The names of columns in the headers of a CSV folder; empty: the usual ones.
struct CsvColumns {
  std::string id = {};      ///< of nodes.csv; "id"
  std::string label = {};   ///< of nodes.csv or edges.csv; "label"
  std::string src = {};     ///< of edges.csv; "src" or "source"
  std::string dst = {};     ///< of edges.csv; "dst" or "target"
  std::string weight = {};  ///< of edges.csv: Dataset::edge_weights; empty: not read

  bool operator==(const CsvColumns&) const = default;
};

/// Options of load_dataset.
struct LoadOptions {
  std::string split = {};           ///< NAME picks the masks `*_mask_NAME.npy` of an npy folder
  bool normalize_features = false;  ///< divide each row by the sum of its magnitudes (usual
                                    ///< for word counts: Planetoid sets, WordNet)
  /// Seed of the random split of data without one: 60/20/20; of links 85/5/10, and all edges
  /// between the same two nodes are on one side.
  std::uint64_t split_seed = 0;
  /// Whether data without labels may be read. If several targets have labels and neither `task`
  /// nor the data choose, none are read then; else that is an error.
  bool labels_optional = false;
  /// Called after every 2^20 lines of a text file, except WordNet's and Planetoid's. An exception
  /// ends the reading: load_dataset rethrows a std::exception other than mezzo::Error as IoError,
  /// anything else unchanged.
  std::function<void()> on_lines = {};
  /// What the labels are; nullopt: what the data say, and what a file of numbers looks like: a
  /// column a class if there are several and all numbers are 0, 1 or missing. Links need no labels;
  /// classes of edges become edge_types.
  std::optional<Task> task = {};
  CsvColumns csv = {};  ///< a name is an InvalidArgument if the data are no CSV folder
  /// Replaces the data's; an InvalidArgument unless it fits() the task.
  std::optional<Metric> metric = {};
};

/// Reads a data set by name ("wordnet") or path. A path is recognised by its file names, an npz
/// file by its arrays, other text by its first lines: a mapped dataset (mezzo.json, which `mezzo
/// data convert` writes), an npy folder (edge_index.npy, ...), a folder with Planetoid pickles
/// (`ind.<name>.*`) or the prefix `<folder>/ind.<name>`, a gnn-benchmark npz, a
/// heterophilous-graphs npz, or another of docs/data-formats.md. Sparse features stay sparse (CSR,
/// int64 indices). Allocates the whole set; for a mapped dataset only labels, masks and sparse
/// features: the rest is memory-mapped, and the edges are read once to check them. Throws
/// InvalidArgument for an unknown name or split, if mapped features should be normalised, for
/// columns of CSV if the data are of another format, and for another task than that of the labels,
/// IoError for files that are missing, truncated, corrupt, contradictory or lack required labels;
/// no other errors, whatever the bytes.
MEZZO_API Dataset load_dataset(const std::string& name_or_path, const LoadOptions& options = {});

/// Divides each row by the sum of its magnitudes; rows of zeros stay. features: float32 [N, F],
/// strided or sparse CSR; returns the same layout.
MEZZO_API at::Tensor normalize_rows(const at::Tensor& features);

/// A data set that load_dataset finds by name.
struct KnownDataset {
  std::string name;
  std::string description;
  bool available = false;  ///< whether the files exist on this machine
  std::string path;        ///< the path, or what to install
};

/// The data sets with a name, and the ones that load_dataset can read at `directory` or directly
/// inside it (if it is not empty). Skips unreadable entries. Throws IoError if the folder does not
/// exist.
MEZZO_API std::vector<KnownDataset> list_datasets(const std::string& directory = "");

}  // namespace mezzo
