#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/readers.h"
#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/text_lines.h"

/// The formats behind open_source and what they share; not for callers of the library. Each
/// function that opens a format looks at no more than the names of its files; the errors of their
/// contents come with the first question that needs them.
namespace mezzo::data {

/// An OGB node-property folder: raw/{edge,num-node-list,num-edge-list,node-feat,node-label}.csv.gz,
/// or raw/data.npz and raw/node-label.npz; split/<type>/{train,valid,test}.csv.gz. The one split
/// type there is, or the one that options.split names. The sets proteins and products hold each
/// edge once and get its reverse beside it, as OGB's own loader adds them; they are known by the
/// folder's name alone, or that of the folder that a link leads to: ogbn_products, products,
/// ogbn_products_dgl, ogbn_products_pyg, with hyphens too.
/// A label that is empty or nan is none; several a node, of 0 and 1, are multi-label data, judged
/// by ROC AUC as in OGB. Memory: the nodes' labels and splits; the two halves of edge_index in
/// data.npz are read side by side.
std::unique_ptr<GraphSource> ogb_source(const std::filesystem::path& folder,
                                        const LoadOptions& options);

/// A GraphSAINT folder: adj_full.npz (scipy CSR; entry (i, j) is the edge from i to j, entries of
/// value 0 are none), feats.npy, class_map.json, role.json. Labels have the smallest one
/// subtracted, as in GraphSAINT; lists of 0 and 1, one item a class, are multi-label data, judged
/// by micro-F1; features are as they stand, not standardised. Memory: the row starts and the two
/// JSON files; the entries are streamed.
std::unique_ptr<GraphSource> graphsaint_source(const std::filesystem::path& folder,
                                               const LoadOptions& options);

/// DGL's Reddit folder: reddit_graph.npz (scipy COO; entry (i, j) is the edge from i to j) and
/// reddit_data.npz (feature, label, node_types: 1 train, 2 val, 3 test, 0 none). Memory: labels and
/// types; entries and features are streamed.
std::unique_ptr<GraphSource> reddit_source(const std::filesystem::path& folder,
                                           const LoadOptions& options);

/// The input form of a GraphBolt OnDiskDataset, homogeneous: metadata.yaml and the files that it
/// names, in the formats csv (edges) and numpy. The features are the node feature called 'feat', or
/// the only one; labels and split are those of the one task there is, or the one that options.split
/// names. Features of edges and those of graph.feature_data are not read. Memory: the task's sets.
std::unique_ptr<GraphSource> graphbolt_source(const std::filesystem::path& folder,
                                              const LoadOptions& options);

/// A SNAP edge list: comments that begin with `#` or `%`, two integers a line. The nodes are the
/// ids that occur, numbered in ascending order, for which the file is read once more than for the
/// edges. Each edge in the direction of the file, without self loops, parallel ones being one.
std::unique_ptr<GraphSource> snap_source(const std::filesystem::path& file,
                                         const LoadOptions& options);

/// A square MatrixMarket coordinate matrix (real, integer or pattern; general, symmetric or
/// skew-symmetric). Entry (i, j) is the edge from i to j, and from j to i if the matrix is not
/// general; entries of value 0 and those on the diagonal are none, other values do not count.
std::unique_ptr<GraphSource> matrix_market_source(const std::filesystem::path& file,
                                                  const LoadOptions& options);

/// A folder with edges.csv (two node ids a line; a first line `src,dst` is a header) and, for all
/// but the bare graph, nodes.csv (either may be a .csv.gz): a header `id,label[,split],<names of
/// features>`, then a line a node, in any order. Nodes are numbered by ascending id. label: an
/// integer, or empty, which all may be: the data have no labels then; split: train, val, test or
/// empty. Edges are taken as they are. Memory: the ids, labels and splits. Where the lines are not
/// in the order of the ids, features() reads the file once a piece.
std::unique_ptr<GraphSource> csv_source(const std::filesystem::path& folder,
                                        const LoadOptions& options);

/// The most edges of a piece.
inline constexpr std::int64_t kPieceEdges = std::int64_t{1} << 20;

/// The rows of a piece of float32 features: at most 32 MiB of them, but at least one.
std::int64_t rows_of_piece(std::int64_t width);

/// Throws IoError unless the shape is [num_nodes, F] with a sensible F.
void check_feature_shape(const std::vector<std::int64_t>& shape, std::int64_t num_nodes,
                         const std::string& where);

/// What the errors of a file say that is not the same when it is read again.
inline constexpr const char* kFileChanged = "the file has changed while it was read";

/// More nodes than this are a mistake, and fewer than would overflow.
inline constexpr std::int64_t kMostNodes = std::int64_t{1} << 48;

/// The last part of a path, as the name of a data set; of "." that of the folder.
std::string name_of_path(const std::filesystem::path& path);

/// The name of a file without `.gz` and, before it, `extension`.
std::string name_of_file(const std::filesystem::path& path, std::string_view extension);

/// `path`, or `path`.gz where that alone exists.
std::filesystem::path plain_or_packed(const std::filesystem::path& path);

/// Whether the first lines of a text, plain or gzip, are those of a MatrixMarket file or of an edge
/// list.
bool is_graph_text(const std::filesystem::path& path);

/// Whether a line of an edge list is a comment, as SNAP (`#`) and other collections (`%`) write it.
inline bool is_snap_comment(std::string_view line) {
  return line.starts_with('#') || line.starts_with('%');
}

/// Takes one edge by node ids.
using TakeEdge = std::function<void(std::int64_t src, std::int64_t dst)>;

/// Gathers edges into pieces.
class EdgePieces {
 public:
  explicit EdgePieces(const GraphSource::TakeEdges& take) : take_(take) {}
  void add(std::int64_t src, std::int64_t dst);
  /// Hands on what is left.
  void finish();

