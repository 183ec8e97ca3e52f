#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {

/// What training and evaluation read: one split of a data set. On the device of the run for the
/// full graph, on the CPU for mini-batches.
struct Problem {
  /// With self loops if the run uses them; edges in CSC order, except for mlp; of links only those
  /// that carry messages.
  Topology topology;
  /// What the layers read of the edges: float32 [num_edges], the factors of the messages; gine:
  /// float32 [num_edges, F_e], the features of the edges; undefined: nothing. gcn: scaled so that
  /// GraphConv divides by the roots of the sums of weights instead of those of the degrees.
  at::Tensor edge_rows;
  /// [N, F], strided or sparse CSR: the result of cast_once(); for mini-batches in the dtype and
  /// memory of the data set, which may be a mapped file.
  at::Tensor features;
  /// The edges or graphs of the data set, in its order; links: then their negative pairs.
  nn::HeadTargets head_targets;
  LinkNegatives negatives = {};  ///< of links: those that the data fix, on the CPU
  at::Tensor labels;             ///< as in the data set, a row a target
  at::Tensor loss_labels;  ///< what the loss compares with: the labels; numbers in number_scale
  SplitMasks masks;        ///< bool [T] each
  at::Tensor node_ids;  ///< int64 [N], ids in the whole graph; undefined unless the data are a part
  std::int64_t num_classes = 0;
  std::int64_t num_edge_features = 0;
  std::int64_t num_edge_types = 1;
  NumberScale number_scale = {};  ///< of the training targets
  Task task;
  Metric metric = Metric::kAccuracy;
};

/// Whether the targets are pairs of nodes: edges or links.
inline bool has_pairs(const Problem& problem) {
  return problem.task.target == TaskTarget::kEdge || problem.task.target == TaskTarget::kLink;
}

/// Whether features should stay sparse CSR: if the CSR (float32 values, int64 indices) takes less
/// than a third of the bytes of the dense matrix, that is, below 11 % of nonzeros. The factor of 3
/// accounts for the indirect access of a sparse product. features: [N, F], strided or sparse CSR.
MEZZO_API bool worth_sparse(const at::Tensor& features);

/// Features of the full graph, cast to the 16-bit type of the precision if every reader would cast
/// them at each step anyway: if they are dense float32 and only a first layer in that type reads
/// them; for float16 only if none becomes infinite. Otherwise unchanged. The cast of a step moves
/// more memory than the product after it. features: [N, F]. Allocates; synchronises for float16 on
/// CUDA.
MEZZO_API at::Tensor cast_once(const at::Tensor& features, const TrainOptions& options);

/// Prepares a data set according to `options` (split, normalisation, self loops, sampling, device).
/// Sparse features stay sparse if worth_sparse(), else become dense; dense ones stay dense.
/// Numbers are learnt in deviations from their mean over the training targets. Links get the
/// negative pairs of add_negatives(), and those for validation and testing carry no messages.
/// Allocates what it changes. Throws InvalidArgument as check_data(), for a split index out of
/// range, for nodes without in-edges if the model needs them, and if the metric of the training
/// targets needs two classes and they have one.
MEZZO_API Problem make_problem(const Dataset& dataset, const TrainOptions& options);

/// make_problem() for outputs of `target` of data that may lack labels and splits: labels, masks,
/// classes and scale keep their defaults.
Problem make_inference_problem(const Dataset& dataset, const TrainOptions& options,
                               TaskTarget target);

/// The column of graphs and blocks that holds their rows of Problem::edge_rows.
inline constexpr auto kEdgeRowsColumn = "edge_rows";

/// The input of a model for blocks of problem.topology, with a column of their rows of edge_rows,
/// Problem's, if it is defined. edge_rows: on the device of the blocks, which must outlive the
/// result.
nn::ModelInput input_of(Blocks& blocks, const at::Tensor& edge_rows);

/// The options of a model for data with these facts.
nn::ModelOptions model_options(const TrainOptions& options, const DatasetFacts& facts);
/// The options of a model for the problem.
MEZZO_API nn::ModelOptions model_options(const TrainOptions& options, const Problem& problem);

/// The input of a model on the full graph, for all targets. A view of the problem.
nn::ModelInput full_input(const Problem& problem);

/// The kind of the options that train `own`, a module of your own or a Model of some kind. Without
/// a model: kOwn.
nn::ModelKind kind_of_own(const nn::Model& own);

/// The model of a run, on any device: `own` if the options are for one, else a new model of
/// `architecture`, the result of model_options(). Throws InvalidArgument if `own` is missing or
/// given without need, has other layers than the options or classes than the architecture, has no
/// head that the target needs or one that does not fit, or has no parameters or others than
/// float32.
nn::Model make_model(const TrainOptions& options, nn::ModelOptions architecture, nn::Model own);

/// What a model computes for the targets of a problem.
struct Outputs {
  at::Tensor logits;  ///< or numbers: float32 [T, C], on the problem's device
  at::Tensor nodes;   ///< links: floating [N, F], the rows of nodes that the head reads
};

/// The outputs of `model` in evaluation mode and without gradient, in the precision of the options;
/// restores the training mode of every submodule. With sampling it computes layer by layer, in
/// batches of nodes, from all neighbours, then in batches of edges or links; or in batches of whole
/// graphs. Allocates.
MEZZO_API Outputs evaluate_model(nn::Model& model, const Problem& problem,
                                 const TrainOptions& options);

/// Outputs [N, C] of a model as numbers in the units of the labels; unchanged if `scale` is
/// undefined.
at::Tensor in_own_units(const at::Tensor& outputs, const NumberScale& scale);

/// The targets that count in an evaluation: on a part of a data set its own nodes, else all.
struct EvaluatedTargets {
  TaskTarget target = TaskTarget::kNode;
  std::int64_t count = 0;
  std::int64_t not_finite = 0;  ///< of these, with inf or NaN among their logits
};

/// logits: floating [T, C], of all targets, or of the nodes of `part`. Allocates little unless some
/// are not finite; synchronises.
EvaluatedTargets evaluated_targets(const at::Tensor& logits, TaskTarget target,
                                   const std::optional<DatasetPart>& part);

/// Whether the metric of the targets in `mask`, one of problem.masks, is defined: it needs a
/// target, for ROC AUC one of each class (multi-label data: in at least one class). Synchronises.
bool has_score(const at::Tensor& mask, const Problem& problem);

/// The score on the training targets of a model that ignores its input: the share of the largest
/// class, 0.5 for ROC AUC, 0 for R²; nullopt for other metrics and without training targets.
/// Synchronises.
std::optional<double> chance_score(const Problem& problem);

/// The metric on every part of the split, NaN if not has_score(), and on training links if it
/// is_of_ranks(), which needs the model's head and the rows of all nodes on options.device.
/// outputs: the result of evaluate_model(). Synchronises.
Scores score_outputs(const Outputs& outputs, const nn::Head& head, const Problem& problem,
                     const TrainOptions& options);

}  // namespace mezzo
