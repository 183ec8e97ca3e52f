#include "mezzo/train/checkpoint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <zlib.h>

#include "mezzo/core/error.h"
#include "mezzo/train/files.h"

namespace mezzo {
namespace {

using nlohmann::json;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// The file is a libtorch archive, followed by this mark and eight hexadecimal digits: the CRC-32 of
// the archive, since libtorch's reader checks none. Readers of zip files skip what follows one.
constexpr std::string_view kMark = "mezzo-checkpoint-1:";
constexpr std::size_t kTrailer = kMark.size() + 8;

std::string checksum(std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return fmt::format("{:08x}", crc32_z(crc32_z(0, nullptr, 0), data, bytes.size()));
}

/// The archive's bytes, checked.
std::string read_bytes(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    detail::raise<IoError>("{}: is a folder, not a checkpoint", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) detail::raise<IoError>("{}: cannot be read: {}", path, std::strerror(errno));
  std::stringstream contents;
  contents << file.rdbuf();
  std::string bytes = std::move(contents).str();
  const std::size_t size = bytes.size() < kTrailer ? 0 : bytes.size() - kTrailer;
  const std::string_view trailer = std::string_view(bytes).substr(size);
  if (size == 0 || trailer.substr(0, kMark.size()) != kMark) {
    detail::raise<IoError>("{}: is no checkpoint, or a truncated one", path);
  }
  if (trailer.substr(kMark.size()) != checksum(std::string_view(bytes).substr(0, size))) {
    detail::raise<IoError>("{}: the checkpoint is corrupt (its checksum differs)", path);
  }
  bytes.resize(size);
  return bytes;
}

json parse_object(const std::string& path, const char* key, const std::string& text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    detail::raise<IoError>("{}: the field '{}' is no JSON object", path, key);
  }
  return object;
}

/// What the recipe says, and the facts of the data under keys of their own.
json identity(const TrainOptions& options, const Dataset& dataset) {
  json made = json::parse(recipe_to_json(options));
  made["data"] = {{"name", dataset.name},
                  {"nodes", dataset.num_nodes},
                  {"edges", dataset.num_edges()},
                  {"features", dataset.num_features()},
                  {"classes", dataset.num_classes}};
  return made;
}

json history_to_json(const History& history) {
  json evaluations = json::array();
  for (const EvaluationRecord& record : history.evaluations) {
    const Scores& scores = record.scores;
    evaluations.push_back({record.epoch, scores.train, scores.val, scores.test});
  }
  return {{"losses", history.losses},
          {"epoch_ms", history.epoch_ms},
          {"evaluations", evaluations},
          {"steps", history.steps},
          {"skipped_steps", history.skipped_steps},
          {"skipped_in_a_row", history.skipped_in_a_row},
          {"evaluation_seconds", history.evaluation_seconds},
          {"total_seconds", history.total_seconds},
          {"peak_memory_bytes", history.peak_memory_bytes}};
}

/// JSON writes what is not finite as null.
double finite_or_nan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

History history_from_json(const std::string& path, const json& object) {
  try {
    History history;
    for (const json& loss : object.at("losses")) history.losses.push_back(finite_or_nan(loss));
    history.epoch_ms = object.at("epoch_ms").get<std::vector<double>>();
    for (const json& line : object.at("evaluations")) {
      history.evaluations.push_back({line.at(0).get<std::int64_t>(),
                                     {.train = finite_or_nan(line.at(1)),
                                      .val = finite_or_nan(line.at(2)),
                                      .test = finite_or_nan(line.at(3))}});
    }
    history.steps = object.at("steps").get<std::int64_t>();
    history.skipped_steps = object.at("skipped_steps").get<std::int64_t>();
    history.skipped_in_a_row = object.at("skipped_in_a_row").get<std::int64_t>();
    history.evaluation_seconds = object.at("evaluation_seconds").get<double>();
    history.total_seconds = object.at("total_seconds").get<double>();
    history.peak_memory_bytes = object.at("peak_memory_bytes").get<std::int64_t>();
    return history;
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: the field 'history' has another form", path);
  }
}

/// The fields of an archive that has passed its checksum.
class Reader {
 public:
  /// The tensors go to `device`.
  Reader(const std::string& path, at::Device device) : path_(path) {
    const std::string bytes = read_bytes(path);
    try {
      archive_.load_from(bytes.data(), bytes.size(), device);
    } catch (const c10::Error&) {
      detail::raise<IoError>("{}: libtorch cannot read the archive", path);
    }
  }

