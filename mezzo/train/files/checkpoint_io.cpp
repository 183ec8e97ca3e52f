#include "mezzo/train/files/checkpoint_io.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <torch/optim/optimizer.h>
#include <zlib.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/files/files.h"

namespace mezzo {
namespace {

using nlohmann::json;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// The file is a libtorch archive, followed by this mark and eight hexadecimal digits, the CRC-32 of
// the archive, since libtorch's reader does not check the zip's. Zip readers skip such a trailer.
constexpr std::string_view kMark = "mezzo-checkpoint-1:";
constexpr std::size_t kTrailer = kMark.size() + 8;

std::string checksum(std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return fmt::format("{:08x}", crc32_z(crc32_z(0, nullptr, 0), data, bytes.size()));
}

/// nlohmann writes numbers that are not finite as null.
double finite_or_nan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::int64_t count_of(const json& value) {
  if (!holds<std::int64_t>(value) || value.get<std::int64_t>() < 0) {
    throw IoError("expected a count");
  }
  return value.get<std::int64_t>();
}

std::string text_of(const json& option) {
  return option.is_null() ? "its default" : option.dump();
}

/// The keys of `expected` whose values in `written` differ, with both values.
std::vector<std::string> differences_of(const json& written, const json& expected,
                                        const std::string& prefix) {
  std::vector<std::string> differences;
  for (const auto& [key, value] : expected.items()) {
    const json stored = written.contains(key) ? written.at(key) : json(nullptr);
    if (value.is_object() && stored.is_object()) {
      for (std::string& inner : differences_of(stored, value, key + " ")) {
        differences.push_back(std::move(inner));
      }
    } else if (stored != value) {
      differences.push_back(
          fmt::format("{}{} {}, this run has {}", prefix, key, text_of(stored), text_of(value)));
    }
  }
  return differences;
}

at::Generator generator_of(at::Device device) {
  return at::globalContext().defaultGenerator(device);
}

/// The next `size` bytes of the file.
std::string read_bytes(const std::string& path, std::ifstream& file, std::streamoff size) {
  std::string bytes(static_cast<std::size_t>(size), '\0');
  if (!file.read(bytes.data(), size)) {
    detail::raise<IoError>("{}: reading failed: {}", path,
                           file.eof() ? "the file became shorter" : std::strerror(errno));
  }
  return bytes;
}

/// Throws IoError for folders, pipes and devices.
void check_regular(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    detail::raise<IoError>("{}: is a folder, not a checkpoint", path);
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    detail::raise<IoError>("{}: expected a checkpoint, got something that is no regular file",
                           path);
  }
}

}  // namespace

std::string read_checkpoint_bytes(const std::string& path) {
  constexpr auto kEnd = static_cast<std::streamoff>(kTrailer);
  check_regular(path);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) detail::raise<IoError>("{}: cannot be read: {}", path, std::strerror(errno));
  // Read the end first, to refuse a large file of another format at once.
  const std::streamoff size = std::streamoff(file.tellg()) - kEnd;
  std::string trailer;
  if (size > 0 && file.seekg(size)) trailer = read_bytes(path, file, kEnd);
  if (!trailer.starts_with(kMark)) {
    detail::raise<IoError>("{}: expected a checkpoint, got another file or a truncated one", path);
  }
  file.seekg(0);
  std::string bytes = read_bytes(path, file, size);
  if (trailer.substr(kMark.size()) != checksum(bytes)) {
    detail::raise<IoError>("{}: the checkpoint is corrupt (its checksum differs)", path);
  }
  return bytes;
}

CheckpointReader::CheckpointReader(const std::string& path, at::Device device)
    : CheckpointReader(path, read_checkpoint_bytes(path), device) {}

CheckpointReader::CheckpointReader(const std::string& path, const std::string& bytes,
                                   at::Device device)
    : path_(path) {
  try {
    archive_.load_from(bytes.data(), bytes.size(), device);
  } catch (const c10::Error&) {
    detail::raise<IoError>("{}: libtorch cannot read the archive", path);
  }
}

