#pragma once

#include <cstdint>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

/// The options that tune() varies, and their values; internal to train.
namespace mezzo {

/// `options` with draw `number` from the grid; decided by options.seed. They may not fit the model,
/// see drop_foreign.
TrainOptions drawn_options(const Dataset& dataset, TrainOptions options, std::uint64_t number);

/// Resets the options that the model, or one of so many layers, does not have.
void drop_foreign(TrainOptions& options);

}  // namespace mezzo
