#include "mezzo/cli/image_command.h"

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "mezzo/cli/arguments.h"
#include "mezzo/cli/image_progress.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/files.h"
#include "mezzo/train/image_checkpoint.h"
#include "mezzo/train/image_trainer.h"
#include "mezzo/train/table.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

/// A data set of images as another process in another folder can find it.
std::string lasting_folder(const std::string& dataset) {
  if (dataset == kFashionMnist) return dataset;
  return std::filesystem::absolute(dataset).lexically_normal().string();
}

struct ImageArguments {
  MachineArguments machine;
  ImageOptions options;
  std::string json;
};

void add_image_options(CLI::App& app, ImageArguments& run) {
  ImageOptions& options = run.options;
  OptionGroup(app, "Data")
      .text("--dataset", options.dataset, "FOLDER|fashion-mnist",
            "Folder of MNIST-style IDX files, or where Debian's dataset-fashion-mnist has them")
      .number("--images", options.images, "Train on the first N images (default: all)");
  OptionGroup(app, "Model")
      .value(
          "--model", "cnn",
          [](const std::string& text) {
            MEZZO_CHECK(text == kImageModel, "--model: expected {}, got '{}'", kImageModel, text);
          },
          "A VGG-like network of 14 convolutions", kImageModel)
      .flag("--channels-last", options.channels_last,
            "Keep activations in memory with the channels innermost");
  OptionGroup(app, "Training")
      .value(
          "--precision", "fp32|tf32|bf16|fp16",
          [&options](const std::string& text) { options.precision = amp::parse_precision(text); },
          "Precision of convolutions and products; weights stay float32", "fp32")
      .flag(
          "--no-cpu-policy",
          [&options](bool off) {
            options.cpu_policy = off ? amp::CpuPolicy::kOff : amp::CpuPolicy::kMeasure;
          },
          "bf16 and fp16 also for what is slower in them on this CPU")
      .number("--epochs", options.epochs, "Epochs, each one pass over the training images")
      .number("--batch-size", options.batch_size, "Images of a step")
      .number("--lr", options.learning_rate, "Learning rate")
      .number("--weight-decay", options.weight_decay, "Weight decay of every parameter")
      .choice("--optimizer", OptimizerKinds{}, options.optimizer, "Optimizer")
      .value(
          "--loss-scale", "dynamic|NUMBER|none",
          [&options](const std::string& text) { options.loss_scale = parse_loss_scale(text); },
          "Factor on the loss before the backward (default: dynamic for fp16, else none)")
      .number("--seed", options.seed, "Seed of the weights and of the order of the images");
  add_machine_options(app, run.machine);
  OptionGroup(app, "Files")
      .text("--checkpoint", options.checkpoint, "FILE",
            "Write the state at the end, at an interrupt and once a minute")
      .text("--resume", options.resume, "FILE", "Go on from a checkpoint, bit for bit");
  add_report_options(app, run.json);
}

/// The checkpoint, its options overridden by the arguments, and the test part to use it on.
struct LoadedImages {
  ImageCheckpoint checkpoint;
  ImageDataset test;
  std::string folder;  ///< of the images
};

LoadedImages load_test_images(const CheckpointArguments& wanted) {
  MEZZO_CHECK(wanted.data.split.empty() && !wanted.data.split_index,
              "--split, --split-index: {} is of a model for images, which have no such splits",
              wanted.checkpoint);
  const at::Device device = use_machine(wanted.machine);
  ImageCheckpoint checkpoint = read_image_checkpoint(wanted.checkpoint);
  checkpoint.options.device = device;
  const std::string dataset =
      wanted.data.dataset.empty() ? checkpoint.options.dataset : wanted.data.dataset;
  const std::string folder = image_folder(dataset);
  return {std::move(checkpoint), load_idx(folder, Split::kTest), folder};
}

}  // namespace

