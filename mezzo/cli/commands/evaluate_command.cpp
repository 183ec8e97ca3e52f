#include <iostream>
#include <optional>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/checkpoint_arguments.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/report/scores_json.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

std::string evaluation_json(const LoadedCheckpoint& loaded, const Scores& scores) {
  const TrainOptions& options = loaded.trained.options;
  const std::string metric = metric_name(loaded.dataset.metric);
  OrderedJson object = {
      {"dataset", loaded.dataset.name},
      {"split_index", options.split_index},
      {"model", name_of(nn::ModelKinds{}, options.model)},
      {"precision", amp::to_string(options.precision)},
      {"device", options.device.str()},
      {"metric", metric},
      {"best_epoch", loaded.trained.epoch},
  };
  object.update(scores_to_json(metric, scores));
  object["version"] = kVersion;
  return json_text(object);
}

/// Warns if the run has trained on targets of the test.
void warn_of_training_targets(const LoadedCheckpoint& loaded) {
  const std::int64_t split = loaded.trained.options.split_index;
  if (!loaded.training_targets.defined()) return;
  const at::Tensor test = loaded.dataset.split(split).test;
  const auto count = [](const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); };
  const std::int64_t both = count(test.logical_and(loaded.training_targets));
  if (both == 0) return;
  constexpr const char* kText = "{} of the {} test {}s of split {} were training {}s of the run";
  const std::string_view target = name_of(TaskTargets{}, loaded.dataset.target);
  TORCH_WARN("mezzo: ", fmt::format(kText, both, count(test), target, split, target));
}

}  // namespace

int evaluate_command(const Arguments& arguments) {
  CheckpointArguments parsed;
  std::string json;
  OptionParser app("Measures the best weights of a checkpoint on a data set", "mezzo evaluate");
  add_checkpoint_options(app, parsed);
  OptionGroup(app, "Data")
      .number("--split-index", parsed.data.split_index,
              "Which split, from 0 (default: the checkpoint's)");
  add_metric_option(app, parsed.data.load.metric);
  add_report_options(app, json);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();

  if (!json.empty()) check_writable("--json", json);
  const LoadedCheckpoint loaded = load(parsed);
  check_not_read("--json", json, loaded.dataset.origin);
  warn_of_training_targets(loaded);
  std::optional<Stage> stage(std::in_place, "evaluating");
  const Scores scores = evaluate(loaded.dataset, loaded.trained);
  stage.reset();

  const TrainOptions& options = loaded.trained.options;
  std::cout << fmt::format("{} in {} on {}, split {}, weights of epoch {}\n",
                           name_of(nn::ModelKinds{}, options.model),
                           amp::to_string(options.precision), loaded.dataset.name,
                           options.split_index, loaded.trained.epoch)
            << format_table({{metric_name(loaded.dataset.metric), "train", "val", "test"},
                             {"", format_score(scores.train), format_score(scores.val),
                              format_score(scores.test)}})
            << std::flush;
  if (!json.empty()) {
    replace_file(json, [&](std::ostream& file) { file << evaluation_json(loaded, scores); });
  }
  return kSuccess;
}

}  // namespace mezzo::cli
