#include "mezzo/train/checkpoint.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/archive.h"
#include "mezzo/train/fingerprint.h"
#include "mezzo/train/image_options.h"

namespace mezzo {
namespace {

using nlohmann::json;

/// What the recipe says, and the facts of the data under keys of their own.
json identity(const TrainOptions& options, const Dataset& dataset) {
  json made = json::parse(recipe_to_json(options));
  made["data"] = {{"name", dataset.name},
                  {"nodes", dataset.part ? dataset.part->num_nodes : dataset.num_nodes},
                  {"edges", dataset.part ? dataset.part->num_edges : dataset.num_edges()},
                  {"features", dataset.num_features()},
                  {"feature-dtype", c10::toString(dataset.features.scalar_type())},
                  {"classes", dataset.num_classes},
                  {"multi-label", dataset.is_multi_label()}};
  if (!dataset.part) {  // of one part, they say nothing of the whole
    made["data"]["targets"] = fingerprint(dataset.labels);
    made["data"]["training-nodes"] = fingerprint(dataset.train_masks);
  }
  return json::parse(json_line(made));  // as it will be read
}

const char* kind_of_labels(bool is_multi_label) {
  return is_multi_label ? "several labels a node" : "one label a node";
}

/// The recipe of a checkpoint; what older ones do not name was at its default.
json read_recipe(ArchiveReader& reader) {
  json recipe = reader.object("recipe");
  recipe.emplace("loss-factor", 1.0);
  recipe.emplace("keep-float32", json::array());
  recipe.emplace("sampling", nullptr);
  recipe.emplace("gradient-traffic", "fp32");
  if (json& sampling = recipe["sampling"]; sampling.is_object()) {
    sampling.emplace("layer-sizes", json::array());
    sampling.emplace("shuffle", true);
  }
  if (const auto data = recipe.find("data"); data != recipe.end() && data->is_object()) {
    data->emplace("multi-label", false);
  }
  return recipe;
}

/// "cuda:1" becomes "cuda": each of several processes has a device of its own.
void keep_kind_of_device(json& recipe) {
  const auto device = recipe.find("device");
  if (device == recipe.end() || !device->is_string()) return;
  const auto text = device->get<std::string>();
  *device = text.substr(0, text.find(':'));
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path) {
  ArchiveReader reader(path, at::kCPU);
  const json recipe = read_recipe(reader);
  const History history = history_from_json(path, reader.object("history"));
  if (recipe.contains("model") && recipe["model"] == kImageModel) {
    detail::raise<IoError>("{}: is the checkpoint of a model for images, not for a graph", path);
  }
  Checkpoint checkpoint;
  try {
    checkpoint.options = recipe_from_json(recipe.dump());
    const json& data = recipe.at("data");
    checkpoint.data = {.name = data.at("name").get<std::string>(),
                       .num_nodes = data.at("nodes").get<std::int64_t>(),
                       .num_edges = data.at("edges").get<std::int64_t>(),
                       .num_features = data.at("features").get<std::int64_t>(),
                       .num_classes = data.at("classes").get<std::int64_t>(),
                       .is_multi_label = data.at("multi-label").get<bool>()};
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: the field 'recipe' has another form", path);
  } catch (const IoError& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
  checkpoint.names = reader.texts("names");
  checkpoint.weights = reader.tensors("weights");
  checkpoint.best_weights = reader.tensors("best_weights");
  checkpoint.epoch = history.epoch();
  const EvaluationRecord* best = best_evaluation(history, checkpoint.options.eval_every);
  checkpoint.best_epoch = best != nullptr ? best->epoch : checkpoint.epoch;
  return checkpoint;
}

nn::Model model_of(const Checkpoint& checkpoint, const Problem& problem) {
  const std::int64_t num_features = problem.features.size(1);
  MEZZO_CHECK(num_features == checkpoint.data.num_features,
              "dataset: the checkpoint is of a model for {} features, the data have {}",
              checkpoint.data.num_features, num_features);
  MEZZO_CHECK(problem.num_classes == checkpoint.data.num_classes,
              "dataset: the checkpoint is of a model for {} classes, the data have {}",
              checkpoint.data.num_classes, problem.num_classes);
  MEZZO_CHECK(problem.is_multi_label == checkpoint.data.is_multi_label,
              "dataset: the checkpoint is of a model for {}, the data have {}",
              kind_of_labels(checkpoint.data.is_multi_label),
              kind_of_labels(problem.is_multi_label));
  nn::Model model(model_options(checkpoint.options, problem));
  check_weights("checkpoint", checkpoint.best_weights, *model);
  restore_weights(*model, checkpoint.best_weights);
  model->to(checkpoint.options.device);
  return model;
}

void write_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                      const TrainState& state) {
  torch::serialize::OutputArchive archive;
  write_object(archive, "recipe", identity(options, dataset));
  write_object(archive, "history", history_to_json(state.history));
  archive.write("best_weights",
                c10::IValue(state.history.evaluations.empty() ? copy_weights(*state.model)
                                                              : state.best_weights));
  write_parts(archive, *state.model, *state.optimizer, state.scaler, options.device);
  write_archive(path, archive);
}

void resume_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                       TrainState& state) {
  resume_checkpoint(path, read_archive(path), options, dataset, state);
}

void resume_checkpoint(const std::string& path, const std::string& bytes,
                       const TrainOptions& options, const Dataset& dataset, TrainState& state) {
  ArchiveReader reader(path, bytes, options.device);
  json wanted = identity(options, dataset);
  wanted.erase("dataset");  // where the data lie may change; what they are is in "data"
  json recipe = read_recipe(reader);
  const json& data = recipe["data"];
  for (const char* key : {"feature-dtype", "targets", "training-nodes"}) {
    // Older checkpoints do not know it.
    if (data.is_object() && !data.contains(key)) wanted["data"].erase(key);
  }
  keep_kind_of_device(wanted);
  keep_kind_of_device(recipe);
  check_same(path, recipe, {{"model", wanted.at("model")}});  // which tells most
  check_same(path, recipe, wanted);
  History history = history_from_json(path, reader.object("history"));
  std::vector<at::Tensor> best_weights = reader.tensors("best_weights");
  check_weights(path, best_weights, *state.model);
  read_parts(reader, *state.model, *state.optimizer, state.scaler, options.device);
  // An evaluation out of the regular ones, of the last epoch then, is none of an unbroken run.
  std::erase_if(history.evaluations, [&](const EvaluationRecord& record) {
    return record.epoch % options.eval_every != 0;
  });
  state.history = std::move(history);
  state.best_weights = std::move(best_weights);
}

}  // namespace mezzo
