#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/data/dataset.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options/sampling_options.h"

namespace mezzo {

/// The optimizer; kSgd is without momentum.
enum class OptimizerKind : std::uint8_t { kAdam, kAdamW, kSgd };

struct AdamOptimizer {
  static constexpr OptimizerKind kind = OptimizerKind::kAdam;
  static constexpr std::string_view name = "adam";
};
struct AdamWOptimizer {
  static constexpr OptimizerKind kind = OptimizerKind::kAdamW;
  static constexpr std::string_view name = "adamw";
};
struct SgdOptimizer {
  static constexpr OptimizerKind kind = OptimizerKind::kSgd;
  static constexpr std::string_view name = "sgd";
};
using OptimizerKinds = TypeList<AdamOptimizer, AdamWOptimizer, SgdOptimizer>;

/// The training loss.
enum class LossKind : std::uint8_t {
  kAutomatic,  ///< cross entropy of a class, binary cross entropy of classes, else kMse
  kMse,        ///< squares of the errors of numbers
  kL1,         ///< magnitudes of the errors
  kHuber,      ///< half their squares up to 1, beyond that their magnitudes less one half
  kMargin,     ///< of links: 1 - the score of a link + that of its negative pair, if above 0
};

struct AutomaticLoss {
  static constexpr LossKind kind = LossKind::kAutomatic;
  static constexpr std::string_view name = "auto";
};
struct MseLoss {
  static constexpr LossKind kind = LossKind::kMse;
  static constexpr std::string_view name = "mse";
};
struct L1Loss {
  static constexpr LossKind kind = LossKind::kL1;
  static constexpr std::string_view name = "l1";
};
struct HuberLoss {
  static constexpr LossKind kind = LossKind::kHuber;
  static constexpr std::string_view name = "huber";
};
struct MarginLoss {
  static constexpr LossKind kind = LossKind::kMargin;
  static constexpr std::string_view name = "margin";
};
using LossKinds = TypeList<AutomaticLoss, MseLoss, L1Loss, HuberLoss, MarginLoss>;

struct Float32Traffic {
  static constexpr dist::GradientTraffic kind = dist::GradientTraffic::kFloat32;
  static constexpr std::string_view name = "fp32";
  static constexpr std::string_view long_name = "float32";
};
struct BFloat16Traffic {
  static constexpr dist::GradientTraffic kind = dist::GradientTraffic::kBFloat16;
  static constexpr std::string_view name = "bf16";
  static constexpr std::string_view long_name = "bfloat16";
};
using GradientTraffics = TypeList<Float32Traffic, BFloat16Traffic>;

/// How the loss is scaled before the backward.
struct LossScale {
  enum class Kind : std::uint8_t {
    kAutomatic,  ///< dynamic for float16, none otherwise
    kNone,
    kConstant,  ///< times `value`; steps with inf or nan gradients are skipped
    kDynamic,   ///< times a factor that falls at overflow and grows without
  };
  Kind kind = Kind::kAutomatic;
  double value = 1;  ///< for kConstant: > 0 and finite in float32

  bool operator==(const LossScale&) const = default;
};

/// "automatic", "none", "dynamic" or a number. Throws InvalidArgument for anything else.
MEZZO_API LossScale parse_loss_scale(std::string_view text);
/// parse_loss_scale reads it back bit for bit.
MEZZO_API std::string to_string(const LossScale& scale);

/// Why the library cannot use the first CUDA device (no driver, no kernels, no device, or one that
/// the kernels were not compiled for), on one line; empty if it can. Queries the driver.
MEZZO_API std::string cuda_problem();

/// "cpu", "cuda" or "cuda:N". Throws InvalidArgument for another text and for a CUDA device that
/// the library cannot use, with the reason as cuda_problem() gives it.
MEZZO_API at::Device parse_device(const std::string& text);

/// Whether products are computed in a 16-bit type: bf16 and fp16.
MEZZO_API bool is_low(amp::Precision precision);

/// Everything that decides a training run, as plain values. Flags, ranges and checkpoints derive
/// from the list in option_fields.h. An option "gat: ..." set for another model is an error. With a
/// model of your own so are hidden to skip and keep_float32; model and layers are set by train().
struct TrainOptions {
  nn::ModelKind model = nn::ModelKind::kGcn;
  std::int64_t layers = 2;  ///< 1 to 65536; sgc: hops of its one layer
  /// 16 by default, 1 to 16777216 (as are heads); only with two layers or more (gin: also with
  /// one); not sgc.
  std::optional<std::int64_t> hidden = {};
  std::optional<std::int64_t> heads = {};         ///< gat: of the hidden layers, 8 by default
  std::optional<std::int64_t> output_heads = {};  ///< gat: of the last layer, 1 by default
  double dropout = 0.5;                           ///< of the features before each layer, in [0, 1)
  std::optional<double> attention_dropout = {};   ///< gat: in [0, 1), 0 by default
  /// Only with two layers or more; not sgc.
  nn::Normalization normalization = nn::Normalization::kNone;
  bool skip = false;                        ///< residual connections
  ReduceOp readout = ReduceOp::kMean;       ///< of labels of graphs: one of nn::Readouts
  std::optional<nn::Decoder> decoder = {};  ///< only of links: kDot by default

