#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/source_support.h"

/// OGB's folders; internal.
namespace mezzo::data {

/// The graphs of a data set.
struct OgbCounts {
  std::vector<std::int64_t> nodes;
  std::vector<std::int64_t> edges;  // as stored, without inverse ones
  std::int64_t num_nodes = 0, num_edges = 0;

  std::int64_t num_graphs() const { return static_cast<std::int64_t>(nodes.size()); }
};

/// The graph of each edge, whose nodes are numbered from 0 in the files.
class GraphOfEdge {
 public:
  explicit GraphOfEdge(const OgbCounts& counts) : counts_(counts) {}

  /// Goes to the next edge, of counts.num_edges.
  void next() {
    while (left_ == 0) {
      first_node_ += num_nodes_;
      num_nodes_ = counts_.nodes[graph_];
      left_ = counts_.edges[graph_++];
    }
    --left_;
  }
  std::int64_t first_node() const { return first_node_; }
  std::int64_t num_nodes() const { return num_nodes_; }

 private:
  const OgbCounts& counts_;
  std::size_t graph_ = 0;
  std::int64_t first_node_ = 0, num_nodes_ = 0, left_ = 0;
};

/// An OGB folder of one graph with labels of nodes, or of graphs with labels:
/// raw/{edge,num-node-list,num-edge-list,node-feat,edge-feat,edge_weight}.csv.gz and
/// node-label.csv.gz or graph-label.csv.gz, or raw/data.npz and raw/{node,graph}-label.npz;
/// split/<type>/{train,valid,test}.csv.gz, or split_dict.pt. Uses the only split type, or
/// options.split. Some sets store each edge once and get its reverse, as in OGB's loader; they are
/// recognised by the name of the folder or of the target of a link: ogbn_products, products,
/// ogbn_products_dgl, ogbn_products_pyg, with hyphens too, and the same of proteins, and of ppa,
/// collab and ddi with ogbl_; ogbg_mol* and ogbg_ppa. An empty or nan label is missing; several
/// labels, 0 and 1, are multi-label data with ROC AUC, as in OGB; labels of graphs may be numbers.
/// Memory: the labels and splits, the weights of edges and the counts of graphs; the two halves of
/// edge_index in data.npz are read side by side.
class OgbSource : public GraphSource {
 public:
  OgbSource(const std::filesystem::path& folder, const LoadOptions& options);

  /// Reads the graph only.
  void leave_out_labels() { labels_ = TargetLabels(); }
  /// The folder of the requested split; nullopt if the data have no split.
  std::optional<std::filesystem::path> split_folder();
  /// int64 [E] in the order of edges() of raw/edge_reltype; undefined without it.
  at::Tensor edge_types();
  SourceHeader header() override;
  void edges(const TakeEdges& take) override;
  at::Tensor edge_weights() override;
  at::Tensor graph_offsets() override;
  void features(const TakeRows& take) override { take_features(TaskTarget::kNode, take); }
  void edge_features(const TakeRows& take) override;
  TargetLabels labels() override { return targets(); }
  std::optional<Masks> masks() override;
  std::vector<std::string> split_names() final;

 protected:
  virtual OgbCounts read_counts() const = 0;
  /// Of nodes or edges.
  virtual std::int64_t num_features(TaskTarget of) = 0;
  virtual void take_features(TaskTarget of, const TakeRows& take) = 0;
  /// The edges as stored; see GraphOfEdge.
  virtual void for_each_edge(const TakeEdge& edge) = 0;
  /// float64, one of each edge as stored, of raw/edge_<name>; undefined without it.
  virtual at::Tensor edge_numbers(const char* name) = 0;
  /// float64 [T, C], nan if missing, and the file for errors.
  virtual std::pair<at::Tensor, std::string> label_values() = 0;

  const OgbCounts& counts();
  const std::filesystem::path& raw() const { return raw_; }
  const std::function<void()>& on_lines() const { return on_lines_; }
  bool is_set() const { return target_ == TaskTarget::kGraph; }
  std::int64_t num_targets() { return is_set() ? counts().num_graphs() : counts().num_nodes; }
  std::int64_t rows_of(TaskTarget of) {
    return of == TaskTarget::kEdge ? counts().num_edges : counts().num_nodes;
  }
  /// raw/<target>-<name>
  std::filesystem::path raw_file(TaskTarget of, const char* name) const;
  TaskTarget target() const { return target_; }
  /// What labels of so many columns are; nullopt: what they look like.
  std::optional<LabelKind> label_kind(std::int64_t columns) const;

 private:
  std::int64_t total(const std::vector<std::int64_t>& counts, const char* what) const;
  const TargetLabels& targets();
  TargetLabels read_labels();
  /// edge_numbers() in the order of edges().
  at::Tensor numbers_of_edges(const char* name);
  void read_role(const std::filesystem::path& path, Role role, SplitBuilder& split) const;

  std::filesystem::path folder_, raw_;
  std::string split_;
  std::function<void()> on_lines_;
  bool both_;  // each edge is stored in one direction
  TaskTarget target_ = TaskTarget::kNode;
  std::optional<LabelKind> kind_;  // by the task
  std::optional<OgbCounts> counts_;
  std::optional<TargetLabels> labels_;
};

/// Whether an OGB folder is a set of links: without labels, but with splits of PyTorch.
bool is_ogb_link_set(const std::filesystem::path& folder);

/// A set of links with the split, types and negative pairs that OGB's get_edge_split returns:
/// split/<type>/split_dict.pt, or train.pt, valid.pt and test.pt, dicts of arrays: `edge` [L, 2],
/// perhaps with `weight` [L] and `edge_neg` [M, 2]; `source_node` and `target_node` [L] with
/// `target_node_neg` [L, K]; or `head`, `relation` and `tail` [L] with `head_neg` and `tail_neg`
/// [L, K]. All edges of the graph carry messages. `graph` reads the same folder.
Dataset read_ogb_links(OgbSource& graph, const std::filesystem::path& folder,
                       const LoadOptions& options);

}  // namespace mezzo::data
