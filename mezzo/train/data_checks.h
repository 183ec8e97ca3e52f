#pragma once

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

namespace mezzo {

struct TrainedModel;

/// Throws InvalidArgument if the options contradict the data: for a data set without features or
/// with fewer than two classes, a loss, decoder or metric that does not fit the task, other labels
/// than one class with capture or balance_classes, options of sampling that do not fit the target
/// of the labels (see SamplingOptions), normalisation of mapped features, features of edges with
/// self loops, edge weights with a model other than gcn, sage and mlp or of at most 0 with gcn,
/// either with a sampler other than neighbor or control variates, and, on a part of a data set, a
/// sampler other than neighbor, labor and layer or more layers than the halo has hops. options:
/// checked. Reads edge weights; copies nothing.
MEZZO_API void check_data(const Dataset& dataset, const TrainOptions& options);

/// The checks of check_data() that do not need labels, for outputs of `target`.
void check_input(const Dataset& dataset, const TrainOptions& options, TaskTarget target);

/// Throws InvalidArgument unless the data have as many features as those of the training, and no
/// more types of edges.
void check_features_of(const TrainedModel& trained, const Dataset& dataset);
/// Throws InvalidArgument if the metric of the data ranks links and the model has no nn::Head, or,
/// for ranks among all nodes, one with decoder mlp.
void check_ranks(const Dataset& dataset, const nn::Model& model);
/// Throws InvalidArgument unless the labels of the data are for the model's task.
void check_task_of(const TrainedModel& trained, const Dataset& dataset);

/// check_input() and these for outputs of a model that has been trained. Throws InvalidArgument
/// also for a part of a data set and for more classes. The data need no labels.
void check_fits(const TrainedModel& trained, const Dataset& dataset);

}  // namespace mezzo
