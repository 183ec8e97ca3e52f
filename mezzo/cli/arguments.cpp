#include "mezzo/cli/arguments.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>

#include "mezzo/cli/sampling_arguments.h"
#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/data/convert.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

void set_self_loops(TrainOptions& options, bool on) {
  MEZZO_CHECK(options.self_loops.value_or(on) == on,
              "--self-loops and --no-self-loops contradict each other");
  options.self_loops = on;
}

}  // namespace

void add_data_options(CLI::App& app, DataArguments& data) {
  OptionGroup(app, "Data")
      .text("--dataset", data.dataset, "PATH|NAME",
            "A data set's file or folder, or a name of 'mezzo data list'")
      .text("--split", data.split, "NAME",
            "Which of the splits that have names: *_mask_NAME.npy of an npy folder, a split "
            "type of OGB, a task of GraphBolt")
      .number("--split-index", data.split_index, "Which of the data set's splits, from 0");
}

void add_machine_options(CLI::App& app, MachineArguments& machine) {
  OptionGroup(app, "Machine")
      .text("--device", machine.device, "cpu|cuda|cuda:N", "Where to compute")
      .number("--threads", machine.threads, "CPU threads (default: one a core)");
}

void add_model_options(CLI::App& app, TrainOptions& options) {
  OptionGroup(app, "Model")
      .number("--layers", options.layers, "Layers; sgc: hops of its one layer")
      .number("--hidden", options.hidden, "Width of a hidden layer, of each head (default: 16)")
      .number("--heads", options.heads, "gat: heads of a hidden layer (default: 8)")
      .number("--output-heads", options.output_heads, "gat: heads of the last layer (default: 1)")
      .number("--dropout", options.dropout, "Share of the features dropped before each layer")
      .number("--attention-dropout", options.attention_dropout,
              "gat: share of the attention dropped (default: 0)")
      .choice("--norm", nn::Normalizations{}, options.normalization,
              "Normalization after each hidden layer")
      .flag("--skip", options.skip, "Add each layer's input to its output")
      .flag(
          "--self-loops", [&options](bool on) { set_self_loops(options, on); },
          "Give every node one edge to itself (default for gcn, gat and sgc)")
      .flag(
          "--no-self-loops", [&options](bool on) { set_self_loops(options, !on); },
          "Take the edges as they are (default for sage and gin)");
}

void add_step_options(CLI::App& app, TrainOptions& options) {
  OptionGroup(app, "Training")
      .number("--lr", options.learning_rate, "Learning rate")
      .number("--weight-decay", options.weight_decay, "Weight decay of every parameter")
      .choice("--optimizer", OptimizerKinds{}, options.optimizer, "Optimizer")
      .number("--loss-factor", options.loss_factor,
              "Factor on the loss that is minimised; losses are told without it")
      .number("--seed", options.seed, "Seed of weights, dropout and sampling")
      .flag("--normalize-features", options.normalize_features,
            "Divide each row of the features by the sum of its magnitudes");
}

void add_training_options(CLI::App& app, RunArguments& run) {
  TrainOptions& options = run.options;
  OptionGroup(app, "Training")
      .number("--epochs", options.epochs,
              "Epochs, each one step on all training nodes, or one pass over mini-batches");
  add_step_options(app, options);
  OptionGroup(app, "Training")
      .value(
          "--loss-scale", "dynamic|NUMBER|none",
          [&options](const std::string& text) { options.loss_scale = parse_loss_scale(text); },
          "Factor on the loss before the backward, which the gradients are divided by again "
          "(default: dynamic for fp16, else none)")
      .list(
          "--keep-float32", "PATH,...",
          [&options](const std::vector<std::string>& paths) { options.keep_float32 = paths; },
          "Parts of the model that bf16 and fp16 leave in float32: layer0, norm0, skip0, ...")
      .flag("--capture", options.capture,
            "Capture the step as a CUDA graph: on CUDA, on the full graph")
      .number("--patience", options.patience,
              "Stop after N epochs without a better validation score")
      .number("--eval-every", options.eval_every, "Evaluate every N epochs, and at the end")
      .number("--runs", run.runs,
              "Runs with the seeds SEED, SEED+1, ...; without --split-index also with the splits "
              "0, 1, ... in turn");
  add_sampling_options(app, options.sampling);
}

void add_report_options(CLI::App& app, std::string& json) {
  OptionGroup(app, "Files").text("--json", json, "FILE", "Write the report as JSON");
  add_config(app);
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

Dataset load(const DataArguments& data, LoadOptions options) {
  options.split = data.split;
  return load_dataset(data.dataset, options);
}

std::string lasting_name(const std::string& dataset) {
  const std::vector<KnownDataset> known = list_datasets();
  const bool named = std::any_of(known.begin(), known.end(), [&](const KnownDataset& candidate) {
    return candidate.name == dataset;
  });
  return named ? dataset : std::filesystem::absolute(dataset).lexically_normal().string();
}

void finish(RunArguments& run) {
  TrainOptions& options = run.options;
  options.device = use_machine(run.machine);
  options.dataset = lasting_name(run.data.dataset);
  options.split = run.data.split;
  options.split_index = run.data.split_index.value_or(0);
  MEZZO_CHECK(run.runs >= 1, "--runs: expected at least 1, got {}", run.runs);
  MEZZO_CHECK(static_cast<std::uint64_t>(run.runs) - 1 <=
                  std::numeric_limits<std::uint64_t>::max() - options.seed,
              "--runs: {} runs from seed {} on go beyond the largest seed", run.runs, options.seed);
  MEZZO_CHECK(run.runs == 1 || options.checkpoint.empty(),
              "--checkpoint keeps one run, and --runs is {}", run.runs);
  MEZZO_CHECK(run.runs == 1 || options.resume.empty(),
              "--resume continues one run, and --runs is {}", run.runs);
  if (!run.json.empty()) check_writable("--json", run.json);
  if (!options.checkpoint.empty()) check_writable("--checkpoint", options.checkpoint);
  const std::string origin = data::origin_of(run.data.dataset);
  check_not_read("--json", run.json, origin);
  // What is resumed is read as a checkpoint first, so it is one.
  const bool goes_on = options.checkpoint == options.resume;
  if (!goes_on) check_not_read("--checkpoint", options.checkpoint, origin);
}

}  // namespace mezzo::cli
