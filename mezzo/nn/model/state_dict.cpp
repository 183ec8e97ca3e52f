#include "mezzo/nn/model/state_dict.h"

#include <cstddef>
#include <exception>
#include <fstream>
#include <ios>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <zip.h>

#include "mezzo/core/error.h"
#include "mezzo/data/readers.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/nn/model/pyg_names.h"

namespace mezzo::nn {
namespace {

using detail::NamedTensors;
using detail::PygTensors;

constexpr auto kExpectedFile = "expected what torch.save(dict(model.state_dict()), path) writes";

struct ArchiveCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct RecordCloser {
  void operator()(zip_file_t* record) const { zip_fclose(record); }
};

/// Whether the file is a checkpoint of train(), by its end (train/files/checkpoint_io.cpp).
bool is_checkpoint(const std::string& path) {
  constexpr std::string_view kMark = "mezzo-checkpoint-1:";
  constexpr auto kTrailer = static_cast<std::streamoff>(kMark.size() + 8);
  std::ifstream file(path, std::ios::binary);
  std::string end(kMark.size(), '\0');
  file.seekg(-kTrailer, std::ios::end);
  return file.read(end.data(), static_cast<std::streamsize>(end.size())) && end == kMark;
}

/// Reads every record of the archive and compares its checksum, which libtorch's reader does not.
void check_records(const std::string& path) {
  data::regular_file_bytes(path);
  data::require(!is_checkpoint(path), path,
                "is a checkpoint of a training: read it with mezzo::load_checkpoint(path)");
  int code = 0;
  const std::unique_ptr<zip_t, ArchiveCloser> archive(
      zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  data::require(archive != nullptr, path, "is another kind of file, or truncated: {}",
                kExpectedFile);
  std::vector<char> buffer(std::size_t{1} << 20);
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const std::unique_ptr<zip_file_t, RecordCloser> record(
        zip_fopen_index(archive.get(), static_cast<zip_uint64_t>(i), 0));
    zip_int64_t got = record == nullptr ? -1 : 1;
    while (got > 0) got = zip_fread(record.get(), buffer.data(), buffer.size());
    data::require(got == 0, path, "is corrupt: record {} cannot be read, or its checksum differs",
                  i);
  }
}

/// Unpickles the file, with its tensors on the CPU.
c10::IValue unpickle(const std::string& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    // torch::pickle_load would need the original devices of the tensors.
    return torch::jit::readArchiveAndTensors("data", "", "", std::nullopt, std::nullopt,
                                             at::Device(at::kCPU), reader);
  } catch (const std::exception&) {
    mezzo::detail::raise<IoError>("{}: libtorch cannot read it: {}", path, kExpectedFile);
  }
}

NamedTensors read_dict(const std::string& path) {
  check_records(path);
  const c10::IValue read = unpickle(path);
  data::require(read.isGenericDict(), path, "holds no dict: {}", kExpectedFile);
  NamedTensors tensors;
  for (const auto& entry : read.toGenericDict()) {
    const c10::IValue key = entry.key(), value = entry.value();
    data::require(key.isString(), path, "holds a dict whose keys are not strings: {}",
                  kExpectedFile);
    data::require(value.isTensor() && value.toTensor().layout() == at::kStrided, path,
                  "holds no strided tensor under '{}': {}", key.toStringRef(), kExpectedFile);
    tensors.emplace(key.toStringRef(), value.toTensor());
  }
  return tensors;
}

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

/// The name of a tensor of the module, and PyG's if it differs in a file of PyG's.
std::string full_name(const PygTensors& in_file, const std::string& name) {
  const auto pyg = in_file.names.find(name);
  const bool is_same = pyg == in_file.names.end() || pyg->second == name;
  return is_same ? name : fmt::format("{} (PyG: {})", name, pyg->second);
}

/// The names in `all` that are not in `some`.
std::vector<std::string> names_beside(const NamedTensors& all, const NamedTensors& some,
                                      const PygTensors& in_file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : all) {
    if (some.count(name) == 0) names.push_back(full_name(in_file, name));
  }
  return names;
}

/// Whether a copy can convert one dtype to the other.
bool converts(at::ScalarType from, at::ScalarType to) {
  const auto is_plain = [](at::ScalarType dtype) {
    return at::isFloatingType(dtype) || at::isComplexType(dtype) ||
           at::isIntegralType(dtype, /*includeBool=*/true);
  };
  return is_plain(from) && is_plain(to) && c10::canCast(from, to);
}

/// Throws InvalidArgument if a finite value of `other` is infinite in the dtype of `own`.
void check_range(const std::string& path, const std::string& name, const at::Tensor& other,
                 const at::Tensor& own) {
  const at::ScalarType from = other.scalar_type(), dtype = own.scalar_type();
  if (from == dtype || !at::isFloatingType(from) || !at::isFloatingType(dtype)) return;
  const at::Tensor finite = other.isfinite();
  if (!finite.logical_and(other.to(dtype).isfinite().logical_not()).any().item<bool>()) return;
  mezzo::detail::raise<InvalidArgument>(
      "load_state_dict: expected in {} '{}' of values that fit the module's {}, the largest is {}",
      path, name, mezzo::detail::describe(own),
      other.masked_select(finite).abs().max().item<double>());
}

/// Throws InvalidArgument unless the file has exactly the names of the module's tensors, with their
/// shapes and dtypes that can be converted.
void check_tensors(const std::string& path, const PygTensors& in_file, const NamedTensors& own) {
  const auto missing = names_beside(own, in_file.tensors, in_file),
             unexpected = names_beside(in_file.tensors, own, in_file);
  MEZZO_CHECK(
      missing.empty() && unexpected.empty(),
      "load_state_dict: expected in {} the parameters and buffers of the module, got missing "
      "names [{}] and unexpected names [{}]",
      path, fmt::join(missing, ", "), fmt::join(unexpected, ", "));
  for (const auto& [name, tensor] : own) {
    const at::Tensor& other = in_file.tensors.at(name);
    MEZZO_CHECK(
        other.sizes() == tensor.sizes() && converts(other.scalar_type(), tensor.scalar_type()),
        "load_state_dict: expected in {} '{}' as the module's {}, got {}", path,
        full_name(in_file, name), mezzo::detail::describe(tensor), mezzo::detail::describe(other));
    check_range(path, full_name(in_file, name), other, tensor);
  }
}

}  // namespace

void load_state_dict(torch::nn::Module& module, const std::string& path) {
  const NamedTensors own = tensors_of(module);
  const PygTensors in_file = detail::from_pyg(module, own, read_dict(path));
  check_tensors(path, in_file, own);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(in_file.tensors.at(name));
}

}  // namespace mezzo::nn
