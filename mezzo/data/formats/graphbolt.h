#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/formats/yaml_place.h"
#include "mezzo/data/listed_links.h"
#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/source_support.h"

/// GraphBolt's OnDiskDataset in its input form: metadata.yaml and the files that it names;
/// internal.
namespace mezzo::data {

/// The numbers of a file that metadata.yaml describes, of the format numpy or torch.
at::Tensor read_graphbolt_array(const YamlPlace& entry, const std::filesystem::path& folder);

/// The graph: nodes of one type, edges of one or several types between them as csv or numpy, and
/// of nodes and edges the feature called 'feat', or the only one. Edges of several types are
/// numbered by type, in the order of the types' names. Features of graph.feature_data are not read.
/// Memory: features of the format torch, or of one dimension.
class GraphBoltGraph : public GraphSource {
 public:
  GraphBoltGraph(std::filesystem::path folder, const LoadOptions& options);

  SourceHeader header() override;
  void edges(const TakeEdges& take) override;
  void features(const TakeRows& take) override;
  void edge_features(const TakeRows& take) override;

  const std::filesystem::path& folder() const { return folder_; }
  const YamlPlace& metadata() const { return metadata_; }
  std::int64_t num_nodes() const { return num_nodes_; }
  const std::string& node_type() const { return node_type_; }
  /// Ascending; one that is "" if the edges have no type.
  const std::vector<std::string>& edge_types() const { return edge_types_; }
  /// int64 [E]: the type of each edge; undefined if there is one type.
  at::Tensor types_of_edges();

 private:
  void read_edge_lines(const std::filesystem::path& path, const TakeEdge& edge) const;
  /// Those of one type.
  void take_edges(const YamlPlace& entry, const TakeEdge& edge) const;
  /// The chosen feature of nodes, or of the edges of each type; empty without one.
  std::vector<YamlPlace> feature_entries(const char* domain,
                                         const std::vector<std::string>& types) const;
  std::int64_t width_of(const std::vector<YamlPlace>& entries) const;
  void take_features(const YamlPlace& entry, std::optional<std::int64_t> rows,
                     const TakeRows& take) const;

  std::filesystem::path folder_;
  std::function<void()> on_lines_;
  YamlPlace metadata_;
  std::string node_type_;
  std::int64_t num_nodes_ = 0;
  std::vector<std::string> edge_types_;
  std::vector<YamlPlace> edge_entries_;  // in that order
};

/// The labels and split of a task: of the only one, of the task options.split, or of the only one
/// that fits options.task.
///
/// Its sets list `seeds`, and `labels` of nodes [n], or of edges by their pairs of nodes [n, 2]: a
/// class if `num_classes` is given or they are integers, 0 and 1 in several columns, or numbers.
/// Pairs without labels in the training set, or with `indexes`, are links: `labels` of 1 and 0 tell
/// links and negative pairs apart, and negative pairs with `indexes` belong to the link with the
/// same index. The first releases wrote seed_nodes, and node_pairs with negative_srcs and
/// negative_dsts. A pair of edges of several types is of the type of its set.
class GraphBoltTask {
 public:
  /// Throws InvalidArgument if no task or several are meant, unless options.labels_optional and
  /// neither name one; then there is no task.
  GraphBoltTask(const GraphBoltGraph& graph, const LoadOptions& options);

  /// nullopt without a task.
  const std::optional<Task>& kind() const { return kind_; }
  /// Those of all tasks, if there are several and none is named.
  const std::vector<Task>& kinds() const { return kinds_; }
  std::vector<std::string> names() const;

  /// Of nodes.
  struct Labels {
    TargetLabels labels;
    GraphSource::Masks masks;
  };
  Labels node_labels() const;
  /// Sets the labels and split of edges, or links, of `dataset`, which holds the graph.
  void add_to(Dataset& dataset) const;

 private:
  void add_labels(Dataset& dataset, const ListedSplit& split) const;
  std::string where() const { return (graph_.folder() / "metadata.yaml").string(); }

  const GraphBoltGraph& graph_;
  std::optional<YamlPlace> entry_;
  std::optional<Task> kind_;
  std::vector<Task> kinds_;
};

}  // namespace mezzo::data
