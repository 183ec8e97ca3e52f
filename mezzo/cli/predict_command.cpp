#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "mezzo/cli/checkpoint_arguments.h"
#include "mezzo/cli/commands.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/inference.h"

namespace mezzo::cli {

int predict_command(const Arguments& arguments) {
  CheckpointArguments parsed;
  std::string output;
  OptionParser app(
      "Writes the predictions of the best weights of a checkpoint for all nodes; needs no labels",
      "mezzo predict");
  add_checkpoint_options(app, parsed);
  OptionGroup(app, "Files")
      .text("--output", output, "FILE.csv|FILE.npy",
            "CSV with node, class and probability, of multi-label data the probability of each "
            "class; or npy with the classes (required)");
  add_config(app);
  if (!parse_arguments(app, arguments)) return kSuccess;

  MEZZO_CHECK(!output.empty(), "--output is required");
  const std::string kind = std::filesystem::path(output).extension().string();
  MEZZO_CHECK(kind == ".csv" || kind == ".npy",
              "--output: expected a name that ends in .csv or .npy, got '{}'", output);
  check_writable("--output", output);
  const LoadedCheckpoint loaded = load(parsed, {.labels_optional = true});
  check_not_read("--output", output, loaded.dataset.origin);
  const Predictions predictions = predict(loaded.dataset, loaded.checkpoint);
  if (kind == ".csv") {
    write_csv(output, predictions);
  } else {
    write_npy(output, predictions);
  }
  std::cout << fmt::format("{} predictions in {}\n", predictions.classes.size(0), output)
            << std::flush;
  return kSuccess;
}

}  // namespace mezzo::cli
