#include <algorithm>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "mezzo/cli/arguments.h"
#include "mezzo/cli/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/runs.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/report/report.h"

namespace mezzo::cli {
namespace {

struct CompareArguments {
  RunArguments run;
  std::optional<nn::ModelKind> model;
  std::vector<nn::ModelKind> models;
  std::vector<amp::Precision> precisions = {amp::Precision::kFloat32, amp::Precision::kBFloat16};
};

/// Appends `value`; a second time is an error.
template <class T>
void append(std::vector<T>& values, T value, const char* flag, const std::string& text) {
  MEZZO_CHECK(std::find(values.begin(), values.end(), value) == values.end(),
              "{}: '{}' stands there twice", flag, text);
  values.push_back(value);
}

void add_compared(CLI::App& app, CompareArguments& compare) {
  OptionGroup(app, "Model")
      .value(
          "--model", "NAME",
          [&compare](const std::string& text) {
            compare.model = parse(nn::ModelKinds{}, "--model", text);
          },
          "Model: " + names(nn::ModelKinds{}), "gcn")
      .list(
          "--models", "NAME,...",
          [&compare](const std::vector<std::string>& words) {
            compare.models.clear();
            for (const std::string& word : words) {
              append(compare.models, parse(nn::ModelKinds{}, "--models", word), "--models", word);
            }
          },
          "Several models, instead of --model; an option of some of them goes to those alone");
  OptionGroup(app, "Training")
      .list(
          "--precisions", "NAME,...",
          [&compare](const std::vector<std::string>& words) {
            compare.precisions.clear();
            for (const std::string& word : words) {
              append(compare.precisions, amp::parse_precision(word), "--precisions", word);
            }
          },
          "Precisions: fp32, tf32, bf16, fp16", "fp32,bf16");
}

/// Among several models and precisions, options that not all of them have go only to those that
/// have them.
TrainOptions options_for(nn::ModelKind model, amp::Precision precision,
                         const CompareArguments& compare) {
  TrainOptions options = compare.run.options;
  options.model = model;
  options.precision = precision;
  const bool any_low = std::any_of(compare.precisions.begin(), compare.precisions.end(), is_low);
  if (!is_low(precision) && any_low) options.keep_float32.clear();
  const auto among = [&](nn::ModelKind kind) {
    return std::find(compare.models.begin(), compare.models.end(), kind) != compare.models.end();
  };
  if (model != nn::ModelKind::kGat && among(nn::ModelKind::kGat)) {
    options.heads.reset();
    options.output_heads.reset();
    options.attention_dropout.reset();
  }
  if (compare.models.size() > 1) {
    if (model == nn::ModelKind::kMlp) options.self_loops.reset();
    if (model == nn::ModelKind::kSgc) {
      options.hidden.reset();
      options.normalization = nn::Normalization::kNone;
    }
  }
  return options;
}

ComparisonRow train_row(const Dataset& dataset, const CompareArguments& compare,
                        nn::ModelKind model, amp::Precision precision) {
  RunArguments run = compare.run;
  run.options = options_for(model, precision, compare);
  ComparisonRow row;
  row.model = name_of(nn::ModelKinds{}, model);
  row.precision = amp::to_string(precision);
  try {
    train_runs(dataset, run, row.model + " " + row.precision, row.runs);
  } catch (const NumericError& error) {
    row.error = error.what();
  }
  return row;
}

std::vector<ComparisonRow> train_rows(const Dataset& dataset, const CompareArguments& compare) {
  std::vector<ComparisonRow> rows;
  for (const nn::ModelKind model : compare.models) {
    for (const amp::Precision precision : compare.precisions) {
      rows.push_back(train_row(dataset, compare, model, precision));
      if (interrupted()) return rows;
    }
  }
  return rows;
}

}  // namespace

int compare_command(const Arguments& arguments) {
  CompareArguments compare;
  RunArguments& run = compare.run;
  CLI::App app("Trains one or several models in several precisions, each from the same seed",
               "mezzo compare");
  add_data_options(app, run.data);
  add_compared(app, compare);
  add_model_options(app, run.options);
  add_training_options(app, run);
  add_machine_options(app, run.machine);
  add_report_options(app, run.json);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();

  MEZZO_CHECK(!compare.model || compare.models.empty(),
              "--model and --models: expected one of them");
  if (compare.models.empty()) compare.models = {compare.model.value_or(nn::ModelKind::kGcn)};
  finish(run);
  for (const nn::ModelKind model : compare.models) {
    for (const amp::Precision precision : compare.precisions) {
      check_options(options_for(model, precision, compare));
    }
  }
  const Dataset dataset = load(run.data);
  const std::vector<ComparisonRow> rows = train_rows(dataset, compare);

  std::cout << format_comparison(rows) << std::flush;
  if (!run.json.empty()) {
    replace_file(run.json, [&](std::ostream& file) { file << comparison_to_json(rows); });
  }
  if (interrupted()) return kInterrupted;
  for (const ComparisonRow& row : rows) {
    if (!row.error.empty()) {
      throw NumericError(fmt::format("{} {}: {}", row.model, row.precision, row.error));
    }
  }
  return kSuccess;
}

}  // namespace mezzo::cli
