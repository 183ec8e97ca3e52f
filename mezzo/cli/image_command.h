#pragma once

#include <string>

#include "mezzo/cli/checkpoint_arguments.h"
#include "mezzo/cli/commands.h"

namespace mezzo::cli {

/// Whether the words after `mezzo train`, or the file that their --config names, ask for the model
/// of images. False where they cannot be read: the parser of all options tells why.
bool wants_image_model(const Arguments& arguments);

/// `mezzo train --model cnn`. As train_command().
int train_images_command(const Arguments& arguments);

/// What `mezzo evaluate` does with a checkpoint of images. json: a file to write, or empty.
void evaluate_images(const CheckpointArguments& wanted, const std::string& json);

/// What `mezzo predict` does with a checkpoint of images: the classes of the test images. output:
/// ends in .csv or .npy.
void predict_images(const CheckpointArguments& wanted, const std::string& output);

}  // namespace mezzo::cli
