#pragma once

#include <string>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/trained_model.h"

/// Which data a trained model is used on. Internal to train and the layers above.
namespace mezzo {

/// Completes the arguments of load_dataset() for a trained model. An empty `dataset` becomes that
/// of the training, and then `load` gets its split and metric, unless it has others. In any case an
/// empty task becomes that of the training, and columns are those of take_columns(). Throws
/// InvalidArgument if the training has no name of a data set either.
MEZZO_API void choose_dataset(const TrainedModel& trained, std::string& dataset, LoadOptions& load);

/// Sets the columns without a name to those of `training`, if `dataset` is a CSV folder.
MEZZO_API void take_columns(const CsvColumns& training, const std::string& dataset,
                            CsvColumns& columns);

}  // namespace mezzo
