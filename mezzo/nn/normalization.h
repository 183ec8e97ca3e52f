#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/layer.h"

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

// Normalizations over the graphs of a batch, with PyG's parameters and values. A graph that is no
// batch is one graph. h: floating, strided [N, in], on the graph's device. They return the shape
// and dtype of h, also under autocast; everything between is float32 (float64 for float64). A graph
// of one node has variance 0; one without nodes has no rows. Differentiable once. The same bits for
// any number of threads. Memory: a few tensors like h. Throw InvalidArgument for other rows.

/// Options of GraphNorm.
struct GraphNormOptions {
  std::int64_t in_features = 0;
  double eps = 1e-5;  ///< added to the variance, at least 0
};

/// Graph normalization (Cai et al., ICML'21), per graph and feature: c = h - mean_scale * mean(h),
/// then weight * c / sqrt(mean(c^2) + eps) + bias. Parameters `weight` (ones), `bias` (zeros) and
/// `mean_scale` (ones), [in].
class MEZZO_API GraphNormImpl : public torch::nn::Cloneable<GraphNormImpl> {
 public:
  /// Throws InvalidArgument unless in_features is positive and eps is finite and at least 0.
  explicit GraphNormImpl(GraphNormOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Sets the parameters to their first values.
  void reset_parameters();
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, in]. Returns [N, in].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);

  GraphNormOptions options;
  at::Tensor weight, bias, mean_scale;
};
using GraphNorm = LayerHolder<GraphNormImpl, &GraphNormOptions::in_features>;

/// Options of PairNorm.
struct PairNormOptions {
  double scale = 1;                 ///< the length that rows get
  bool scale_individually = false;  ///< each row by its own length, not by that of its graph's rows
  double eps = 1e-5;                ///< at least 0
};

/// Pair normalization (Zhao & Akoglu, ICLR'20), per graph: c = h - mean(h), then
/// scale * c / sqrt(eps + mean(|c_v|^2)), or scale * c_v / (eps + |c_v|) individually. No
/// parameters.
class MEZZO_API PairNormImpl : public torch::nn::Cloneable<PairNormImpl> {
 public:
  /// Throws InvalidArgument unless scale is finite, and eps finite and at least 0.
  explicit PairNormImpl(PairNormOptions options = {});
  /// Checks the options; called by the constructor and clone().
  void reset() override;
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, any width]. Returns its shape. The gradient at a row of length 0 is that of PyG: the
  /// length counts as constant.
  at::Tensor forward(const Graph& graph, const at::Tensor& h);

  PairNormOptions options;
};
using PairNorm = LayerHolder<PairNormImpl>;

/// Options of InstanceNorm.
struct InstanceNormOptions {
  std::int64_t in_features = 0;
  double eps = 1e-5;      ///< added to the variance, at least 0
  double momentum = 0.1;  ///< of the running statistics, in [0, 1]
  bool affine = false;    ///< whether there are `weight` and `bias`
  bool track_running_stats = false;
};

/// Instance normalization (Ulyanov et al., 2016), per graph and feature:
/// weight * (h - mean(h)) / sqrt(variance(h) + eps) + bias. Parameters, if affine: `weight` (ones)
/// and `bias` (zeros), [in]. Buffers, if track_running_stats: `running_mean` (zeros), `running_var`
/// (ones), [in], and `num_batches_tracked`, which PyG does not count either. Training moves the
/// first two towards the averages over all graphs, empty ones too, of the graphs' means and
/// unbiased variances. Evaluation uses them instead of the graphs' own.
class MEZZO_API InstanceNormImpl : public torch::nn::Cloneable<InstanceNormImpl> {
 public:
  /// Throws InvalidArgument unless in_features is positive, eps finite and at least 0, and momentum
  /// in [0, 1].
  explicit InstanceNormImpl(InstanceNormOptions options);
  /// Creates the parameters and buffers; called by the constructor and clone().
  void reset() override;
  /// Sets the parameters and buffers to their first values.
  void reset_parameters();
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, in]. Returns [N, in].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);

  InstanceNormOptions options;
  at::Tensor weight, bias;                                    ///< undefined if not affine
  at::Tensor running_mean, running_var, num_batches_tracked;  ///< undefined if not tracked
};
using InstanceNorm = LayerHolder<InstanceNormImpl, &InstanceNormOptions::in_features>;

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
