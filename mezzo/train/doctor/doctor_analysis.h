#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/train/doctor/doctor.h"

/// Analyses the doctor's measurements; trains nothing.
namespace mezzo::detail {

/// How far a run's loss may be from float32's, in units of the first loss.
inline constexpr double kLossTolerance = 0.05;

/// The part of the model to keep in float32 for an operation at `place`; nullopt if it belongs to
/// none of `parts`.
std::optional<std::string> part_of(const amp::WatchPlace& place,
                                   const std::vector<std::string>& parts);

/// Whether every layer of the model is among those kept in float32.
bool keeps_every_layer(const std::vector<std::string>& keep_float32,
                       const std::vector<std::string>& parts);

/// Sets the members of `run` about operations. report: of its watched steps.
void describe_operations(const amp::WatchReport& report, DoctorRun& run);

/// The mean of the last quarter of the losses, at least of one.
double late_loss(const std::vector<double>& losses);

/// Adds the gradients of one more step.
void add_gradients(const amp::GradientReport& report, GradientFacts& facts);
/// Computes the numbers of all steps; call it after the last one.
void finish_gradients(GradientFacts& facts);

/// The share of the non-zero gradients that float16 holds when the loss is scaled by `loss_scale`,
/// a power of two.
double kept_share(const GradientFacts& facts, double loss_scale);

/// A constant scale for float16: the largest power of two with which every gradient of float32, of
/// parameters and activations, stays a factor of 16 below 65504. kDynamic if the gradients grow or
/// fall by more than that within the steps, or are all zero.
/// float32: the report of the fp32 run. keep_float32: parts whose gradients stay in float32.
LossScale choose_loss_scale(const GradientFacts& gradients, const amp::WatchReport& float32,
                            const std::vector<std::string>& keep_float32);

/// Whether a run trained like float32 for all `steps`.
bool is_suited(const DoctorRun& run, std::int64_t steps, const std::vector<std::string>& parts);

/// Sets the issues, the evidence of the candidates (whose runs are known) and the recommendation.
void conclude(Diagnosis& diagnosis);

}  // namespace mezzo::detail
