#pragma once

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/processes.h"

/// Checks before one or several processes train. Internal to train; not exported.
namespace mezzo {

/// Checks that options and data (or parts) of all processes fit together and that so many processes
/// support these options. Collective; throws InvalidArgument on all processes.
void check_group(const Dataset& dataset, const TrainOptions& options, Processes& processes);

}  // namespace mezzo