 private:
  const GraphSource::TakeEdges& take_;
  at::Tensor src_, dst_;
  std::int64_t* src_data_ = nullptr;
  std::int64_t* dst_data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Gathers rows of float32 features into pieces.
class RowPieces {
 public:
  RowPieces(std::int64_t width, const GraphSource::TakeRows& take);
  /// Room for the next row: `width` floats, which hold 0; valid until the next call.
  float* next_row();
  /// Hands on what is left.
  void finish();

 private:
  const GraphSource::TakeRows& take_;
  std::int64_t width_;
  std::int64_t capacity_;
  at::Tensor rows_;
  std::int64_t size_ = 0;
};

/// Finds the distinct ids of a stream of them in memory for the distinct ones.
class IdCollector {
 public:
  void add(std::int64_t id) {
    if (ids_.size() >= limit_) compact();
    ids_.push_back(id);
  }
  /// The ids, ascending.
  std::vector<std::int64_t> finish();

 private:
  void compact();

  std::vector<std::int64_t> ids_;
  std::size_t limit_ = std::size_t{1} << 20;
};

/// The place of an id among ascending distinct ids that are not negative.
class IdRanks {
 public:
  explicit IdRanks(std::vector<std::int64_t> ids);
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  const std::vector<std::int64_t>& ids() const { return ids_; }
  /// -1 where there is no such id.
  std::int64_t operator()(std::int64_t id) const;

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::int32_t> table_;  // the place of each id, where the ids are dense enough
};

/// What a source says of the labels.
struct NodeLabels {
  at::Tensor labels;     ///< as in Dataset; kNoLabel alone for data without labels
  at::Tensor has_label;  ///< bool [N]
  std::int64_t num_classes = 0;

  bool is_multi_label() const { return labels.dim() == 2; }
};

/// Labels from values in [0, C) or kNoLabel. Throws IoError as set_labels does, and where no node
/// has a label.
NodeLabels node_labels(const std::vector<std::int64_t>& values,
                       std::optional<std::int64_t> num_classes, const std::string& where);

/// Labels of multi-label data. entries: as for set_entries, whose IoErrors it throws.
NodeLabels node_entries(const at::Tensor& entries, const std::string& where);

/// The same from rows of num_classes items each, of 0, 1 and kNoEntry.
NodeLabels node_entries(const std::vector<std::uint8_t>& rows, std::size_t num_classes,
                        const std::string& where);

/// A label of text: kNoLabel for an empty field or nan, or an integer, which may be written as a
/// real number.
std::int64_t label_of_field(const TextLines& lines, std::string_view field);

/// A feature of text, finite in float32.
float feature_of_field(const TextLines& lines, std::string_view field);

/// For data without labels: num_classes 0, and kNoLabel for every node.
NodeLabels no_labels(std::int64_t num_nodes);

enum class Role : std::uint8_t { kNone, kTrain, kVal, kTest };

/// The split of a data set, built node by node.
class SplitBuilder {
 public:
  explicit SplitBuilder(std::int64_t num_nodes) : roles_(static_cast<std::size_t>(num_nodes)) {}

  /// Gives a node its role. Throws IoError "<where()>: ..." for ids out of range and nodes that
  /// have one already.
  template <class Where>
  void assign(std::int64_t node, Role role, Where&& where) {
    if (node < 0 || node >= static_cast<std::int64_t>(roles_.size()) ||
        roles_[static_cast<std::size_t>(node)] != Role::kNone) [[unlikely]] {
      refuse(node, where());
    }
    roles_[static_cast<std::size_t>(node)] = role;
  }

  /// The masks; nodes without a label are in none.
  GraphSource::Masks masks(const at::Tensor& has_label) const;

 private:
  [[noreturn]] void refuse(std::int64_t node, const std::string& where) const;

  std::vector<Role> roles_;
};

/// Throws IoError where a node has no label; for data without a split, all of whose nodes would be
/// drawn.
void require_all_labelled(const NodeLabels& labels, const std::string& where);

}  // namespace mezzo::data
