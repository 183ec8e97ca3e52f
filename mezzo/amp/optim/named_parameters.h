#pragma once

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace mezzo::amp::detail {

/// A type with named_parameters(), or a pointer to one: a torch::nn::Module or its holder.
template <class Module>
concept HasNamedParameters = requires(const Module& model) {
  model.named_parameters();
}
|| requires(const Module& model) {
  model->named_parameters();
};

/// The parameters and their paths, each once, under its first path: modules can be registered
/// twice.
template <HasNamedParameters Module>
std::vector<std::pair<std::string, at::Tensor>> named_parameters_of(const Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> named;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto append = [&](const auto& items) {
    for (const auto& item : items) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      named.emplace_back(item.key(), item.value());
    }
  };
  if constexpr (requires { model.named_parameters(); }) {
    append(model.named_parameters());
  } else {
    append(model->named_parameters());
  }
  return named;
}

}  // namespace mezzo::amp::detail
