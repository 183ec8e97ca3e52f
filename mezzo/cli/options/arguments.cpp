#include "mezzo/cli/options/arguments.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>

#include "mezzo/cli/progress.h"
#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/data/convert.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

/// The default in the help of an option that the recipe sets.
constexpr const char* kByRecipe = "recipe";

/// The type of an option in the help.
template <class T>
constexpr const char* kTypeName = fields::Enumerated<T> ? "NAME" : "N";
template <>
constexpr const char* kTypeName<double> = "NUMBER";
template <>
constexpr const char* kTypeName<amp::Precision> = "fp32|tf32|bf16|fp16";
template <>
constexpr const char* kTypeName<LossScale> = "dynamic|NUMBER|none";

void set_switch(const std::string& name, std::optional<bool>& target, bool on) {
  MEZZO_CHECK(target.value_or(on) == on, "--{} and --no-{} contradict each other", name, name);
  target = on;
}

std::vector<std::int64_t> parse_counts(const std::string& flag, const Arguments& texts) {
  std::vector<std::int64_t> counts;
  for (const std::string& text : texts) {
    counts.push_back(text == "all" ? parse_fanout(text) : parse_number<std::int64_t>(flag, text));
  }
  return counts;
}

/// Adds the flag of one option, which sets the member of options().
template <class Options, class T, class Target>
void add_field(OptionGroup group, const fields::Field<Options, T>& field, Target options) {
  using Value = typename fields::Unwrapped<T>::Type;
  const auto member = field.member;
  const T initial = Options().*member;
  const std::string name = field.name, flag = "--" + flag_of(field);
  if constexpr (std::is_same_v<T, bool>) {
    const auto set = [=](bool on) { options().*member = on != initial; };
    group.flag(flag, set, field.help);
  } else if constexpr (std::is_same_v<Value, bool>) {
    const auto set = [=](bool on) { set_switch(name, options().*member, on); };
    group.flag(flag, set, field.help);
    group.flag(
        "--no-" + name, [=](bool on) { set(!on); }, "The opposite of " + flag);
  } else if constexpr (std::is_same_v<T, std::string>) {
    group.text(flag, options().*member, "FILE", field.help);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    group.list(
        flag, "PART,...", [=](const Arguments& texts) { options().*member = texts; }, field.help);
  } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    const auto set = [=](const Arguments& texts) { options().*member = parse_counts(flag, texts); };
    group.list(flag, "N,...", set, field.help);
  } else if constexpr (fields::Textual<Value>) {
    const auto set = [=](const std::string& text) {
      Value value = {};
      fields::from_text(flag, text, value);
      options().*member = value;
    };
    std::string help = field.help, default_text;
    if constexpr (fields::Enumerated<Value>) help += ": " + detail::names(fields::words(Value()));
    // The default loss scale depends on the precision.
    if constexpr (std::is_same_v<T, Value> && !std::is_same_v<T, LossScale>) {
      default_text = fields::to_text(initial);
    }
    const bool by_recipe = field.rules.in_recipe || field.group == fields::Group::kModelKind;
    group.value(flag, kTypeName<Value>, set, help, by_recipe ? kByRecipe : default_text);
  } else {
    const auto set = [=](const std::string& text) {
      options().*member = parse_number<Value>(flag, text);
    };
    std::string default_text = field.rules.in_recipe ? kByRecipe : "";
    if constexpr (std::is_same_v<T, Value>) {
      if (!field.rules.in_recipe) default_text = fmt::format("{}", initial);
    }
    group.value(flag, kTypeName<Value>, set, field.help, default_text);
  }
}

template <class Options, class T>
bool given(const OptionParser& app, const fields::Field<Options, T>& field) {
  return app.given(std::string("--") + field.name) || app.given(std::string("--no-") + field.name);
}

const char* title_of(fields::Group group) {
  switch (group) {
    case fields::Group::kModelKind:
    case fields::Group::kModel:
      return "Model";
    case fields::Group::kProcesses:
      return "Machine";
    case fields::Group::kFiles:
      return "Files";
    default:
      return "Training";
  }
}

}  // namespace

