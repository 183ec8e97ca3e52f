#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"

/// Links and labels of edges that files list by the nodes of each pair; internal.
namespace mezzo::data {

/// The pairs of one mask, int64 [L] each. Ids are not checked.
struct ListedPairs {
  at::Tensor src, dst;
  at::Tensor types = {};    ///< in [0, num_edge_types); undefined: all are 0
  at::Tensor weights = {};  ///< float32, of links; undefined: 1
  NegativePairs negatives = {};
};

struct ListedSplit {
  ListedPairs train, val, test;
};

/// The pairs [L, 2] of a file as src and dst. Throws IoError for other shapes than [L, 2] and other
/// dtypes than integers.
ListedPairs pairs_of_columns(const at::Tensor& columns, const std::string& where);

/// Throws IoError unless all nodes, types and weights of a list, and its negative pairs, fit the
/// graph and each other.
void check_pairs(const ListedPairs& pairs, const Dataset& dataset, const std::string& where);

/// Makes links the targets of `dataset`, a graph whose edges are src and dst. Edges that
/// split.train lists, by source, destination and type, are the training links; listed ones that are
/// no edge become edges, as do all links for validation and testing. The features of new edges are
/// 0. Negative pairs of training are kept as pairs. messages: whether all edges and training links
/// carry messages (Dataset::message_mask); else those between the nodes of held-out links do not.
/// Throws IoError as check_pairs, without training links, and if the graph is too large to number
/// pairs.
void add_links(Dataset& dataset, const ListedSplit& split, bool messages, const std::string& where);

/// int64 [E]: for each edge of `dataset` the row of `pairs` with its source, destination and type,
/// or -1. The pairs are checked. Throws IoError if a pair is no edge or occurs twice, and if the
/// graph is too large to number pairs.
at::Tensor rows_of_edges(const ListedPairs& pairs, const Dataset& dataset,
                         const std::string& where);

}  // namespace mezzo::data
