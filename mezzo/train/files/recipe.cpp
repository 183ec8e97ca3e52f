#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/parse.h"
#include "mezzo/train/options.h"

namespace mezzo {
namespace {

using nlohmann::json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

/// The field as a T. IoError where it is missing or of another type.
template <class T>
T read(const json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || !holds<T>(*field)) {
    detail::raise<IoError>("recipe: the field '{}' is missing or of another type", key);
  }
  return field->get<T>();
}

template <class T>
std::optional<T> read_optional(const json& object, const char* key) {
  if (object.contains(key) && object[key].is_null()) return std::nullopt;
  return read<T>(object, key);
}

/// As the parsers of the command line, with the IoError that a file deserves.
template <class Parse>
auto read_word(const json& object, const char* key, Parse parse_word) {
  try {
    return parse_word(read<std::string>(object, key));
  } catch (const InvalidArgument& error) {
    throw IoError(fmt::format("recipe: {}", error.what()));
  }
}

json sampling_to_json(const SamplingOptions& sampling) {
  return {{"sampler", name_of(SamplerKinds{}, sampling.sampler)},
          {"batch-size", or_null(sampling.batch_size)},
          {"fanout", sampling.fanouts},
          {"layer-sizes", sampling.layer_sizes},
          {"replace", sampling.replace},
          {"layer-dependency", sampling.layer_dependency},
          {"drop-last", sampling.drop_last},
          {"balance-classes", sampling.balance_classes},
          {"shuffle", sampling.shuffle},
          {"parts", or_null(sampling.parts)},
          {"parts-per-batch", or_null(sampling.parts_per_batch)},
          {"saint-budget", or_null(sampling.saint_budget)},
          {"walk-length", or_null(sampling.walk_length)},
          {"batches-per-epoch", or_null(sampling.batches_per_epoch)},
          {"inference-batch-size", sampling.inference_batch_size}};
}

SamplingOptions sampling_from_json(const json& object) {
  SamplingOptions sampling;
  sampling.sampler = read_word(object, "sampler", [](const std::string& word) {
    return parse(SamplerKinds{}, "sampler", word);
  });
  sampling.batch_size = read_optional<std::int64_t>(object, "batch-size");
  sampling.fanouts = read<std::vector<std::int64_t>>(object, "fanout");
  sampling.layer_sizes = read<std::vector<std::int64_t>>(object, "layer-sizes");
  sampling.replace = read<bool>(object, "replace");
  sampling.layer_dependency = read<bool>(object, "layer-dependency");
  sampling.drop_last = read<bool>(object, "drop-last");
  sampling.balance_classes = read<bool>(object, "balance-classes");
  sampling.shuffle = read<bool>(object, "shuffle");
  sampling.parts = read_optional<std::int64_t>(object, "parts");
  sampling.parts_per_batch = read_optional<std::int64_t>(object, "parts-per-batch");
  sampling.saint_budget = read_optional<std::int64_t>(object, "saint-budget");
  sampling.walk_length = read_optional<std::int64_t>(object, "walk-length");
  sampling.batches_per_epoch = read_optional<std::int64_t>(object, "batches-per-epoch");
  sampling.inference_batch_size = read<std::int64_t>(object, "inference-batch-size");
  return sampling;
}

}  // namespace

std::string recipe_to_json(const TrainOptions& options) {
  const json recipe = {
      {"dataset", is_utf8(options.dataset) ? options.dataset : std::string()},
      {"split", options.split},
      {"split-index", options.split_index},
      {"normalize-features", options.normalize_features},
      {"self-loops", or_null(options.self_loops)},
      {"model", name_of(nn::ModelKinds{}, options.model)},
      {"layers", options.layers},
      {"hidden", or_null(options.hidden)},
      {"heads", or_null(options.heads)},
      {"output-heads", or_null(options.output_heads)},
      {"dropout", options.dropout},
      {"attention-dropout", or_null(options.attention_dropout)},
      {"norm", name_of(nn::Normalizations{}, options.normalization)},
      {"skip", options.skip},
      {"lr", options.learning_rate},
      {"weight-decay", options.weight_decay},
      {"optimizer", name_of(OptimizerKinds{}, options.optimizer)},
      {"precision", amp::to_string(options.precision)},
      {"loss-scale", to_string(options.loss_scale)},
      {"loss-factor", options.loss_factor},
      {"keep-float32", options.keep_float32},
      {"device", options.device.str()},
      {"seed", options.seed},
      {"eval-every", options.eval_every},
      {"gradient-traffic", name_of(GradientTraffics{}, options.gradient_traffic)},
      {"sampling", options.sampling ? sampling_to_json(*options.sampling) : json(nullptr)},
  };
  return json_line(recipe);
}

TrainOptions recipe_from_json(std::string_view text) {
  const json recipe = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!recipe.is_object()) throw IoError("recipe: expected a JSON object");
  TrainOptions options;
  options.dataset = read<std::string>(recipe, "dataset");
  options.split = read<std::string>(recipe, "split");
  options.split_index = read<std::int64_t>(recipe, "split-index");
  options.normalize_features = read<bool>(recipe, "normalize-features");
  options.self_loops = read_optional<bool>(recipe, "self-loops");
  options.model = read_word(recipe, "model", [](const std::string& word) {
    return parse(nn::ModelKinds{}, "model", word);
  });
  options.layers = read<std::int64_t>(recipe, "layers");
  options.hidden = read_optional<std::int64_t>(recipe, "hidden");
  options.heads = read_optional<std::int64_t>(recipe, "heads");
  options.output_heads = read_optional<std::int64_t>(recipe, "output-heads");
  options.dropout = read<double>(recipe, "dropout");
  options.attention_dropout = read_optional<double>(recipe, "attention-dropout");
  options.normalization = read_word(recipe, "norm", [](const std::string& word) {
    return parse(nn::Normalizations{}, "norm", word);
  });
  options.skip = read<bool>(recipe, "skip");
  options.learning_rate = read<double>(recipe, "lr");
  options.weight_decay = read<double>(recipe, "weight-decay");
  options.optimizer = read_word(recipe, "optimizer", [](const std::string& word) {
    return parse(OptimizerKinds{}, "optimizer", word);
  });
  options.precision = read_word(recipe, "precision", amp::parse_precision);
  options.loss_scale = read_word(recipe, "loss-scale", parse_loss_scale);
  options.loss_factor = read<double>(recipe, "loss-factor");
  options.keep_float32 = read<std::vector<std::string>>(recipe, "keep-float32");
  options.seed = read<std::uint64_t>(recipe, "seed");
  options.eval_every = read<std::int64_t>(recipe, "eval-every");
  options.gradient_traffic = read_word(recipe, "gradient-traffic", [](const std::string& word) {
    return parse(GradientTraffics{}, "gradient-traffic", word);
  });
  if (const json sampling = read<json>(recipe, "sampling"); !sampling.is_null()) {
    options.sampling = sampling_from_json(sampling);
  }
  return options;
}

}  // namespace mezzo