c10::IValue CheckpointReader::value(const char* key) {
  c10::IValue result;
  if (!archive_.try_read(key, result)) {
    detail::raise<IoError>("{}: the checkpoint has no field '{}'", path_, key);
  }
  return result;
}

json CheckpointReader::object(const char* key) {
  const c10::IValue field = value(key);
  if (!field.isString()) detail::raise<IoError>("{}: the field '{}' is no text", path_, key);
  json object = json::parse(field.toStringRef(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    detail::raise<IoError>("{}: the field '{}' is no JSON object", path_, key);
  }
  return object;
}

std::vector<at::Tensor> CheckpointReader::tensors(const char* key) {
  const c10::IValue field = value(key);
  if (!field.isTensorList()) {
    detail::raise<IoError>("{}: the field '{}' is no list of tensors", path_, key);
  }
  return field.toTensorVector();
}

std::vector<std::string> CheckpointReader::texts(const char* key) {
  const c10::IValue field = value(key);
  if (!field.isList()) detail::raise<IoError>("{}: the field '{}' is no list", path_, key);
  std::vector<std::string> texts;
  for (const c10::IValue& text : field.toListRef()) {
    if (!text.isString())
      detail::raise<IoError>("{}: the field '{}' is no list of texts", path_, key);
    texts.push_back(text.toStringRef());
  }
  return texts;
}

void CheckpointReader::nested(const char* key, const std::function<void(InputArchive&)>& load) {
  InputArchive inner;
  if (!archive_.try_read(key, inner)) {
    detail::raise<IoError>("{}: the checkpoint has no field '{}'", path_, key);
  }
  try {
    load(inner);
  } catch (const c10::Error&) {
    detail::raise<IoError>("{}: the field '{}' has an unexpected form", path_, key);
  }
}

bool is_own_output(const std::string& path) {
  constexpr std::uintmax_t kMostBytesOfReport = 1 << 26;
  try {
    read_checkpoint_bytes(path);
    return true;
  } catch (const IoError&) {
    std::error_code failure;
    const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
    if (failure || bytes > kMostBytesOfReport) return false;
  }
  std::ifstream file(path);
  std::string begin(kPageMark.size(), '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin == kPageMark) return true;
  file.clear();
  file.seekg(0);
  const json report = json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto version = report.find("version");  // in data sets a number
  return report.is_object() && version != report.end() && version->is_string();
}

void write_checkpoint_archive(const std::string& path, OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = std::move(stream).str();
  replace_file(path, [&](std::ostream& file) { file << bytes << kMark << checksum(bytes); });
}

void write_object(OutputArchive& archive, const char* key, const json& object) {
  archive.write(key, c10::IValue(object.dump()));
}

json history_to_json(const History& history) {
  json evaluations = json::array();
  for (const EvaluationRecord& record : history.evaluations) {
    const Scores& scores = record.scores;
    evaluations.push_back({record.epoch, scores.train, scores.val, scores.test});
  }
  return {{"losses", history.losses},
          {"epoch_ms", history.epoch_ms},
          {"loss_scales", history.loss_scales},
          {"evaluations", evaluations},
          {"steps", history.steps},
          {"skipped_steps", history.skipped_steps},
          {"skipped_in_a_row", history.skipped_in_a_row},
          {"evaluation_seconds", history.evaluation_seconds},
          {"total_seconds", history.total_seconds},
          {"communication_seconds", history.communication_seconds},
          {"peak_memory_bytes", history.peak_memory_bytes},
          {"begun",
           {{"batches", history.begun.batches},
            {"world_size", history.begun.world_size},
            {"loss_sum", history.begun.loss_sum},
            {"weight", history.begun.weight},
            {"milliseconds", history.begun.milliseconds}}}};
}

History history_from_json(const std::string& path, const json& object) {
  try {
    History history;
    for (const json& loss : object.at("losses")) history.losses.push_back(finite_or_nan(loss));
    history.epoch_ms = object.at("epoch_ms").get<std::vector<double>>();
    history.loss_scales = object.at("loss_scales").get<std::vector<double>>();
    for (const json& line : object.at("evaluations")) {
      history.evaluations.push_back({count_of(line.at(0)),
                                     {.train = finite_or_nan(line.at(1)),
                                      .val = finite_or_nan(line.at(2)),
                                      .test = finite_or_nan(line.at(3))}});
    }
    history.steps = count_of(object.at("steps"));
    history.skipped_steps = count_of(object.at("skipped_steps"));
    history.skipped_in_a_row = count_of(object.at("skipped_in_a_row"));
    history.evaluation_seconds = object.at("evaluation_seconds").get<double>();
    history.total_seconds = object.at("total_seconds").get<double>();
    history.communication_seconds = object.at("communication_seconds").get<double>();
    history.peak_memory_bytes = count_of(object.at("peak_memory_bytes"));
    const json& begun = object.at("begun");
    history.begun = {.batches = count_of(begun.at("batches")),
                     .world_size = count_of(begun.at("world_size")),
                     .loss_sum = finite_or_nan(begun.at("loss_sum")),
                     .weight = begun.at("weight").get<double>(),
                     .milliseconds = begun.at("milliseconds").get<double>()};
    const std::size_t epochs = history.losses.size();
    if (history.epoch_ms.size() != epochs || history.loss_scales.size() != epochs) {
      throw IoError("expected equal lengths");
    }
    return history;
  } catch (const std::exception&) {
    detail::raise<IoError>("{}: the field 'history' has an unexpected form", path);
  }
}

void check_same(const std::string& path, const json& written, const json& expected) {
  const std::vector<std::string> differences = differences_of(written, expected, "");
  MEZZO_CHECK(differences.empty(), "resume: {} was written with {}", path,
              fmt::join(differences, "; "));
}

void check_weights(const std::string& what, const std::vector<std::string>& names,
                   const std::vector<at::Tensor>& weights, const torch::nn::Module& model) {
  const std::vector<at::Tensor> own = weights_of(model);
  const std::vector<std::string> own_names = weight_names(model);
  MEZZO_CHECK(weights.size() == own.size() && names.size() == own.size(),
              "{}: expected {} weights for this model, got {}", what, own.size(), weights.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    MEZZO_CHECK(names[i] == own_names[i], "{}: expected the weight '{}', got '{}'", what,
                own_names[i], names[i]);
    MEZZO_CHECK(weights[i].sizes() == own[i].sizes() && weights[i].dtype() == own[i].dtype(),
                "{}: the weight '{}' has another shape or dtype than the model's", what, names[i]);
  }
}

void write_parts(OutputArchive& archive, const torch::nn::Module& model,
                 const torch::optim::Optimizer& optimizer, const amp::GradScaler& scaler,
                 at::Device device) {
  archive.write("names", c10::IValue(weight_names(model)));
  archive.write("weights", c10::IValue(copy_weights(model)));
  std::vector<at::Tensor> generators = {generator_of(at::kCPU).get_state()};
  if (!device.is_cpu()) generators.push_back(generator_of(device).get_state());
  archive.write("generators", c10::IValue(generators));

  OutputArchive inner;
  optimizer.save(inner);
  archive.write("optimizer", inner);
  if (scaler.is_enabled()) {
    OutputArchive scale;
    scaler.save(scale);
    archive.write("scaler", scale);
  }
}

void read_parts(CheckpointReader& reader, torch::nn::Module& model,
                torch::optim::Optimizer& optimizer, amp::GradScaler& scaler, at::Device device) {
  const std::vector<at::Tensor> weights = reader.tensors("weights");
  check_weights(reader.path(), reader.texts("names"), weights, model);
  const std::vector<at::Tensor> generators = reader.tensors("generators");
  const std::size_t expected = device.is_cpu() ? 1 : 2;
  if (generators.size() != expected) {
    detail::raise<IoError>("{}: expected {} generators, got {}", reader.path(), expected,
                           generators.size());
  }

  restore_weights(model, weights);
  reader.nested("optimizer", [&](InputArchive& archive) { optimizer.load(archive); });
  if (scaler.is_enabled()) {
    reader.nested("scaler", [&](InputArchive& archive) { scaler.load(archive); });
  }
  generator_of(at::kCPU).set_state(generators[0].cpu());
  if (expected == 2) generator_of(device).set_state(generators[1].cpu());
}

}  // namespace mezzo
