#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "mezzo/core/type_list.h"

namespace mezzo::nn {

/// The normalization after a hidden layer: none, layer normalization (over the features of a node)
/// or batch normalization (over the nodes, with running statistics for evaluation).
enum class Normalization : std::uint8_t { kNone, kLayer, kBatch };

struct NoNormalization {
  static constexpr Normalization kind = Normalization::kNone;
  static constexpr std::string_view name = "none";
};
struct LayerNormalization {
  static constexpr Normalization kind = Normalization::kLayer;
  static constexpr std::string_view name = "layer";
};
struct BatchNormalization {
  static constexpr Normalization kind = Normalization::kBatch;
  static constexpr std::string_view name = "batch";
};
/// Every normalization, with its name on the command line.
using Normalizations = TypeList<NoNormalization, LayerNormalization, BatchNormalization>;

/// A normalization of [N, width] rows, not yet registered, and the function that applies it.
struct NormalizationModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> apply;
};
/// Creates a normalization of `width` features.
using NormalizationFactory = std::function<NormalizationModule(std::int64_t width)>;

namespace detail {

/// Registers the normalization of [N, width] rows with `owner` as `name` and returns the function
/// that applies it, empty for kNone. Statistics are float32; on the CPU the rows keep their dtype.
/// make_batch creates batch normalization; if it is empty, libtorch's BatchNorm1d is used, which
/// throws InvalidArgument for fewer than 2 rows while training.
std::function<at::Tensor(const at::Tensor&)> add_normalization(
    torch::nn::Module& owner, const std::string& name, Normalization kind, std::int64_t width,
    const NormalizationFactory& make_batch = {});

}  // namespace detail
}  // namespace mezzo::nn