void add_format_options(OptionParser& app, std::optional<Task>& task, CsvColumns& csv) {
  OptionGroup(app, "Data")
      .value(
          "--task", "NAME",
          [&task](const std::string& text) { task = parse(Tasks{}, "--task", text); },
          "Task, if the files have labels of several kinds: " + detail::names(Tasks{}));
  fields::for_each(fields::kColumns, [&](const auto& field) {
    OptionGroup(app, "Data")
        .text(std::string("--") + field.name, csv.*field.member, "COLUMN", field.help);
  });
}

void add_metric_option(OptionParser& app, std::optional<Metric>& metric) {
  OptionGroup(app, "Data")
      .value(
          "--metric", "NAME",
          [&metric](const std::string& text) { metric = parse(Metrics{}, "--metric", text); },
          "Score (default: by the data): " + detail::names(Metrics{}));
}

void add_data_options(OptionParser& app, DataArguments& data) {
  OptionGroup(app, "Data")
      .text("--dataset", data.dataset, "PATH|NAME",
            "File or folder of a data set, or a name of 'mezzo data list'")
      .text("--split", data.load.split, "NAME",
            "Which of the splits that have names: *_mask_NAME.npy of an npy folder, a split "
            "type of OGB, a task of GraphBolt")
      .number("--split-index", data.split_index, "Split by number, from 0");
  add_metric_option(app, data.load.metric);
  add_format_options(app, data.load.task, data.load.csv);
}

void add_machine_options(OptionParser& app, MachineArguments& machine) {
  OptionGroup(app, "Machine")
      .text("--device", machine.device, "cpu|cuda|cuda:N", "Where to compute")
      .number("--threads", machine.threads, "CPU threads (default: one a core)");
}

void add_training_options(OptionParser& app, TrainOptions& options,
                          std::initializer_list<fields::Group> groups) {
  fields::for_each(fields::kTraining, [&](const auto& field) {
    if (std::find(groups.begin(), groups.end(), field.group) == groups.end()) return;
    const auto target = [&options]() -> TrainOptions& { return options; };
    add_field(OptionGroup(app, title_of(field.group)), field, target);
  });
}

void add_sampling_options(OptionParser& app, std::optional<SamplingOptions>& sampling) {
  const auto target = [&sampling]() -> SamplingOptions& {
    return sampling ? *sampling : sampling.emplace();
  };
  fields::for_each(fields::kSampling, [&](const auto& field) {
    add_field(OptionGroup(app, "Mini-batches"), field, target);
  });
}

void add_recipe_option(OptionParser& app, RecipeKind& recipe) {
  OptionGroup(app, "Model")
      .choice(
          "--recipe", RecipeKinds{}, recipe,
          "How options that you leave out are chosen: by the data, or as in Kipf and Welling 2017");
}

void add_precision_option(OptionParser& app, RunArguments& run) {
  OptionGroup(app, "Training")
      .value(
          "--precision", "auto|fp32|tf32|bf16|fp16",
          [&run](const std::string& text) {
            run.precision =
                text == "auto" ? std::nullopt : std::optional(amp::parse_precision(text));
            run.options.precision = run.precision.value_or(amp::Precision::kFloat32);
          },
          "Precision of the products; weights stay float32. auto: the fastest one of this "
          "processor that has float32's range",
          "auto");
}

void add_run_options(OptionParser& app, RunArguments& run) {
  using enum fields::Group;
  add_recipe_option(app, run.recipe);
  add_training_options(app, run.options, {kModel, kStep, kTraining});
  OptionGroup(app, "Training")
      .number("--runs", run.runs,
              "Runs with the seeds SEED, SEED+1, ...; without --split-index also with the splits "
              "0, 1, ... in turn");
  add_sampling_options(app, run.options.sampling);
}

void copy_given(const OptionParser& app, const TrainOptions& by_hand, TrainOptions& options) {
  fields::for_each(fields::kTraining, [&](const auto& field) {
    if (given(app, field)) options.*field.member = by_hand.*field.member;
  });
  if (!by_hand.sampling) return;
  if (!options.sampling) options.sampling.emplace();
  fields::for_each(fields::kSampling, [&](const auto& field) {
    if (given(app, field)) (*options.sampling).*field.member = (*by_hand.sampling).*field.member;
  });
}

