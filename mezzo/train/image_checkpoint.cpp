#include "mezzo/train/image_checkpoint.h"

#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/nn/evaluation_mode.h"
#include "mezzo/train/archive.h"

namespace mezzo {
namespace {

using nlohmann::json;

nn::CNN make_model(const ImageOptions& options, std::int64_t channels, std::int64_t num_classes) {
  return nn::CNN(nn::CNNOptions{
      .in_channels = channels, .num_classes = num_classes, .channels_last = options.channels_last});
}

/// What the recipe says, and the facts of the data under keys of their own.
json identity(const ImageOptions& options, const ImageData& data) {
  json made = json::parse(recipe_to_json(options));
  const at::Tensor& images = data.train.images;
  made["data"] = {{"name", data.train.name},
                  {"train", data.train.size()},
                  {"test", data.test.size()},
                  {"channels", images.size(1)},
                  {"height", images.size(2)},
                  {"width", images.size(3)},
                  {"classes", data.train.num_classes()}};
  return json::parse(json_line(made));  // as it will be read
}

json partial_to_json(const PartialEpoch& partial) {
  return {{"batches", partial.batches},
          {"images", partial.images},
          {"correct", partial.correct},
          {"loss_sum", partial.loss_sum},
          {"milliseconds", partial.milliseconds}};
}

PartialEpoch partial_from_json(const std::string& path, const json& object) {
  try {
    // JSON writes what is not finite as null.
    const json& loss = object.at("loss_sum");
    return {
        .batches = object.at("batches").get<std::int64_t>(),
        .images = object.at("images").get<std::int64_t>(),
        .correct = object.at("correct").get<std::int64_t>(),
        .loss_sum = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>(),
        .milliseconds = object.at("milliseconds").get<double>()};
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: the field 'partial' has another form", path);
  }
}

/// The model of a checkpoint, ready for `dataset`.
nn::CNN model_of(const ImageCheckpoint& checkpoint, const ImageDataset& dataset) {
  MEZZO_CHECK(dataset.images.size(1) == checkpoint.channels,
              "dataset: the checkpoint is of a model for images of {} channels, these have {}",
              checkpoint.channels, dataset.images.size(1));
  MEZZO_CHECK(dataset.num_classes() == checkpoint.num_classes,
              "dataset: the checkpoint is of a model for {} classes, the images have {}",
              checkpoint.num_classes, dataset.num_classes());
  nn::CNN model = make_model(checkpoint.options, checkpoint.channels, checkpoint.num_classes);
  check_weights("checkpoint", checkpoint.weights, *model);
  restore_weights(*model, checkpoint.weights);
  model->to(checkpoint.options.device);
  return model;
}

}  // namespace

ImageState::ImageState(const ImageOptions& options, const ImageDataset& train)
    : scaler(scaler_options(options.loss_scale, options.precision, options.device)) {
  at::manual_seed(options.seed);
  model = make_model(options, train.images.size(1), train.num_classes());
  model->to(options.device);
  optimizer = make_optimizer(options.optimizer, options.learning_rate, options.weight_decay,
                             model->parameters());
}

ImageState::~ImageState() = default;

void write_image_checkpoint(const std::string& path, const ImageOptions& options,
                            const ImageData& data, const ImageState& state) {
  torch::serialize::OutputArchive archive;
  write_object(archive, "recipe", identity(options, data));
  write_object(archive, "history", history_to_json(state.history));
  write_object(archive, "partial", partial_to_json(state.partial));
  write_parts(archive, *state.model, *state.optimizer, state.scaler, options.device);
  write_archive(path, archive);
}

void resume_image_checkpoint(const std::string& path, const ImageOptions& options,
                             const ImageData& data, ImageState& state) {
  ArchiveReader reader(path, options.device);
  json wanted = identity(options, data);
  wanted.erase("dataset");  // where the data lie may change; what they are is in "data"
  const json recipe = reader.object("recipe");
  check_same(path, recipe, {{"model", wanted.at("model")}});  // which tells most
  check_same(path, recipe, wanted);
  History history = history_from_json(path, reader.object("history"));
  const PartialEpoch partial = partial_from_json(path, reader.object("partial"));
  read_parts(reader, *state.model, *state.optimizer, state.scaler, options.device);
  state.history = std::move(history);
  state.partial = partial;
}

bool is_image_checkpoint(const std::string& path) {
  const json recipe = ArchiveReader(path, at::kCPU).object("recipe");
  return recipe.contains("model") && recipe["model"] == kImageModel;
}

ImageCheckpoint read_image_checkpoint(const std::string& path) {
  ArchiveReader reader(path, at::kCPU);
  const json recipe = reader.object("recipe");
  ImageCheckpoint checkpoint;
  try {
    checkpoint.options = image_recipe_from_json(recipe.dump());
    const json& data = recipe.at("data");
    checkpoint.num_classes = data.at("classes").get<std::int64_t>();
    checkpoint.channels = data.at("channels").get<std::int64_t>();
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: the field 'recipe' has another form", path);
  } catch (const IoError& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
  checkpoint.names = reader.texts("names");
  checkpoint.weights = reader.tensors("weights");
  checkpoint.epoch = history_from_json(path, reader.object("history")).epoch();
  return checkpoint;
}

bool for_each_batch_logits(nn::CNN& model, const ImageDataset& dataset, const ImageOptions& options,
                           const std::function<bool()>& should_stop,
                           const std::function<void(const at::Tensor&, const at::Tensor&)>& each) {
  const at::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*model);
  const ImageBatches batches = dataset.batches(options.batch_size, /*shuffle=*/false, /*seed=*/0);
  for (const auto& [images, labels] : batches) {
    if (should_stop && should_stop()) return false;
    const amp::PrecisionScope scope(options.precision, options.device,
                                    {.cpu_policy = options.cpu_policy});
    each(model->forward(images.to(options.device)).to(at::kFloat), labels.to(options.device));
  }
  return true;
}

std::int64_t count_correct(const at::Tensor& logits, const at::Tensor& labels) {
  // The largest number of a row with a NaN is the NaN, which may stand at the label.
  const auto [largest, classes] = logits.max(1);
  return classes.eq(labels).logical_and_(largest.isnan().logical_not_()).sum().item<std::int64_t>();
}

Predictions predict(const ImageDataset& dataset, const ImageCheckpoint& checkpoint) {
  nn::CNN model = model_of(checkpoint, dataset);
  std::vector<at::Tensor> classes, probabilities;
  for_each_batch_logits(model, dataset, checkpoint.options, nullptr,
                        [&](const at::Tensor& logits, const at::Tensor&) {
                          const auto [largest, index] = at::softmax(logits, 1).max(1);
                          classes.push_back(index.cpu());
                          probabilities.push_back(largest.cpu());
                        });
  return {.classes = at::cat(classes), .probabilities = at::cat(probabilities)};
}

double evaluate(const ImageDataset& dataset, const ImageCheckpoint& checkpoint) {
  nn::CNN model = model_of(checkpoint, dataset);
  std::int64_t correct = 0;
  for_each_batch_logits(model, dataset, checkpoint.options, nullptr,
                        [&](const at::Tensor& logits, const at::Tensor& labels) {
                          correct += count_correct(logits, labels);
                        });
  return static_cast<double>(correct) / static_cast<double>(dataset.size());
}

}  // namespace mezzo
