#include "mezzo/nn/model/state_dict.h"

#include <fstream>
#include <ios>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/data/pickle/torch_file.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/safetensors.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/nn/model/tensor_sources.h"

namespace mezzo::nn {
namespace {

using detail::NamedTensors;
using detail::TensorSource;
using detail::TensorSources;

/// Whether the file is a checkpoint of train(), by its end (train/files/checkpoint_io.cpp).
bool is_checkpoint(const std::string& path) {
  constexpr std::string_view kMark = "mezzo-checkpoint-1:";
  constexpr auto kTrailer = static_cast<std::streamoff>(kMark.size() + 8);
  std::ifstream file(path, std::ios::binary);
  std::string end(kMark.size(), '\0');
  file.seekg(-kTrailer, std::ios::end);
  return file.read(end.data(), static_cast<std::streamsize>(end.size())) && end == kMark;
}

NamedTensors read_tensors(const std::string& path) {
  if (path.ends_with(".safetensors")) return data::read_safetensors(path);
  data::require(!is_checkpoint(path), path,
                "is a checkpoint of a training: read it with mezzo::load_checkpoint(path)");
  return data::read_state_dict(path);
}

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

/// The name of a tensor of the module, and those of the file if they differ.
std::string full_name(const std::string& name, const std::vector<std::string>& in_file) {
  if (in_file == std::vector<std::string>{name}) return name;
  return fmt::format("{} (in the file: {})", name, fmt::join(in_file, ", "));
}

/// Throws InvalidArgument unless the file has exactly the tensors that the module's are made of.
void check_names(const std::string& path, const NamedTensors& in_file,
                 const TensorSources& sources) {
  std::vector<std::string> missing, unexpected;
  NamedTensors unused = in_file;
  for (const auto& [name, source] : sources) {
    std::vector<std::string> absent;
    for (const std::string& part : source.names) {
      if (in_file.count(part) == 0) absent.push_back(part);
      unused.erase(part);
    }
    if (!absent.empty()) missing.push_back(full_name(name, absent));
  }
  for (const auto& [name, tensor] : unused) unexpected.push_back(name);
  MEZZO_CHECK(
      missing.empty() && unexpected.empty(),
      "load_state_dict: expected in {} the parameters and buffers of the module, got missing "
      "names [{}] and unexpected names [{}]",
      path, fmt::join(missing, ", "), fmt::join(unexpected, ", "));
}

/// Whether a copy can convert one dtype to the other.
bool converts(at::ScalarType from, at::ScalarType to) {
  const auto is_plain = [](at::ScalarType dtype) {
    return at::isFloatingType(dtype) || at::isComplexType(dtype) ||
           at::isIntegralType(dtype, /*includeBool=*/true);
  };
  return is_plain(from) && is_plain(to) && c10::canCast(from, to);
}

/// The tensor of a module that the file has; undefined if it does not fit `own`.
at::Tensor made(const TensorSource& source, const NamedTensors& in_file, const at::Tensor& own) {
  std::vector<at::Tensor> parts;
  for (const std::string& part : source.names) parts.push_back(in_file.at(part));
  at::Tensor tensor;
  try {
    tensor = source.make ? source.make(parts) : parts[0];
  } catch (const c10::Error&) {  // of other shapes
    return {};
  }
  const bool fits = tensor.defined() && tensor.sizes() == own.sizes() &&
                    converts(tensor.scalar_type(), own.scalar_type());
  return fits ? tensor : at::Tensor();
}

/// "'weight' as the module's float32 [2], got float32 [3]"
std::string misfit(const std::string& name, const TensorSource& source, const NamedTensors& in_file,
                   const at::Tensor& own) {
  std::vector<std::string> got;
  for (const std::string& part : source.names) {
    got.push_back(mezzo::detail::describe(in_file.at(part)));
  }
  return fmt::format("'{}' as the module's {}, got {}{}", full_name(name, source.names),
                     mezzo::detail::describe(own), fmt::join(got, " and "),
                     got.size() > 1 ? ", which do not fit together" : "");
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

}  // namespace

void load_state_dict(torch::nn::Module& module, const std::string& path,
                     const std::map<std::string, std::string>& paths) {
  const at::NoGradGuard no_grad;
  const NamedTensors own = tensors_of(module), in_file = read_tensors(path);
  const TensorSources sources = detail::sources_in_file(module, in_file, paths);
  check_names(path, in_file, sources);
  NamedTensors loaded;
  std::vector<std::string> misfits;
  for (const auto& [name, tensor] : own) {
    const TensorSource& source = sources.at(name);
    loaded[name] = made(source, in_file, tensor);
    if (!loaded[name].defined()) misfits.push_back(misfit(name, source, in_file, tensor));
  }
  MEZZO_CHECK(misfits.empty(), "load_state_dict: expected in {} {}", path,
              fmt::join(misfits, "; "));
  for (const auto& [name, tensor] : own) {
    check_range(path, full_name(name, sources.at(name).names), loaded.at(name), tensor);
  }
  for (const auto& [name, tensor] : own) tensor.copy_(loaded.at(name));
}

}  // namespace mezzo::nn
