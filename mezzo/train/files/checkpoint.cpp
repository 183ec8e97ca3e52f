#include "mezzo/train/files/checkpoint.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/parse.h"
#include "mezzo/train/files/checkpoint_io.h"
#include "mezzo/train/files/tensor_hash.h"

namespace mezzo {
namespace {

using nlohmann::json;

/// The sum of the bits of edge weights, since formats store edges in different orders; null without
/// weights.
json edge_weights_sum(const at::Tensor& weights) {
  if (!weights.defined()) return nullptr;
  return weights.view(at::kInt).sum(at::kLong).item<std::int64_t>();
}

/// The config, and facts about the data under the key "data".
json config_and_data(const TrainOptions& options, const Dataset& dataset) {
  json config = json::parse(config_to_json(options));
  const DatasetFacts facts = facts_of(dataset);
  config["data"] = {{"name", facts.name},
                    {"nodes", facts.num_nodes},
                    {"edges", facts.num_edges},
                    {"features", facts.num_features},
                    {"feature-dtype", c10::toString(dataset.features.scalar_type())},
                    {"edge-features", facts.num_edge_features},
                    {"edge-types", facts.num_edge_types},
                    {"classes", facts.num_classes},
                    {"task", name_of(Tasks{}, facts.task)},
                    {"metric", metric_name(facts.metric)}};
  if (!dataset.part) {  // a part has only some of them
    config["data"]["targets"] = tensor_hash(dataset.labels);
    config["data"]["training-nodes"] = tensor_hash(dataset.train_masks);
    config["data"]["message-edges"] = tensor_hash(dataset.message_mask);
    const NegativePairs& negatives = dataset.negatives.train;
    config["data"]["training-negatives"] =
        fmt::format("{} {} {}", tensor_hash(negatives.pairs), tensor_hash(negatives.src),
                    tensor_hash(negatives.dst));
    config["data"]["edge-weights"] = edge_weights_sum(dataset.edge_weights);
    config["data"]["edge-values"] =
        tensor_hash(dataset.edge_features) + " " + tensor_hash(dataset.edge_types);
  }
  return json::parse(json_line(config));  // as it will be read
}

/// "cuda:1" becomes "cuda": each of several processes has another device.
void drop_device_index(json& config) {
  const auto device = config.find("device");
  if (device == config.end() || !device->is_string()) return;
  const auto text = device->get<std::string>();
  *device = text.substr(0, text.find(':'));
}

/// What a resumed run must have in common with its checkpoint: `config` without where the data
/// are, whose content is in "data", and the learning rate.
json without_changes(json config) {
  config.erase("dataset");
  config.erase("csv");
  config.erase("lr");
  drop_device_index(config);
  return config;
}

/// Throws InvalidArgument for the first option that gives the two models other weights.
void check_shape(const std::string& path, const nn::ModelOptions& written,
                 const nn::ModelOptions& own) {
  const auto check = [&](const char* option, const auto& theirs, const auto& ours) {
    MEZZO_CHECK(theirs == ours, "init: {} was written with {} {}, this run has {}", path, option,
                theirs, ours);
  };
  check("model", nn::to_string(written.kind), nn::to_string(own.kind));
  check("features", written.in_features, own.in_features);
  check("classes", written.out_features, own.out_features);
  if (own.kind != nn::ModelKind::kSgc) check("layers", written.num_layers, own.num_layers);
  check("hidden", written.hidden_features, own.hidden_features);
  check("heads", written.num_heads, own.num_heads);
  check("output-heads", written.num_output_heads, own.num_output_heads);
  check("norm", name_of(nn::Normalizations{}, written.normalization),
        name_of(nn::Normalizations{}, own.normalization));
  check("skip", written.skip, own.skip);
}

template <class T>
T read_fact(const json& data, const char* key) {
  const auto fact = data.find(key);
  if (fact == data.end() || !holds<T>(*fact)) {
    detail::raise<IoError>("config: the field 'data {}' is missing or of another type", key);
  }
  return fact->get<T>();
}

/// The field "config", with the task's name as config_and_data() writes it.
json config_of(CheckpointReader& reader) {
  json config = reader.object("config");
  if (!config.contains("data") || !config["data"].is_object()) return config;
  if (const auto task = config["data"].find("task");
      task != config["data"].end() && task->is_string()) {
    *task = task_name_of_file(task->get<std::string>());
  }
  return config;
}

DatasetFacts read_facts(const json& config) {
  const json data = config.value("data", json::object());
  DatasetFacts facts{.name = read_fact<std::string>(data, "name"),
                     .num_nodes = read_fact<std::int64_t>(data, "nodes"),
                     .num_edges = read_fact<std::int64_t>(data, "edges"),
                     .num_features = read_fact<std::int64_t>(data, "features"),
                     .num_classes = read_fact<std::int64_t>(data, "classes"),
                     .num_edge_features = read_fact<std::int64_t>(data, "edge-features"),
                     .num_edge_types = read_fact<std::int64_t>(data, "edge-types"),
                     .task = parse(Tasks{}, "task", read_fact<std::string>(data, "task")),
                     .metric = parse(Metrics{}, "metric", read_fact<std::string>(data, "metric"))};
  if (facts.num_features < 1 || facts.num_classes < 1 || facts.num_edge_features < 0 ||
      facts.num_edge_types < 1) {
    detail::raise<IoError>("expected features and classes, got {} and {}", facts.num_features,
                           facts.num_classes);
  }
  return facts;
}

NumberScale read_scale(CheckpointReader& reader, const DatasetFacts& facts) {
  if (facts.task.labels != LabelKind::kNumbers) return {};
  const std::vector<at::Tensor> scale = reader.tensors("number_scale");
  const auto fits = [&](const at::Tensor& numbers) {
    return numbers.dim() == 1 && numbers.numel() == facts.num_classes &&
           numbers.scalar_type() == at::kFloat && at::isfinite(numbers).all().item<bool>();
  };
  if (scale.size() != 2 || !fits(scale[0]) || !fits(scale[1])) {
    throw IoError("expected a finite mean and deviation of each number");
  }
  return {.mean = scale[0], .deviation = scale[1]};
}

/// A lower bound of the number of weights; a double since it may be very large.
double min_weights(const nn::ModelOptions& model) {
  if (nn::is_own(model.kind)) return 0;
  const bool is_gat = model.kind == nn::ModelKind::kGat, is_gin = nn::has_layer_mlps(model.kind);
  const std::int64_t num_layers = model.kind == nn::ModelKind::kSgc ? 1 : model.num_layers;
  const auto hidden = static_cast<double>(model.hidden_features);
  auto in = static_cast<double>(model.in_features);
  const auto edge_features = static_cast<double>(model.edge_features);
  double count = model.target == TaskTarget::kEdge ? edge_features * hidden : 0;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    if (nn::takes_edge_features(model.kind)) count += edge_features * in;
    const bool last = i + 1 == num_layers && model.target == TaskTarget::kNode;
    double out = last ? static_cast<double>(model.out_features) : hidden;
    if (is_gat) out *= static_cast<double>(last ? model.num_output_heads : model.num_heads);
    count += is_gin ? hidden * (in + out) : in * out;  // gin: an MLP of one hidden layer
    in = out;
  }
  if (has_edge_types(model.decoder)) count += static_cast<double>(model.edge_types) * in;
  return count;
}

/// Refuses options that describe a model far larger than the file.
void check_size(const Checkpoint& checkpoint) {
  double stored = 0;
  for (const at::Tensor& weight : checkpoint.best_weights) {
    stored += static_cast<double>(weight.numel());
  }
  const double needed = min_weights(model_options(checkpoint.options, checkpoint.data));
  if (needed > stored) {
    detail::raise<IoError>(
        "the options describe a model of {:.0f} weights or more, the file has {:.0f}", needed,
        stored);
  }
}

}  // namespace

