#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/cli/options/options.h"
#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/options/recipe.h"

namespace mezzo::cli {

/// The data set of a command.
struct DataArguments {
  std::string dataset = "wordnet";
  LoadOptions load = {};
  std::optional<std::int64_t> split_index = {};
};

/// Where to compute.
struct MachineArguments {
  std::string device = "cpu";
  std::optional<std::int64_t> threads;
};

/// The options of train and compare.
struct RunArguments {
  DataArguments data;
  MachineArguments machine;
  TrainOptions options;
  RecipeKind recipe = RecipeKind::kAuto;
  std::optional<amp::Precision> precision = {};  ///< train: of the products; nullopt: automatic
  std::int64_t runs = 1;
  std::string json, report;      ///< files to write; empty: none
  std::string tensorboard = {};  ///< train: the folder of event files; empty: none
};

/// Adds --task, and the options that name the columns of a CSV folder.
void add_format_options(OptionParser& app, std::optional<Task>& task, CsvColumns& csv);
/// Adds --metric.
void add_metric_option(OptionParser& app, std::optional<Metric>& metric);
void add_data_options(OptionParser& app, DataArguments& data);
void add_machine_options(OptionParser& app, MachineArguments& machine);
/// Adds the options of training that are in one of the groups, in the order of fields::kTraining.
void add_training_options(OptionParser& app, TrainOptions& options,
                          std::initializer_list<fields::Group> groups);
/// Adds the options of mini-batches. The first one that is set creates `sampling`.
void add_sampling_options(OptionParser& app, std::optional<SamplingOptions>& sampling);
/// Adds --precision, which sets run.precision.
void add_precision_option(OptionParser& app, RunArguments& run);
/// Adds --recipe.
void add_recipe_option(OptionParser& app, RecipeKind& recipe);
/// Adds the options of training and mini-batches that train and compare share, and --runs.
void add_run_options(OptionParser& app, RunArguments& run);
/// Copies the options of training and of mini-batches that were given by hand, so that they
/// override a file's options: `by_hand`, which `app` has set, to `options`. The device is not
/// copied.
void copy_given(const OptionParser& app, const TrainOptions& by_hand, TrainOptions& options);
/// `by_hand`, which `app` has set, and run.recipe's values for the options that were not set.
TrainOptions with_recipe(const OptionParser& app, const RunArguments& run, const Dataset& dataset,
                         const TrainOptions& by_hand);
/// Sets the model that recipe auto has for the data, unless --model was given.
void choose_model(const OptionParser& app, RecipeKind recipe, const Dataset& dataset,
                  nn::ModelKind& model);
/// The names, without dashes, of the options of training that were given by hand.
std::vector<std::string> given_options(const OptionParser& app);
/// Adds --json and --config.
void add_report_options(OptionParser& app, std::string& json);
/// The same, and --report.
void add_report_options(OptionParser& app, RunArguments& run);

/// Sets the number of threads and returns the device. Throws InvalidArgument.
at::Device use_machine(const MachineArguments& machine);

/// load_dataset(), while the terminal says so.
Dataset load(const DataArguments& data);

/// `dataset` with an absolute path, for later commands in other folders; names stay.
std::string absolute_dataset(const std::string& dataset);

/// Sets the options that come from other arguments of `app`, and runs the checks that do not need
/// the data. Throws InvalidArgument or IoError.
void finish(const OptionParser& app, RunArguments& run);

}  // namespace mezzo::cli
