#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {

/// Predictions for M nodes, on the CPU. For multi-label data classes and probabilities are [M, C].
struct Predictions {
  at::Tensor nodes;  ///< int64 [M], their ids; undefined: all nodes
  /// int64 [M], the class of the largest logit; for multi-label data uint8 [M, C], 1 if the logit
  /// is above 0, else 0.
  at::Tensor classes;
  at::Tensor probabilities;  ///< float32 [M], softmax of that class; or [M, C], sigmoid
  /// [C], of the data; empty if it has none, or not for every class of the model.
  std::vector<std::string> class_names = {};
};

/// The predictions of TrainedModel::logits, with its errors. nodes: integers [M]; undefined: all.
MEZZO_API Predictions predict(const Dataset& dataset, const TrainedModel& trained,
                              const at::Tensor& nodes = {});

/// Writes "node,class,probability" and, if there are class names, ",name", and a line per node; for
/// multi-label data "node,p0,p1,..." and the probability of each class. Throws IoError.
MEZZO_API void write_csv(const std::string& path, const Predictions& predictions);

/// Writes the classes as a .npy file of version 1.0, int64 [M] or uint8 [M, C]. Throws IoError.
MEZZO_API void write_npy(const std::string& path, const Predictions& predictions);

}  // namespace mezzo
