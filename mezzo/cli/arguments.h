#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mezzo/cli/options.h"
#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options.h"

namespace mezzo::cli {

/// Which data, for every command that reads some.
struct DataArguments {
  std::string dataset = "wordnet";
  std::string split;
  std::optional<std::int64_t> split_index;
};

/// Where to compute.
struct MachineArguments {
  std::string device = "cpu";
  std::optional<std::int64_t> threads;
};

/// What train and compare share.
struct RunArguments {
  DataArguments data;
  MachineArguments machine;
  TrainOptions options;
  std::int64_t runs = 1;
  std::string json;
};

void add_data_options(CLI::App& app, DataArguments& data);
void add_machine_options(CLI::App& app, MachineArguments& machine);
/// All options of a model but --model itself.
void add_model_options(CLI::App& app, TrainOptions& options);
/// The options of one training step: optimizer, loss, seed.
void add_step_options(CLI::App& app, TrainOptions& options);
/// Those, and all other options of training but --precision.
void add_training_options(CLI::App& app, RunArguments& run);
/// Adds --json and --config.
void add_report_options(CLI::App& app, std::string& json);

/// Sets the number of threads and returns the device. Throws InvalidArgument.
at::Device use_machine(const MachineArguments& machine);

/// Reads the data set, as `options` say but for the split, which is that of `data`. Throws as
/// load_dataset.
Dataset load(const DataArguments& data, LoadOptions options = {});

/// `dataset` as another process in another folder can load it: paths become absolute.
std::string lasting_name(const std::string& dataset);

/// Fills in what the options take from the other arguments, and checks what can be checked without
/// the data. Throws InvalidArgument or IoError.
void finish(RunArguments& run);

}  // namespace mezzo::cli
