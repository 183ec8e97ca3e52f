#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/train/report/report.h"

/// Scores of links by their ranks. Internal to train; not exported.
namespace mezzo {

struct Problem;

/// Whether a metric that is_of_ranks() ranks the links of a mask among all nodes; else among the
/// negative pairs that the data fix.
bool ranks_all_nodes(Metric metric, const NegativePairs& negatives);

/// The score of a metric that is_of_ranks(), of the validation and test links. NaN for training
/// links, which would take too long, and without links. nodes: the rows that the head reads,
/// float32 [N, F], on its device. Computes in float32:
///
///     fixed src, dst:     scores of L K pairs, in chunks
///     hits@10 of pairs:   scores of L + M pairs, in chunks
///     else:               scores of each link's source with all nodes, and of all nodes with its
///                         destination, as products in chunks: O(L N F); not for decoder mlp
///
/// Synchronises.
Scores rank_links(nn::Head head, const at::Tensor& nodes, const Problem& problem);

}  // namespace mezzo
