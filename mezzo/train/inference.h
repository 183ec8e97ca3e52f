#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/report/report.h"

namespace mezzo {

/// The metric of the checkpoint's best weights on the split, device and precision of its options
/// (which the caller may change). Throws InvalidArgument if the data do not fit the model,
/// NumericError if its outputs are not finite.
MEZZO_API Scores evaluate(const Dataset& dataset, const Checkpoint& checkpoint);

/// Predictions for M nodes, on the CPU. For multi-label data classes and probabilities are [M, C].
struct Predictions {
  at::Tensor nodes;  ///< int64 [M], the node of each row
  /// int64 [M], the class of the largest logit; for multi-label data uint8 [M, C], 1 if the logit
  /// is above 0, else 0.
  at::Tensor classes;
  at::Tensor probabilities;  ///< float32 [M], softmax of that class; or [M, C], sigmoid
  /// [C], of the data; empty if it has none, or not for every class of the checkpoint.
  std::vector<std::string> class_names = {};
};

/// The predictions of the checkpoint's best weights, in its options' precision and on their device.
/// nodes: int64 [M] on the CPU, in any order; undefined: every node. The model runs on all nodes.
/// The data need neither labels nor splits, and their labels may lack classes of the checkpoint.
/// Throws InvalidArgument for nodes outside [0, N), if the features do not fit the model, or if the
/// data have more classes or labels of the other kind, or are a part of a data set; NumericError if
/// the model's outputs are not finite.
MEZZO_API Predictions predict(const Dataset& dataset, const Checkpoint& checkpoint,
                              const at::Tensor& nodes = {});

/// Writes "node,class,probability" and, if there are class names, ",name", and a line per node; for
/// multi-label data "node,p0,p1,..." and the probability of each class. Throws IoError.
MEZZO_API void write_csv(const std::string& path, const Predictions& predictions);

/// Writes the classes as a .npy file of version 1.0, int64 [M] or uint8 [M, C]. Throws IoError.
MEZZO_API void write_npy(const std::string& path, const Predictions& predictions);

}  // namespace mezzo
