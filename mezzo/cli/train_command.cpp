#include <iostream>

#include "mezzo/cli/arguments.h"
#include "mezzo/cli/commands.h"
#include "mezzo/cli/image_command.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/runs.h"
#include "mezzo/train/files.h"
#include "mezzo/train/report.h"

namespace mezzo::cli {

int train_command(const Arguments& arguments) {
  if (wants_image_model(arguments)) return train_images_command(arguments);
  RunArguments run;
  TrainOptions& options = run.options;
  CLI::App app("Trains a model on the full graph of a data set, in one precision", "mezzo train");
  add_data_options(app, run.data);
  OptionGroup(app, "Model")
      .choice("--model", nn::ModelKinds{}, options.model,
              "Model (or cnn, for images: see mezzo train --model cnn --help)");
  add_model_options(app, options);
  OptionGroup(app, "Training")
      .value(
          "--precision", "fp32|tf32|bf16|fp16",
          [&options](const std::string& text) { options.precision = amp::parse_precision(text); },
          "Precision of the products; weights stay float32", "fp32");
  add_training_options(app, run);
  add_machine_options(app, run.machine);
  OptionGroup(app, "Files")
      .text("--checkpoint", options.checkpoint, "FILE",
            "Write the state at the end, at an interrupt and once a minute")
      .text("--resume", options.resume, "FILE", "Go on from a checkpoint, bit for bit");
  add_report_options(app, run.json);
  if (!parse_arguments(app, arguments)) return kSuccess;

  finish(run);
  check_options(options);
  const Dataset dataset = load(run.data);
  std::vector<TrainReport> reports;
  train_runs(dataset, run, "", reports);

  std::cout << format_report(reports) << std::flush;
  if (!run.json.empty()) {
    replace_file(run.json, [&](std::ostream& file) { file << report_to_json(reports); });
  }
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace mezzo::cli
