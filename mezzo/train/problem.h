#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/topology.h"
#include "mezzo/train/options.h"
#include "mezzo/train/report/report.h"

namespace mezzo {

/// What training and evaluation read: one split of a data set. For the full graph all of it is on
/// the device of the run; for mini-batches it stays on the CPU, from where batches go to the
/// device.
struct Problem {
  Topology topology;  ///< with self loops where the run uses them
  /// [N, F], strided or sparse CSR: as cast_once() gives them; for mini-batches in the dtype and
  /// the memory in which the data set has them, which may be a mapped file.
  at::Tensor features;
  at::Tensor labels;    ///< as in the data set
  SplitMasks masks;     ///< bool [N] each
  at::Tensor node_ids;  ///< int64 [N] in the whole; undefined unless the data are a part of it
  std::int64_t num_classes = 0;
  bool is_multi_label = false;  ///< whether a node may belong to several classes
  Metric metric = Metric::kAccuracy;
};

/// Whether features keep less memory as CSR by enough to compute with them so: where the CSR
/// (float32 values, int64 indices) takes less than a third of the bytes of the dense matrix, that
/// is below 11 % of nonzeros. The factor makes up for the indirect access of a sparse product.
/// features: [N, F], strided or sparse CSR.
MEZZO_API bool worth_sparse(const at::Tensor& features);

/// Features of the full graph in the 16-bit type of the precision, where all that reads them casts
/// them to it anyway: dense float32 ones, the first layer in that type and without a skip around
/// it; for float16 only where none becomes infinite. Else as they are. A cast at each step reads
/// and writes more than the product behind it does. features: [N, F]. Allocates; synchronises for
/// float16 on CUDA.
MEZZO_API at::Tensor cast_once(const at::Tensor& features, const TrainOptions& options);

/// Takes over a data set as `options` ask (split, normalisation, self loops, sampling, device).
/// Features that come sparse stay so where worth_sparse() says, else become dense; dense ones stay
/// dense. Allocates what it changes. Throws InvalidArgument for a data set without features or with
/// fewer than two classes, a split index out of range, nodes without in-edges where the model needs
/// them, ROC AUC over other than two classes of single labels, multi-label data with capture or
/// balance_classes, the normalisation of mapped features, and, on a part of a data set, another
/// sampler than neighbor, labor and layer or more layers than the halo has hops.
MEZZO_API Problem make_problem(const Dataset& dataset, const TrainOptions& options);

/// As make_problem(), but only what a model computes on: labels and masks stay undefined,
/// num_classes 0 and is_multi_label false, and the data need none of them. Throws what concerns the
/// rest.
Problem make_inference_problem(const Dataset& dataset, const TrainOptions& options);

/// The options of a model for this many features and classes.
nn::ModelOptions model_options(const TrainOptions& options, std::int64_t num_features,
                               std::int64_t num_classes);
/// Those of the model that solves the problem.
nn::ModelOptions model_options(const TrainOptions& options, const Problem& problem);

/// Logits float32 [N, C] of `model` in evaluation mode and without gradient, in the precision of
/// the options, on the problem's device; the modes of the model's parts are restored. Those of a
/// run by mini-batches are computed layer by layer in batches of nodes, and are exact all the same.
/// Allocates.
at::Tensor evaluate_logits(nn::Model& model, const Problem& problem, const TrainOptions& options);

/// Nodes that a run is judged by: on a part of a data set its own ones, else all.
struct JudgedNodes {
  std::int64_t count = 0;
  std::int64_t not_finite = 0;  ///< of them, with inf or NaN among their logits
};

/// logits: floating [N, C], of the nodes of `dataset`. Allocates little unless some are not finite;
/// synchronises.
JudgedNodes judge_nodes(const at::Tensor& logits, const Dataset& dataset);

/// Whether the metric of the nodes in `mask`, one of problem.masks, is defined: there are some, for
/// ROC AUC of both classes, of multi-label data in one class at least. Synchronises.
bool has_score(const at::Tensor& mask, const Problem& problem);

/// The metric on every part of the split, NaN where has_score() denies it. Synchronises.
Scores score_logits(const at::Tensor& logits, const Problem& problem);

}  // namespace mezzo
