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

/// Reads the fields of a checkpoint.
class CheckpointReader {
 public:
  /// Reads and checks the file; loads its tensors to `device`. As the members, throws IoError that
  /// names the file if it is missing, truncated, corrupt or of another format.
  CheckpointReader(const std::string& path, at::Device device);
  /// The same for the result of read_checkpoint_bytes(path), here or in another process.
  CheckpointReader(const std::string& path, const std::string& bytes, at::Device device);

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

/// The bytes of the archive in the file, checked. Throws IoError that names the file if it is
/// missing, truncated, corrupt or not a regular file. A file that is no checkpoint is recognised by
/// its end, without reading the rest.
std::string read_checkpoint_bytes(const std::string& path);

/// Whether the file is a checkpoint or a JSON report of the command.
bool is_own_output(const std::string& path);

/// Replaces the file by the archive and a checksum. Throws IoError.
void write_checkpoint_archive(const std::string& path, torch::serialize::OutputArchive& archive);

/// Writes the object as a field that CheckpointReader::object reads.
void write_object(torch::serialize::OutputArchive& archive, const char* key,
                  const nlohmann::json& object);

nlohmann::json history_to_json(const History& history);
/// Throws IoError that names `path`.
History history_from_json(const std::string& path, const nlohmann::json& object);

/// Throws InvalidArgument that lists the keys of `expected` whose values in `written` differ.
void check_same(const std::string& path, const nlohmann::json& written,
                const nlohmann::json& expected);

/// Throws InvalidArgument that begins with `what` unless each tensor and its name fit the model's.
void check_weights(const std::string& what, const std::vector<std::string>& names,
                   const std::vector<at::Tensor>& weights, const torch::nn::Module& model);

/// Writes the weights with their names, the optimizer, the scaler and the state of libtorch's
/// random number generators of the CPU and `device`.
void write_parts(torch::serialize::OutputArchive& archive, const torch::nn::Module& model,
                 const torch::optim::Optimizer& optimizer, const amp::GradScaler& scaler,
                 at::Device device);
/// Restores all of it. Throws, before it changes anything, InvalidArgument for the weights of
/// another model and IoError for missing ones.
void read_parts(CheckpointReader& reader, torch::nn::Module& model,
                torch::optim::Optimizer& optimizer, amp::GradScaler& scaler, at::Device device);

}  // namespace mezzo
