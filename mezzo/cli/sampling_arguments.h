#pragma once

#include <optional>
#include <string>

#include "mezzo/cli/options.h"
#include "mezzo/train/sampling_options.h"

namespace mezzo::cli {

/// Adds the options of training by mini-batches. The first one given makes `sampling`, which stays
/// empty without any; what belongs together is checked by check_options(). title: the heading in
/// the help; empty: they are not shown there.
void add_sampling_options(CLI::App& app, std::optional<SamplingOptions>& sampling,
                          const std::string& title = "Mini-batches");

}  // namespace mezzo::cli