  std::int64_t epochs = 200;    ///< >= 1
  double learning_rate = 0.01;  ///< > 0, within check_rates
  double weight_decay = 5e-4;   ///< >= 0, within check_rates; of every parameter
  OptimizerKind optimizer = OptimizerKind::kAdam;
  amp::Precision precision = amp::Precision::kFloat32;
  LossScale loss_scale = {};
  LossKind loss = LossKind::kAutomatic;  ///< another one: of numbers; kMargin: of links
  /// Factor on the loss that is minimised, a normal float32 > 0; reported losses are without it.
  double loss_factor = 1;
  /// Parts of the model (`layer0`, `norm0`, `skip0`, ...) that a 16-bit precision leaves in
  /// float32.
  std::vector<std::string> keep_float32 = {};
  at::Device device = at::kCPU;
  /// Whether the step is captured as a CUDA graph and replayed without the host: faster on small
  /// graphs, with the same numbers except that dropout, which then draws on the device
  /// (amp::CapturedStep), drops other elements. On CUDA, on the full graph and in one process.
  bool capture = false;
  std::uint64_t seed = 0;       ///< of the weights, of dropout and of sampling
  std::int64_t eval_every = 1;  ///< >= 1, in epochs; the last one is always evaluated
  /// Stops after this many epochs without a better validation score, >= 1 and >= eval_every.
  std::optional<std::int64_t> patience = {};

  std::optional<SamplingOptions> sampling = {};  ///< mini-batches; nullopt: the full graph
  /// The dtype of gradients between processes; not kFloat32 only for several processes, or to
  /// resume a run of several.
  dist::GradientTraffic gradient_traffic = dist::GradientTraffic::kFloat32;

  std::int64_t split_index = 0;     ///< the column of the data set's masks, >= 0
  bool normalize_features = false;  ///< divides each row of the features by the sum of magnitudes
  /// Whether every node has a self loop; by default yes for gcn, gat and sgc, no for sage and gin
  /// (whose layers have a separate term for the node) and for a model of your own. Not for mlp.
  std::optional<bool> self_loops = {};

  /// Arguments of load_dataset, stored in checkpoints for later commands; training does not read
  /// them.
  std::string dataset = {};
  std::string split = {};
  CsvColumns csv = {};

  std::string checkpoint = {};  ///< file to write; empty: none
  std::string resume = {};      ///< file to resume from; empty: none
  /// File whose best weights the run starts from, with a new optimizer; empty: random weights.
  std::string init = {};
};

/// Throws InvalidArgument for a rate or decay that makes a step overflow or vanish in float32. The
/// rate must be in [1.18e-38, most], the decay (for AdamW also their product) in [0, most]; most is
/// float32's largest number for SGD, 1e37 for the others.
MEZZO_API void check_rates(OptimizerKind optimizer, double learning_rate, double weight_decay);

/// Throws InvalidArgument that names the first option that is out of range or contradicts another.
MEZZO_API void check_options(const TrainOptions& options);

/// options.self_loops, or the model's default.
MEZZO_API bool uses_self_loops(const TrainOptions& options);

/// The options as one JSON object with the names of the command line, without the options that may
/// change when a run is resumed (epochs, patience, capture, files; sample-on, workers, prefetch).
MEZZO_API std::string config_to_json(const TrainOptions& options);
/// The inverse, except for the device; reads options that may change too, if they are there. Throws
/// IoError that names a missing or unreadable field.
MEZZO_API TrainOptions config_from_json(std::string_view json);

}  // namespace mezzo
