#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/report/report.h"

namespace mezzo {

/// What a model that predicts numbers has learnt them in: it computes (number - mean) / deviation.
/// Both float32 [C] on the CPU; undefined for other tasks.
struct NumberScale {
  at::Tensor mean, deviation;
};

/// Facts about the data set that a model was trained on.
struct DatasetFacts {
  std::string name = {};
  std::int64_t num_nodes = 0, num_edges = 0, num_features = 0, num_classes = 0;
  std::int64_t num_edge_features = 0;
  std::int64_t num_edge_types = 1;  ///< of links
  Task task;
  Metric metric = Metric::kAccuracy;
  NumberScale number_scale = {};
};

/// A trained model, with what is needed to use it: the result of train() or of load_checkpoint().
/// The members and evaluate() prepare the data as the training did (self loops, normalised
/// features), on the device of the model's parameters, and compute in options.precision.
struct MEZZO_API TrainedModel {
  /// In evaluation mode; copies of this struct share it, and a model of your own is shared too.
  nn::Model model{nullptr};
  TrainOptions options;
  DatasetFacts data;
  std::int64_t epoch = 0;  ///< the epoch of the weights

  /// The logits, or numbers, of all nodes, edges or graphs: float32 [T, C] on the CPU. The data
  /// need neither labels nor splits, and their labels may lack classes of the model. With
  /// options.sampling it computes layer by layer, in batches, from all neighbours. Prepares the
  /// data in each call. Throws InvalidArgument if the features do not fit the model, or if the data
  /// have more classes or labels of another task, or are a part of a data set; NumericError if
  /// logits are not finite. Deterministic.
  at::Tensor logits(const Dataset& dataset) const;

  /// The logits of some targets: [n, C], rows of logits(dataset) up to rounding. targets: integers
  /// [n] in [0, T), repeated or not. Of nodes, computes only those within as many hops as the model
  /// has layers (kSgc, kOwnGraph, edges and graphs: all), but prepares the whole data set. Throws
  /// as logits(dataset), and InvalidArgument for other ids.
  at::Tensor logits(const Dataset& dataset, const at::Tensor& targets) const;
};

/// Reads the best weights of a checkpoint that train() or `mezzo train` wrote: from the epoch with
/// the best validation score or, without validation nodes, from the last evaluated epoch. device:
/// of the model. In `options`, capture, files and how batches are drawn have their defaults. Throws
/// IoError that names the file if it is missing, truncated, corrupt or of another format.
MEZZO_API TrainedModel load_checkpoint(const std::string& path, at::Device device = at::kCPU);

/// The same for a model of your own: sets the weights of `model`, which the result shares, and
/// moves it to `device`. Throws IoError as well, without changing weights, if the checkpoint has
/// other layers, names or shapes, or is of a model of another kind.
MEZZO_API TrainedModel load_checkpoint(const std::string& path, nn::Model model,
                                       at::Device device = at::kCPU);

/// The data set's metric on the split options.split_index. Throws as TrainedModel::logits, and
/// InvalidArgument for data without labels or split.
MEZZO_API Scores evaluate(const Dataset& dataset, const TrainedModel& trained);

/// Predictions for M nodes, edges or graphs, on the CPU. For multi-label data classes and
/// probabilities are [M, C].
struct Predictions {
  TaskTarget target = TaskTarget::kNode;
  at::Tensor ids;  ///< int64 [M]; undefined: all
  at::Tensor
      numbers;  ///< regression: float32 [M, C], and the next two are undefined; else undefined
  /// int64 [M], the class of the largest logit; for multi-label data uint8 [M, C], 1 if the logit
  /// is above 0, else 0.
  at::Tensor classes;
  at::Tensor probabilities;  ///< float32 [M], softmax of that class; or [M, C], sigmoid
  /// [C], of the data; empty if it has none, or not for every class of the model.
  std::vector<std::string> class_names = {};
};

/// The predictions of TrainedModel::logits, with its errors. targets: integers [M]; undefined: all.
MEZZO_API Predictions predict(const Dataset& dataset, const TrainedModel& trained,
                              const at::Tensor& targets = {});

/// Writes "node,class,probability" and, if there are class names, ",name", and a line per node; for
/// multi-label data "node,p0,p1,..." and the probability of each class; for numbers
/// "node,y0,y1,..." and the numbers. Of edges and graphs the first column is "edge" or "graph", the
/// row in the data. Throws IoError.
MEZZO_API void write_csv(const std::string& path, const Predictions& predictions);

/// Writes the classes as a .npy file of version 1.0, int64 [M] or uint8 [M, C], or the numbers,
/// float32 [M, C]. Throws IoError.
MEZZO_API void write_npy(const std::string& path, const Predictions& predictions);

}  // namespace mezzo
