#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <torch/serialize.h>

/// State dicts as files of Python.
namespace mezzo::test {

using Entries = std::vector<std::pair<std::string, at::Tensor>>;

inline std::string bytes_of(const c10::IValue& value) {
  const std::vector<char> bytes = torch::pickle_save(value);
  return std::string(bytes.begin(), bytes.end());
}

/// The bytes that torch.save(dict) writes.
inline std::string saved(const Entries& entries) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, tensor] : entries) dict.insert(name, tensor);
  return bytes_of(dict);
}

}  // namespace mezzo::test
