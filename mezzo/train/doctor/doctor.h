#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/export.h"
#include "mezzo/core/table.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/trainer.h"

namespace mezzo {

/// What to diagnose.
struct DoctorOptions {
  /// The job, on the full graph or by mini-batches. Precision, loss scale, parts in float32,
  /// epochs, patience, capture and files must have their defaults: the doctor chooses or does not
  /// use them.
  TrainOptions training;
  std::int64_t steps = 20;  ///< of each run, >= 1
};

/// The CUDA devices of this machine, whatever device the job runs on.
struct CudaFacts {
  std::int64_t devices = 0;  ///< that the library can use
  std::string library;       ///< file of the CUDA kernels; empty if not searched
  std::string problem;       ///< why there are no devices, on one line; else empty
};

/// The diagnosis of a job of `mezzo train`. Plain values.
struct DoctorReport : amp::Diagnosis {
  std::string dataset, model;
  CudaFacts cuda;
  std::uint64_t seed = 0;
};

/// Callbacks of diagnose(); empty ones are skipped.
struct DoctorCallbacks {
  /// Called after every watched step. run: command_options() of its setting.
  std::function<void(const std::string& run, const EpochRecord&)> on_step;
  /// Called after every step; true ends the diagnosis.
  std::function<bool()> should_stop;
};

/// amp::diagnose() for a job of `mezzo train`: the model and its optimizer, from the same seed in
/// every run, with the steps of train(). Parts of the model stay in float32 by
/// ModelOptions::keep_float32. All numbers except times are as deterministic as train(). Throws
/// InvalidArgument for options or data that train() would refuse.
MEZZO_API DoctorReport diagnose(const Dataset& dataset, const DoctorOptions& options,
                                const DoctorCallbacks& callbacks = {});

/// The options of `mezzo train`: "--precision fp16 --loss-scale 1024 --keep-float32 layer0".
MEZZO_API std::string command_options(const amp::PrecisionSetting& setting);

/// `options` with the setting.
MEZZO_API TrainOptions with_setting(TrainOptions options, const amp::PrecisionSetting& setting);

/// What to do about an issue: options of `mezzo train`, or one sentence.
MEZZO_API std::string fix_of(const DoctorReport& report, const amp::DiagnosisIssue& issue);

/// The tables of format_diagnosis().
MEZZO_API std::vector<Table> diagnosis_tables(const DoctorReport& report);

/// As amp::to_text(), with the job and the options of `mezzo train`.
MEZZO_API std::string format_diagnosis(const DoctorReport& report);

/// As amp::to_json(), with the job and the options of `mezzo train`.
MEZZO_API std::string diagnosis_to_json(const DoctorReport& report);

}  // namespace mezzo
