#include "mezzo/train/image_options.h"

#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/parse.h"

namespace mezzo {
namespace {

using nlohmann::json;

}  // namespace

void check_options(const ImageOptions& options) {
  const bool low = is_low(options.precision);
  MEZZO_CHECK(
      options.cpu_policy == amp::CpuPolicy::kMeasure || (low && options.device.is_cpu()),
      "no-cpu-policy: only bf16 and fp16 on the CPU have a policy, the precision is {} on {}",
      amp::to_string(options.precision), options.device.str());
  MEZZO_CHECK(options.epochs >= 1, "epochs: expected at least 1, got {}", options.epochs);
  MEZZO_CHECK(options.batch_size >= 1, "batch-size: expected at least 1, got {}",
              options.batch_size);
  MEZZO_CHECK(!options.images || *options.images >= 1, "images: expected at least 1, got {}",
              *options.images);
  check_rates(options.optimizer, options.learning_rate, options.weight_decay);
}

std::string recipe_to_json(const ImageOptions& options) {
  const json recipe = {
      {"model", kImageModel},
      {"dataset", options.dataset},
      {"images", options.images ? json(*options.images) : json(nullptr)},
      {"batch-size", options.batch_size},
      {"lr", options.learning_rate},
      {"weight-decay", options.weight_decay},
      {"optimizer", name_of(OptimizerKinds{}, options.optimizer)},
      {"precision", amp::to_string(options.precision)},
      {"loss-scale", to_string(options.loss_scale)},
      {"channels-last", options.channels_last},
      {"cpu-policy", options.cpu_policy == amp::CpuPolicy::kMeasure},
      {"device", options.device.str()},
      {"seed", options.seed},
  };
  return json_line(recipe);
}

ImageOptions image_recipe_from_json(std::string_view text) {
  const json recipe = json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    if (recipe.at("model").get<std::string>() != kImageModel) {
      detail::raise<IoError>("recipe: expected the model {}, got {}", kImageModel,
                             recipe.at("model").dump());
    }
    ImageOptions options;
    options.dataset = recipe.at("dataset").get<std::string>();
    if (!recipe.at("images").is_null()) options.images = recipe["images"].get<std::int64_t>();
    options.batch_size = recipe.at("batch-size").get<std::int64_t>();
    options.learning_rate = recipe.at("lr").get<double>();
    options.weight_decay = recipe.at("weight-decay").get<double>();
    options.optimizer =
        parse(OptimizerKinds{}, "optimizer", recipe.at("optimizer").get<std::string>());
    options.precision = amp::parse_precision(recipe.at("precision").get<std::string>());
    options.loss_scale = parse_loss_scale(recipe.at("loss-scale").get<std::string>());
    options.channels_last = recipe.at("channels-last").get<bool>();
    options.cpu_policy =
        recipe.at("cpu-policy").get<bool>() ? amp::CpuPolicy::kMeasure : amp::CpuPolicy::kOff;
    options.seed = recipe.at("seed").get<std::uint64_t>();
    return options;
  } catch (const json::exception& error) {
    detail::raise<IoError>("recipe: a field is missing or of another type: {}", error.what());
  } catch (const InvalidArgument& error) {
    throw IoError(fmt::format("recipe: {}", error.what()));
  }
}

ImageData load_images(const ImageOptions& options) {
  const std::string folder = image_folder(options.dataset);
  ImageData data{.train = load_idx(folder, Split::kTrain), .test = load_idx(folder, Split::kTest)};
  if (options.images) data.train = data.train.first(*options.images);
  return data;
}

}  // namespace mezzo