bool wants_image_model(const Arguments& arguments) {
  std::string model, config;
  try {
    CLI::App words;
    words.set_help_flag();
    words.allow_extras();
    OptionGroup(words, "").text("--model", model, "", "").text("--config", config, "", "");
    parse_arguments(words, arguments);
    // A pipe can be read only once, by the parser of all options.
    std::error_code ignored;
    if (model.empty() && std::filesystem::is_regular_file(config, ignored)) {
      CLI::App file;
      OptionGroup(file, "").text("--model", model, "", "");
      add_config(file);
      file.allow_config_extras(CLI::config_extras_mode::ignore);
      parse_arguments(file, {"--config", config});
    }
  } catch (const Error&) {
    return false;
  }
  return model == kImageModel;
}

int train_images_command(const Arguments& arguments) {
  ImageArguments run;
  ImageOptions& options = run.options;
  CLI::App app("Trains a convolutional network on images, in one precision",
               "mezzo train --model cnn");
  add_image_options(app, run);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();

  options.device = use_machine(run.machine);
  if (!run.json.empty()) check_writable("--json", run.json);
  if (!options.checkpoint.empty()) check_writable("--checkpoint", options.checkpoint);
  check_options(options);
  const std::string folder = image_folder(options.dataset);
  check_not_read("--json", run.json, folder);
  if (options.checkpoint != options.resume) {
    check_not_read("--checkpoint", options.checkpoint, folder);
  }
  const ImageData data = load_images(options);
  options.dataset = lasting_folder(options.dataset);
  ImageProgress progress(std::cerr, progress_style());
  ImageCallbacks callbacks;
  callbacks.on_step = [&progress](const ImageStepRecord& record) { progress.show(record); };
  callbacks.should_stop = interrupted;
  handle_interrupts();
  const auto show = [&](const TrainReport& report, const std::string& error) {
    progress.finish();
    std::cout << format_report({report}) << std::flush;
    if (run.json.empty()) return;
    replace_file(run.json, [&](std::ostream& file) { file << report_to_json({report}, error); });
  };
  try {
    show(train_images(data, options, callbacks), "");
  } catch (const Error& error) {
    if (const auto* ended = dynamic_cast<const EndedRun*>(&error)) {
      show(ended->report(), error.what());
    }
    throw;
  }
  return interrupted() ? kInterrupted : kSuccess;
}

void evaluate_images(const CheckpointArguments& wanted, const std::string& json) {
  const LoadedImages loaded = load_test_images(wanted);
  check_not_read("--json", json, loaded.folder);
  const ImageOptions& options = loaded.checkpoint.options;
  const double accuracy = evaluate(loaded.test, loaded.checkpoint);
  std::cout << fmt::format("{} in {} on {}, {} test images, weights of epoch {}\n", kImageModel,
                           amp::to_string(options.precision), loaded.test.name, loaded.test.size(),
                           loaded.checkpoint.epoch)
            << format_table({{"accuracy", "test"}, {"", format_score(accuracy)}}) << std::flush;
  if (json.empty()) return;
  const OrderedJson object = {
      {"dataset", loaded.test.name},
      {"model", kImageModel},
      {"precision", amp::to_string(options.precision)},
      {"device", options.device.str()},
      {"metric", "accuracy"},
      {"best_epoch", loaded.checkpoint.epoch},
      {"train_accuracy", nullptr},
      {"val_accuracy", nullptr},
      {"test_accuracy", accuracy},
      {"version", kVersion},
  };
  replace_file(json, [&](std::ostream& file) { file << json_text(object); });
}

void predict_images(const CheckpointArguments& wanted, const std::string& output) {
  const LoadedImages loaded = load_test_images(wanted);
  check_not_read("--output", output, loaded.folder);
  const Predictions predictions = predict(loaded.test, loaded.checkpoint);
  if (std::filesystem::path(output).extension() == ".csv") {
    write_csv(output, predictions, "image");
  } else {
    write_npy(output, predictions);
  }
  std::cout << fmt::format("{} predictions in {}\n", predictions.classes.size(0), output)
            << std::flush;
}

}  // namespace mezzo::cli
