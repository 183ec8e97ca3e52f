#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

/// The options that tune() varies, and their values; internal to train.
namespace mezzo {

/// `options` with draw `number` from the grid; decided by options.seed. They may not fit the model,
/// see with_fixed.
TrainOptions drawn_options(const Dataset& dataset, TrainOptions options, std::uint64_t number);

/// Throws InvalidArgument unless all are names of options of training.
void check_fixed(const std::vector<std::string>& names);

/// Whether `fixed` has the option of that name.
bool is_fixed(const std::vector<std::string>& fixed, std::string_view name);

/// `options` with the fixed ones of the job. Resets those that the model, or one of so many layers,
/// does not have, unless they are fixed.
TrainOptions with_fixed(TrainOptions options, const TrainOptions& job,
                        const std::vector<std::string>& fixed);

}  // namespace mezzo
