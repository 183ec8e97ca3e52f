#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/train/state.h"

/// The file format of checkpoints. Internal to train; not exported.
namespace mezzo {

/// The fields of a checkpoint's archive.
class ArchiveReader {
 public:
  /// Reads the file and checks it; its tensors go to `device`. Throws IoError that names the file
  /// where it is missing, truncated, corrupt or of another format; so do the members.
  ArchiveReader(const std::string& path, at::Device device);
  /// The same of `bytes`, which read_archive(path) gave here or in another process.
  ArchiveReader(const std::string& path, const std::string& bytes, at::Device device);

  c10::IValue value(const char* key);
  nlohmann::json object(const char* key);
  std::vector<at::Tensor> tensors(const char* key);
  std::vector<std::string> texts(const char* key);
  /// Calls `load` with the archive under `key`.
  void nested(const char* key, const std::function<void(torch::serialize::InputArchive&)>& load);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  torch::serialize::InputArchive archive_;
};

/// The bytes of the archive in the file, checked. Throws IoError that names the file where it is
/// missing, truncated, corrupt or no regular file; what is no checkpoint is told by its end,
/// without reading the rest.
std::string read_archive(const std::string& path);

/// Whether the file is one that the command wrote, a checkpoint or a JSON report: no data.
bool is_own_output(const std::string& path);

/// Replaces the file by the archive and a checksum. Throws IoError.
void write_archive(const std::string& path, torch::serialize::OutputArchive& archive);

/// Writes the object as a field that ArchiveReader::object reads.
void write_object(torch::serialize::OutputArchive& archive, const char* key,
                  const nlohmann::json& object);

nlohmann::json history_to_json(const History& history);
/// Throws IoError that names `path`.
History history_from_json(const std::string& path, const nlohmann::json& object);

/// Throws InvalidArgument at the first key of `wanted` whose value in `written` differs. prefix:
/// begins each key in the message.
void check_same(const std::string& path, const nlohmann::json& written,
                const nlohmann::json& wanted, const std::string& prefix = "");

/// Throws InvalidArgument that begins with `what` unless the tensors fit the model's, one by one.
void check_weights(const std::string& what, const std::vector<at::Tensor>& weights,
                   const torch::nn::Module& model);

/// Writes what moves in every trainer: the weights with their names, the optimizer, the scaler and
/// the state of libtorch's random number generators of the CPU and `device`.
void write_parts(torch::serialize::OutputArchive& archive, const torch::nn::Module& model,
                 const torch::optim::Optimizer& optimizer, const amp::GradScaler& scaler,
                 at::Device device);
/// Sets all of it. Throws, before anything is set, InvalidArgument for the weights of another model
/// and IoError for missing ones.
void read_parts(ArchiveReader& reader, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                amp::GradScaler& scaler, at::Device device);

}  // namespace mezzo
