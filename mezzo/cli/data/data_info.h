#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/data/dataset.h"

namespace mezzo::cli {

/// Facts of a data set, for people and programs.
struct DatasetInfo {
  std::string name, origin, task, metric;
  std::vector<std::string> tasks;      ///< Dataset::tasks, and link for any graph with edges
  std::size_t num_labelled_tasks = 0;  ///< of Dataset::tasks
  std::string target;                  ///< of the task: node, edge or graph
  std::int64_t num_nodes = 0, num_edges = 0, num_features = 0, num_edge_features = 0;
  std::optional<std::int64_t> num_graphs;  ///< of a set of graphs
  std::string feature_dtype;               ///< in the file, if known; empty without features
  bool sparse_features = false, mapped_features = false;
  double feature_density = 0;  ///< share of nonzeros; NaN without features, and of mapped ones
  struct Class {
    std::string name;
    std::int64_t count;  ///< targets that are known to belong to it
  };
  std::vector<Class> classes;
  struct Number {
    std::string name;
    std::int64_t count;  ///< targets whose number is known
    double min, mean, max;
  };
  std::vector<Number> numbers;  ///< of regression, whose classes are empty
  std::int64_t unlabelled = 0;  ///< targets without a label
  struct Split {
    std::int64_t train, val, test;
  };
  std::vector<Split> splits;
  std::vector<std::string> split_names;  ///< Dataset::split_names
  std::int64_t min_in_degree = 0, max_in_degree = 0;
  double mean_in_degree = 0;
  std::int64_t isolated_nodes = 0;  ///< without any edge
  bool is_undirected = false;       ///< whether every edge has its reverse
  std::int64_t self_loops = 0;
  /// Smallest, mean and largest; empty: the edges have none.
  std::vector<double> edge_weights;
  std::int64_t parallel_edges = 0;  ///< repeated edges between the same two nodes
  /// Share of the edges between nodes with equal labels in those between nodes with labels, self
  /// loops aside; NaN without any, and of multi-label data.
  double homophily = 0;
};

/// Reads the edges as edge_statistics() does, and the features unless they are mapped. Data without
/// labels have no classes, no splits and a homophily of NaN.
DatasetInfo describe(const Dataset& dataset);

std::string format_info(const DatasetInfo& info);
std::string info_to_json(const DatasetInfo& info);

}  // namespace mezzo::cli