  c10::IValue value(const char* key) {
    c10::IValue found;
    if (!archive_.try_read(key, found)) {
      detail::raise<IoError>("{}: the checkpoint has no field '{}'", path_, key);
    }
    return found;
  }

  json object(const char* key) {
    const c10::IValue found = value(key);
    if (!found.isString()) detail::raise<IoError>("{}: the field '{}' is no text", path_, key);
    return parse_object(path_, key, found.toStringRef());
  }

  std::vector<at::Tensor> tensors(const char* key) {
    const c10::IValue found = value(key);
    if (!found.isTensorList()) {
      detail::raise<IoError>("{}: the field '{}' is no list of tensors", path_, key);
    }
    return found.toTensorVector();
  }

  /// Calls `load` with the archive under `key`.
  template <class Load>
  void nested(const char* key, Load load) {
    InputArchive inner;
    if (!archive_.try_read(key, inner)) {
      detail::raise<IoError>("{}: the checkpoint has no field '{}'", path_, key);
    }
    try {
      load(inner);
    } catch (const c10::Error&) {
      detail::raise<IoError>("{}: the field '{}' has another form", path_, key);
    }
  }

 private:
  std::string path_;
  InputArchive archive_;
};

at::Generator generator_of(at::Device device) {
  return at::globalContext().defaultGenerator(device);
}

/// The tensors must fit the model, one by one.
void check_shapes(const std::string& what, const std::vector<at::Tensor>& weights,
                  const nn::Model& model) {
  const std::vector<at::Tensor> own = weights_of(model);
  const std::vector<std::string> names = weight_names(model);
  MEZZO_CHECK(weights.size() == own.size(), "{}: expected {} weights for this model, got {}", what,
              own.size(), weights.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    MEZZO_CHECK(weights[i].sizes() == own[i].sizes() && weights[i].dtype() == own[i].dtype(),
                "{}: the weight '{}' has another shape or dtype than the model's", what, names[i]);
  }
}

/// Throws InvalidArgument at the first key whose values differ.
void check_same(const std::string& path, const json& written, const json& wanted,
                const std::string& prefix = "") {
  for (const auto& [key, value] : wanted.items()) {
    const json found = written.contains(key) ? written.at(key) : json(nullptr);
    if (value.is_object() && found.is_object()) {
      check_same(path, found, value, key + " ");
      continue;
    }
    MEZZO_CHECK(found == value, "resume: {} was written with {}{} {}, this run has {}", path,
                prefix, key, found.dump(), value.dump());
  }
}

OutputArchive make_archive(const TrainOptions& options, const Dataset& dataset,
                           const TrainState& state) {
  OutputArchive archive;
  const auto text = [&](const char* key, const json& object) {
    archive.write(key, c10::IValue(object.dump()));
  };
  text("recipe", identity(options, dataset));
  text("history", history_to_json(state.history));
  archive.write("names", c10::IValue(weight_names(state.model)));
  archive.write("weights", c10::IValue(copy_weights(state.model)));
  archive.write("best_weights", c10::IValue(state.best_weights));
  std::vector<at::Tensor> generators = {generator_of(at::kCPU).get_state()};
  if (!options.device.is_cpu()) generators.push_back(generator_of(options.device).get_state());
  archive.write("generators", c10::IValue(generators));

  OutputArchive optimizer;
  state.optimizer->save(optimizer);
  archive.write("optimizer", optimizer);
  if (state.scaler.is_enabled()) {
    OutputArchive scaler;
    state.scaler.save(scaler);
    archive.write("scaler", scaler);
  }
  return archive;
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path) {
  Reader reader(path, at::kCPU);
  const json recipe = reader.object("recipe");
  const History history = history_from_json(path, reader.object("history"));
  Checkpoint checkpoint;
  try {
    checkpoint.options = recipe_from_json(recipe.dump());
    const json& data = recipe.at("data");
    checkpoint.data = {.name = data.at("name").get<std::string>(),
                       .num_nodes = data.at("nodes").get<std::int64_t>(),
                       .num_edges = data.at("edges").get<std::int64_t>(),
                       .num_features = data.at("features").get<std::int64_t>(),
                       .num_classes = data.at("classes").get<std::int64_t>()};
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: the field 'recipe' has another form", path);
  } catch (const IoError& error) {
    detail::raise<IoError>("{}: {}", path, error.what());
  }
  const c10::IValue names = reader.value("names");
  if (!names.isList()) detail::raise<IoError>("{}: the field 'names' is no list", path);
  for (const c10::IValue& name : names.toListRef()) {
    checkpoint.names.push_back(name.toStringRef());
  }
  checkpoint.weights = reader.tensors("weights");
  checkpoint.best_weights = reader.tensors("best_weights");
  checkpoint.epoch = history.epoch();
  const EvaluationRecord* best = best_evaluation(history, checkpoint.options.eval_every);
  if (best == nullptr) detail::raise<IoError>("{}: no epoch has been evaluated", path);
  checkpoint.best_epoch = best->epoch;
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
  nn::Model model(model_options(checkpoint.options, problem));
  check_shapes("checkpoint", checkpoint.best_weights, model);
  restore_weights(model, checkpoint.best_weights);
  model->to(problem.features.device());
  return model;
}

void write_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                      const TrainState& state) {
  OutputArchive archive = make_archive(options, dataset, state);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = std::move(stream).str();
  replace_file(path, [&](std::ostream& file) { file << bytes << kMark << checksum(bytes); });
}

