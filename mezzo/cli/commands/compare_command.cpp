#include <algorithm>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/runs.h"
#include "mezzo/runtime/memory.h"
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

/// Appends `value`; throws if it is there already.
template <class T>
void append(std::vector<T>& values, T value, const char* flag, const std::string& text) {
  MEZZO_CHECK(std::find(values.begin(), values.end(), value) == values.end(),
              "{}: '{}' is listed twice", flag, text);
  values.push_back(value);
}

void add_compared(OptionParser& app, CompareArguments& compare) {
  OptionGroup(app, "Model")
      .value(
          "--model", "NAME",
          [&compare](const std::string& text) {
            compare.model = parse(nn::ModelKinds{}, "--model", text);
          },
          "Model: " + detail::names(nn::ModelKinds{}), "recipe")
      .list(
          "--models", "NAME,...",
          [&compare](const std::vector<std::string>& words) {
            compare.models.clear();
            for (const std::string& word : words) {
              append(compare.models, parse(nn::ModelKinds{}, "--models", word), "--models", word);
            }
          },
          "Several models, instead of --model; an option that only some have applies to those");
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

/// Whether `applies` holds for one of the compared models and precisions.
bool applies_to_any(bool (*applies)(const TrainOptions&), const CompareArguments& compare) {
  TrainOptions options;
  for (const nn::ModelKind model : compare.models) {
    for (const amp::Precision precision : compare.precisions) {
      options.model = model;
      options.precision = precision;
      if (applies(options)) return true;
    }
  }
  return false;
}

/// The options for one model and precision, without options that apply only to the others.
TrainOptions options_for(nn::ModelKind model, amp::Precision precision,
                         const CompareArguments& compare) {
  TrainOptions options = compare.run.options;
  options.model = model;
  options.precision = precision;
  fields::for_each(fields::kTraining, [&](const auto& field) {
    const auto applies = field.rules.applies;
    if (applies == nullptr || applies(options) || !applies_to_any(applies, compare)) return;
    options.*field.member = TrainOptions().*field.member;
  });
  return options;
}

ComparisonRow train_row(const OptionParser& app, const Dataset& dataset,
                        const CompareArguments& compare, nn::ModelKind model,
                        amp::Precision precision) {
  RunArguments run = compare.run;
  run.options = with_recipe(app, run, dataset, options_for(model, precision, compare));
  check_options(run.options);
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

std::vector<ComparisonRow> train_rows(const OptionParser& app, const Dataset& dataset,
                                      const CompareArguments& compare) {
  std::vector<ComparisonRow> rows;
  for (const nn::ModelKind model : compare.models) {
    for (const amp::Precision precision : compare.precisions) {
      rows.push_back(train_row(app, dataset, compare, model, precision));
      if (interrupted()) return rows;
    }
  }
  return rows;
}

}  // namespace

int compare_command(const Arguments& arguments) {
  CompareArguments compare;
  RunArguments& run = compare.run;
  OptionParser app("Trains one or several models in several precisions, each from the same seed",
                   "mezzo compare");
  add_data_options(app, run.data);
  add_compared(app, compare);
  add_run_options(app, run);
  add_machine_options(app, run.machine);
  add_report_options(app, run);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();
  keep_freed_pages();

  MEZZO_CHECK(!compare.model || compare.models.empty(),
              "--model and --models: expected only one of them");
  const bool is_list = !compare.models.empty();
  if (!is_list) compare.models = {compare.model.value_or(nn::ModelKind::kGcn)};
  finish(app, run);
  for (const nn::ModelKind model : compare.models) {
    for (const amp::Precision precision : compare.precisions) {
      check_options(options_for(model, precision, compare));
    }
  }
  const Dataset dataset = load(run.data);
  if (!is_list) choose_model(app, run.recipe, dataset, compare.models.front());
  const std::vector<ComparisonRow> rows = train_rows(app, dataset, compare);

  std::cout << format_comparison(rows) << std::flush;
  if (!run.json.empty()) {
    replace_file(run.json, [&](std::ostream& file) { file << comparison_to_json(rows); });
  }
  if (!run.report.empty()) {
    const std::string text = page::compare_page(dataset.name, rows);
    replace_file(run.report, [&](std::ostream& file) { file << text; });
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
