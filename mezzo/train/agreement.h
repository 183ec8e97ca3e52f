#pragma once

#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/ranks.h"

/// What several processes that train together agree on. Internal to train; not exported.
namespace mezzo {

/// Compares options and data of the processes, or the parts that they have, and what several of
/// them can train. A collective; throws InvalidArgument on all processes.
void check_group(const Dataset& dataset, const TrainOptions& options, Ranks& ranks);

}  // namespace mezzo