DatasetFacts facts_of(const Dataset& dataset) {
  return {.name = dataset.name,
          .num_nodes = dataset.part ? dataset.part->num_nodes : dataset.num_nodes,
          .num_edges = dataset.part ? dataset.part->num_edges : dataset.num_edges(),
          .num_features = dataset.num_features(),
          .num_classes = dataset.num_classes,
          .num_edge_features = dataset.num_edge_features(),
          .num_edge_types = dataset.num_edge_types,
          .task = dataset.task(),
          .metric = dataset.metric};
}

Checkpoint read_checkpoint(const std::string& path) {
  CheckpointReader reader(path, at::kCPU);
  const json config = config_of(reader);
  const History history = history_from_json(path, reader.object("history"));
  Checkpoint checkpoint;
  checkpoint.names = reader.texts("names");
  checkpoint.weights = reader.tensors("weights");
  checkpoint.best_weights = reader.tensors("best_weights");
  try {
    checkpoint.options = config_from_json(config.dump());
    check_options(checkpoint.options);
    checkpoint.data = read_facts(config);
    checkpoint.data.number_scale = read_scale(reader, checkpoint.data);
    check_size(checkpoint);
  } catch (const Error& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
  checkpoint.epoch = history.epoch();
  const EvaluationRecord* best =
      best_evaluation(history, checkpoint.options.eval_every, checkpoint.data.metric);
  checkpoint.best_epoch = best != nullptr ? best->epoch : checkpoint.epoch;
  return checkpoint;
}

DatasetFacts facts_from_config(const std::string& config) {
  return read_facts(json::parse(config));
}

std::string read_config(const std::string& path) {
  CheckpointReader reader(path, at::kCPU);
  return config_of(reader).dump();
}

void check_resumable(const std::string& path, const TrainOptions& written,
                     const TrainOptions& options) {
  json expected = without_changes(json::parse(config_to_json(options)));
  expected.erase("device");  // not among the options of a checkpoint
  check_same(path, json::parse(config_to_json(written)), expected);
}

void init_from_checkpoint(const std::string& path, const nn::ModelOptions& options,
                          torch::nn::Module& model) {
  const Checkpoint checkpoint = read_checkpoint(path);
  check_shape(path, model_options(checkpoint.options, checkpoint.data), options);
  check_weights(path, checkpoint.names, checkpoint.best_weights, model);
  restore_weights(model, checkpoint.best_weights);
}

TrainedModel load_checkpoint(const std::string& path, at::Device device) {
  return load_checkpoint(path, nullptr, device);
}

TrainedModel load_checkpoint(const std::string& path, nn::Model model, at::Device device) {
  const Checkpoint checkpoint = read_checkpoint(path);
  TrainedModel trained{
      .options = checkpoint.options, .data = checkpoint.data, .epoch = checkpoint.best_epoch};
  trained.options.device = device;
  if (nn::is_own(checkpoint.options.model)) trained.options.model = kind_of_own(model);
  try {
    trained.model = make_model(trained.options, model_options(checkpoint.options, checkpoint.data),
                               std::move(model));
    check_weights("checkpoint", checkpoint.names, checkpoint.best_weights, *trained.model);
  } catch (const InvalidArgument& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
  restore_weights(*trained.model, checkpoint.best_weights);
  trained.model->to(device);
  trained.model->eval();
  return trained;
}

void write_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                      const TrainState& state) {
  torch::serialize::OutputArchive archive;
  json config = config_and_data(options, dataset);
  config["epochs"] = options.epochs;  // the defaults of a resumed run, which may change them
  if (options.patience) config["patience"] = *options.patience;
  write_object(archive, "config", config);
  write_object(archive, "history", history_to_json(state.history));
  if (const NumberScale& scale = state.number_scale; scale.mean.defined()) {
    archive.write("number_scale",
                  c10::IValue(std::vector<at::Tensor>{scale.mean, scale.deviation}));
  }
  archive.write("best_weights",
                c10::IValue(state.history.evaluations.empty() ? copy_weights(*state.model)
                                                              : state.best_weights));
  write_parts(archive, *state.model, *state.optimizer, state.scaler, options.device);
  write_checkpoint_archive(path, archive);
}

void resume_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                       TrainState& state) {
  resume_checkpoint(path, read_checkpoint_bytes(path), options, dataset, state);
}

void resume_checkpoint(const std::string& path, const std::string& bytes,
                       const TrainOptions& options, const Dataset& dataset, TrainState& state) {
  CheckpointReader reader(path, bytes, options.device);
  check_same(path, without_changes(config_of(reader)),
             without_changes(config_and_data(options, dataset)));
  History history = history_from_json(path, reader.object("history"));
  std::vector<at::Tensor> best_weights = reader.tensors("best_weights");
  check_weights(path, reader.texts("names"), best_weights, *state.model);
  read_parts(reader, *state.model, *state.optimizer, state.scaler, options.device);
  for (torch::optim::OptimizerParamGroup& group : state.optimizer->param_groups()) {
    group.options().set_lr(options.learning_rate);
  }
  // An unbroken run would not have the extra evaluation of the last epoch.
  std::erase_if(history.evaluations, [&](const EvaluationRecord& record) {
    return record.epoch % options.eval_every != 0;
  });
  state.history = std::move(history);
  state.best_weights = std::move(best_weights);
}

}  // namespace mezzo
