#include "mezzo/train/files/checkpoint.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/files/archive.h"
#include "mezzo/train/files/fingerprint.h"

namespace mezzo {
namespace {

using nlohmann::json;

/// What the recipe says, and the facts of the data under keys of their own.
json identity(const TrainOptions& options, const Dataset& dataset) {
  json made = json::parse(config_to_json(options));
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

/// "cuda:1" becomes "cuda": each of several processes has a device of its own.
void keep_kind_of_device(json& recipe) {
  const auto device = recipe.find("device");
  if (device == recipe.end() || !device->is_string()) return;
  const auto text = device->get<std::string>();
  *device = text.substr(0, text.find(':'));
}

template <class T>
T read_fact(const json& data, const char* key) {
  const auto fact = data.find(key);
  if (fact == data.end() || !holds<T>(*fact)) {
    detail::raise<IoError>("the field 'data {}' is missing or of another type", key);
  }
  return fact->get<T>();
}

DatasetFacts read_facts(const json& recipe) {
  const json data = recipe.value("data", json::object());
  DatasetFacts facts{.name = read_fact<std::string>(data, "name"),
                     .num_nodes = read_fact<std::int64_t>(data, "nodes"),
                     .num_edges = read_fact<std::int64_t>(data, "edges"),
                     .num_features = read_fact<std::int64_t>(data, "features"),
                     .num_classes = read_fact<std::int64_t>(data, "classes"),
                     .is_multi_label = read_fact<bool>(data, "multi-label")};
  if (facts.num_features < 1 || facts.num_classes < 1) {
    detail::raise<IoError>("expected features and classes, got {} and {}", facts.num_features,
                           facts.num_classes);
  }
  return facts;
}

/// The weights that the matrices of the layers have, or fewer; a double since it may be very large.
double least_weights(const nn::ModelOptions& model) {
  const bool is_gat = model.kind == nn::ModelKind::kGat, is_gin = model.kind == nn::ModelKind::kGin;
  const std::int64_t num_layers = model.kind == nn::ModelKind::kSgc ? 1 : model.num_layers;
  const auto hidden = static_cast<double>(model.hidden_features);
  auto in = static_cast<double>(model.in_features);
  double count = 0;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const bool last = i + 1 == num_layers;
    double out = last ? static_cast<double>(model.out_features) : hidden;
    if (is_gat) out *= static_cast<double>(last ? model.num_output_heads : model.num_heads);
    count += is_gin ? hidden * (in + out) : in * out;  // gin: an MLP of one hidden layer
    in = out;
  }
  return count;
}

/// The options of a file may describe a model that is far larger than the file.
void check_size(const Checkpoint& checkpoint) {
  double held = 0;
  for (const at::Tensor& weight : checkpoint.best_weights) {
    held += static_cast<double>(weight.numel());
  }
  const double needed = least_weights(
      model_options(checkpoint.options, checkpoint.data.num_features, checkpoint.data.num_classes));
  if (needed > held) {
    detail::raise<IoError>(
        "the options describe a model of {:.0f} weights or more, the file holds {:.0f}", needed,
        held);
  }
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path) {
  ArchiveReader reader(path, at::kCPU);
  const json recipe = reader.object("recipe");
  const History history = history_from_json(path, reader.object("history"));
  Checkpoint checkpoint;
  checkpoint.names = reader.texts("names");
  checkpoint.weights = reader.tensors("weights");
  checkpoint.best_weights = reader.tensors("best_weights");
  try {
    checkpoint.options = config_from_json(recipe.dump());
    check_options(checkpoint.options);
    checkpoint.data = read_facts(recipe);
    check_size(checkpoint);
  } catch (const Error& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
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
  json recipe = reader.object("recipe");
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
