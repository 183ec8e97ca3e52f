#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/train/doctor/doctor.h"

/// What the doctor makes of its measurements; no training here.
namespace mezzo::detail {

/// How far a trial's loss may be from float32's, in units of the first loss.
inline constexpr double kLossTolerance = 0.05;

/// The part of the model that could be kept in float32 for an operation at `place`; nothing where
/// it belongs to none of `parts`.
std::optional<std::string> part_of(const amp::WatchPlace& place,
                                   const std::vector<std::string>& parts);

/// Whether every layer of the model is among those kept in float32.
bool keeps_every_layer(const std::vector<std::string>& keep_float32,
                       const std::vector<std::string>& parts);

/// Fills in what a Trial says of the operations. report: of its watched steps.
void describe_operations(const amp::WatchReport& report, Trial& trial);

/// The mean of the last quarter of the losses, at least of one.
double late_loss(const std::vector<double>& losses);

/// Adds the gradients of one more step.
void add_gradients(const amp::GradientReport& report, GradientFacts& facts);
/// Fills in the numbers of all steps once there are no more.
void finish_gradients(GradientFacts& facts);

/// The share of the non-zero gradients that float16 holds when the loss is scaled by `loss_scale`,
/// a power of two.
double kept_share(const GradientFacts& facts, double loss_scale);

/// The constant scale for float16 from what float32 measured: the largest power of two that leaves
/// every gradient, of parameters and activations, a factor of 16 below 65504. kDynamic where the
/// gradients grow or fall by more than that within the steps, or are all zero.
/// float32: the report of the fp32 trial. keep_float32: parts whose gradients stay in float32.
LossScale choose_loss_scale(const GradientFacts& gradients, const amp::WatchReport& float32,
                            const std::vector<std::string>& keep_float32);

/// Whether a trial did all `steps` like float32.
bool is_suited(const Trial& trial, std::int64_t steps, const std::vector<std::string>& parts);

/// Fills in the findings, the evidence of the prescriptions (which name their trials) and the
/// recommendation.
void conclude(Diagnosis& diagnosis);

}  // namespace mezzo::detail