void resume_checkpoint(const std::string& path, const TrainOptions& options, const Dataset& dataset,
                       TrainState& state) {
  Reader reader(path, options.device);
  json wanted = identity(options, dataset);
  wanted.erase("dataset");  // where the data lie may change; what they are is in "data"
  check_same(path, reader.object("recipe"), wanted);
  History history = history_from_json(path, reader.object("history"));
  const std::vector<at::Tensor> weights = reader.tensors("weights");
  std::vector<at::Tensor> best_weights = reader.tensors("best_weights");
  check_shapes(path, weights, state.model);
  check_shapes(path, best_weights, state.model);
  const std::vector<at::Tensor> generators = reader.tensors("generators");
  const std::size_t expected = options.device.is_cpu() ? 1 : 2;
  if (generators.size() != expected) {
    detail::raise<IoError>("{}: expected {} generators, got {}", path, expected, generators.size());
  }

  restore_weights(state.model, weights);
  reader.nested("optimizer", [&](InputArchive& archive) { state.optimizer->load(archive); });
  if (state.scaler.is_enabled()) {
    reader.nested("scaler", [&](InputArchive& archive) { state.scaler.load(archive); });
  }
  // An evaluation out of the regular ones, of the last epoch then, is none of an unbroken run.
  std::erase_if(history.evaluations, [&](const EvaluationRecord& record) {
    return record.epoch % options.eval_every != 0;
  });
  state.history = std::move(history);
  state.best_weights = std::move(best_weights);
  generator_of(at::kCPU).set_state(generators[0].cpu());
  if (expected == 2) generator_of(options.device).set_state(generators[1].cpu());
}

}  // namespace mezzo