TrainOptions with_recipe(const OptionParser& app, const RunArguments& run, const Dataset& dataset,
                         const TrainOptions& by_hand) {
  if (run.recipe == RecipeKind::kPlanetoid) return by_hand;
  TrainOptions options = recommended_options(
      dataset, by_hand, app.given("--layers") ? std::optional(by_hand.layers) : std::nullopt);
  set_heads(options, by_hand.heads);
  copy_given(app, by_hand, options);
  // Who asks for a number of epochs gets them all.
  if (app.given("--epochs") && !app.given("--patience")) options.patience = std::nullopt;
  return options;
}

void choose_model(const OptionParser& app, RecipeKind recipe, const Dataset& dataset,
                  nn::ModelKind& model) {
  if (recipe == RecipeKind::kAuto && !app.given("--model")) model = recommended_model(dataset);
}

std::vector<std::string> given_options(const OptionParser& app) {
  std::vector<std::string> names;
  fields::for_each(fields::kTraining, [&](const auto& field) {
    if (given(app, field)) names.emplace_back(field.name);
  });
  return names;
}

void add_report_options(OptionParser& app, std::string& json) {
  OptionGroup(app, "Files").text("--json", json, "FILE", "Write the report as JSON");
  add_config(app);
}

void add_report_options(OptionParser& app, RunArguments& run) {
  OptionGroup(app, "Files")
      .text("--report", run.report, "FILE.html", "Write the report as a page with pictures");
  add_report_options(app, run.json);
}

at::Device use_machine(const MachineArguments& machine) {
  constexpr std::int64_t kMostThreads = 4096;
  if (machine.threads) {
    MEZZO_CHECK(*machine.threads >= 1 && *machine.threads <= kMostThreads,
                "--threads: expected 1 to {}, got {}", kMostThreads, *machine.threads);
    at::set_num_threads(static_cast<int>(*machine.threads));
  }
  return parse_device(machine.device);
}

Dataset load(const DataArguments& data) {
  const Stage stage("reading " + data.dataset);
  return load_dataset(data.dataset, data.load);
}

std::string absolute_dataset(const std::string& dataset) {
  const std::vector<KnownDataset> known = list_datasets();
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const KnownDataset& candidate) {
    return candidate.name == dataset;
  });
  return is_known ? dataset : std::filesystem::absolute(dataset).lexically_normal().string();
}

void finish(const OptionParser& app, RunArguments& run) {
  TrainOptions& options = run.options;
  const bool has_recipe = run.recipe == RecipeKind::kAuto && options.resume.empty();
  if (has_recipe && !app.given("--layers")) {
    options.layers = sampled_layers(options).value_or(options.layers);
  }
  options.device = use_machine(run.machine);
  options.dataset = absolute_dataset(run.data.dataset);
  options.split = run.data.load.split;
  options.csv = run.data.load.csv;
  options.split_index = run.data.split_index.value_or(0);
  MEZZO_CHECK(run.runs >= 1, "--runs: expected at least 1, got {}", run.runs);
  MEZZO_CHECK(static_cast<std::uint64_t>(run.runs) - 1 <=
                  std::numeric_limits<std::uint64_t>::max() - options.seed,
              "--runs: the seeds of {} runs from seed {} exceed 64 bits", run.runs, options.seed);
  MEZZO_CHECK(run.runs == 1 || options.checkpoint.empty(),
              "--checkpoint: expected --runs 1, got {}", run.runs);
  if (!run.json.empty()) check_writable("--json", run.json);
  if (!run.tensorboard.empty()) make_folder("--tensorboard", run.tensorboard);
  if (!run.report.empty()) check_writable("--report", run.report);
  if (!options.checkpoint.empty()) check_writable("--checkpoint", options.checkpoint);
  const std::string origin = data::origin_of(run.data.dataset);
  check_not_read("--json", run.json, origin);
  check_not_read("--report", run.report, origin);
  // The resumed file was read as a checkpoint, so it is no data.
  const bool is_resumed = options.checkpoint == options.resume;
  if (!is_resumed) check_not_read("--checkpoint", options.checkpoint, origin);
}

}  // namespace mezzo::cli
