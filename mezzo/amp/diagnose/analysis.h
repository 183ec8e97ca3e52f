#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/amp/watch/watch.h"

/// Analyses the measurements of diagnose(); trains nothing.
namespace mezzo::amp::detail {

/// How far a run's loss may be from float32's, in units of the first loss.
inline constexpr double kLossTolerance = 0.05;
/// How far a run's first gradient may be from float32's, in units of its norm. In healthy models
/// bfloat16 differs by a few percent, in tiny models with a small gradient by up to 0.23.
inline constexpr double kGradientTolerance = 0.35;

/// A part of the model that can be kept in float32.
struct ModelPart {
  std::string path;
  bool has_weights = false;  ///< whether it has a parameter of two dimensions or more, for products
};

std::vector<ModelPart> model_parts(
    const std::vector<std::string>& paths,
    const std::vector<std::pair<std::string, at::Tensor>>& named_parameters);

/// The part that contains the module or parameter `path`; nullopt if none does.
std::optional<std::string> part_of(const std::string& path, const std::vector<ModelPart>& parts);

/// Whether every part with weights is among those kept in float32.
bool keeps_every_part(const std::vector<std::string>& keep_float32,
                      const std::vector<ModelPart>& parts);

/// Sets the members of `run` about operations. report: of its watched steps.
void describe_operations(const WatchReport& report, const std::vector<ModelPart>& parts,
                         DiagnosisRun& run);

/// The mean of the last quarter of the losses, at least of one.
double late_loss(const std::vector<double>& losses);

/// The norm of gradients / scale - reference, divided by the norm of the reference; undefined
/// tensors are zeros. inf if not finite.
double gradient_difference(const std::vector<at::Tensor>& gradients, double scale,
                           const std::vector<at::Tensor>& reference);

/// Adds the gradients of one more step.
void add_gradients(const GradientReport& report, GradientFacts& facts);
/// Computes the numbers of all steps; call it after the last one.
void finish_gradients(GradientFacts& facts);

/// The share of the non-zero gradients that float16 holds when the loss is scaled by `loss_scale`,
/// a power of two.
double kept_share(const GradientFacts& facts, double loss_scale);

/// A constant scale for float16: the largest power of two that keeps every float32 gradient, of
/// parameters and activations, a factor of 16 below 65504. Dynamic if the gradients grow or fall by
/// more than that within the steps, or are all zero. float32: the report of the fp32 run.
/// keep_float32: parts whose gradients stay in float32.
LossScalePolicy choose_loss_scale(const GradientFacts& gradients, const WatchReport& float32,
                                  const std::vector<std::string>& keep_float32,
                                  const std::vector<ModelPart>& parts);

/// Whether a run trained like float32 for all `steps`.
bool is_suited(const DiagnosisRun& run, std::int64_t steps, const std::vector<ModelPart>& parts);

/// What goes wrong in `plain`, the run of a precision without fixes. scaled: a run with a loss
/// scale, for float16; else `plain` again.
NumericProblem problem_of(const DiagnosisRun& plain, const DiagnosisRun& scaled, std::int64_t steps,
                          const std::vector<ModelPart>& parts);

/// Sets the issues, the evidence of the candidates and the recommendation. The runs and the other
/// members of the candidates are known.
void conclude(Diagnosis& diagnosis);

}  // namespace mezzo::amp::detail
