#include <exception>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/amp/optim/optimizer_parameters.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// Reads the field `key`. Throws unless `is` accepts its type.
c10::IValue read(InputArchive& archive, const char* key, bool (c10::IValue::*is)() const) {
  c10::IValue value;
  if (!archive.try_read(key, value) || !(value.*is)()) {
    mezzo::detail::raise<IoError>(
        "MixedPrecisionOptimizer::load: the archive has no field '{}', or of another form", key);
  }
  return value;
}

std::vector<at::Tensor> detached(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

/// Fields of save() besides the optimizer and the scaler.
struct Fields {
  std::int64_t rounding, seed, steps, micro_batches;
  bool scaled;
  std::vector<at::Tensor> masters;
  std::vector<std::int64_t> places;  // group positions of parameters with gradients
  std::vector<at::Tensor> gradients;
};

Fields read_fields(InputArchive& archive) {
  const auto integer = [&](const char* key) {
    return read(archive, key, &c10::IValue::isInt).toInt();
  };
  const auto tensors = [&](const char* key) {
    return read(archive, key, &c10::IValue::isTensorList).toTensorVector();
  };
  return {.rounding = integer("rounding"),
          .seed = integer("seed"),
          .steps = integer("steps"),
          .micro_batches = integer("micro_batches"),
          .scaled = read(archive, "scaled", &c10::IValue::isBool).toBool(),
          .masters = tensors("masters"),
          .places = read(archive, "places", &c10::IValue::isIntList).toIntVector(),
          .gradients = tensors("gradients")};
}

bool gradients_fit(const Fields& fields, const std::vector<at::Tensor>& parameters,
                   const MasterWeights& masters) {
  if (fields.places.size() != fields.gradients.size()) return false;
  for (std::size_t i = 0; i < fields.places.size(); ++i) {
    const auto place = static_cast<std::size_t>(fields.places[i]);
    if (fields.places[i] < 0 || place >= parameters.size()) return false;
    const at::Tensor& parameter = parameters[place];
    const at::Tensor& gradient = fields.gradients[i];
    if (gradient.sizes() != masters.original(parameter).sizes()) return false;
    if (gradient.scalar_type() != parameter.scalar_type()) return false;
  }
  return true;
}

/// Loads the optimizer; restores its state if the checkpoint does not match.
void load_optimizer(Optimizer& optimizer, InputArchive& archive) {
  auto before = std::move(optimizer.state());
  optimizer.state().clear();
  try {
    optimizer.load(archive);
  } catch (const std::exception& error) {  // from libtorch, or IoError from a fused optimizer
    optimizer.state() = std::move(before);
    const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
    mezzo::detail::raise<InvalidArgument>(
        "MixedPrecisionOptimizer::load: the saved optimizer is of another kind or has other "
        "groups: {}",
        of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what());
  }
}

}  // namespace

void MixedPrecisionOptimizer::save(OutputArchive& archive) const {
  if (unscaled_) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::save: between unscale_() and step(); call step() first");
  }
  adopt();
  if (micro_batches_ > 0) masters_->collect_gradients();
  masters_->follow_parameters();
  std::vector<std::int64_t> places;
  std::vector<at::Tensor> gradients;
  const std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  for (std::size_t i = 0; micro_batches_ > 0 && i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) continue;
    if (gradient.layout() != at::kStrided) {
      mezzo::detail::raise<LogicError>(
          "MixedPrecisionOptimizer::save: an unfinished accumulation has a sparse gradient, which "
          "is not saved; call step() first");
    }
    places.push_back(static_cast<std::int64_t>(i));
    gradients.push_back(gradient.detach());
  }
  archive.write("rounding", c10::IValue(static_cast<std::int64_t>(masters_->rounding())));
  archive.write("seed", c10::IValue(static_cast<std::int64_t>(masters_->seed())));
  archive.write("steps", c10::IValue(steps_));
  archive.write("micro_batches", c10::IValue(micro_batches_));
  archive.write("scaled", c10::IValue(scaler_.is_enabled()));
  archive.write("masters", c10::IValue(detached(masters_->masters())));
  archive.write("places", c10::IValue(places));
  archive.write("gradients", c10::IValue(gradients));
  OutputArchive optimizer;
  optimizer_->save(optimizer);
  archive.write("optimizer", optimizer);
  if (!scaler_.is_enabled()) return;
  OutputArchive scaler;
  scaler_.save(scaler);
  archive.write("scaler", scaler);
}

void MixedPrecisionOptimizer::load(InputArchive& archive) {
  const Fields fields = read_fields(archive);
  InputArchive optimizer, scaler;
  if (!archive.try_read("optimizer", optimizer) ||
      (fields.scaled && !archive.try_read("scaler", scaler))) {
    mezzo::detail::raise<IoError>(
        "MixedPrecisionOptimizer::load: the archive has no field 'optimizer' or 'scaler'");
  }
  MEZZO_CHECK(fields.rounding == static_cast<std::int64_t>(options_.rounding),
              "MixedPrecisionOptimizer::load: the state was saved with the other .rounding");
  MEZZO_CHECK(fields.scaled == scaler_.is_enabled(),
              "MixedPrecisionOptimizer::load: the state was saved {} loss scaling, this optimizer "
              "is {} it; set .precision and .policy as they were",
              fields.scaled ? "with" : "without", scaler_.is_enabled() ? "with" : "without");
  MEZZO_CHECK(fields.micro_batches >= 0 && fields.micro_batches <= options_.accumulate,
              "MixedPrecisionOptimizer::load: the state has {} micro-batches of an unfinished "
              "step, and .accumulate is {}",
              fields.micro_batches, options_.accumulate);
  adopt();
  const std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  MEZZO_CHECK(masters_->fits(fields.masters) && gradients_fit(fields, parameters, *masters_),
              "MixedPrecisionOptimizer::load: the saved masters or gradients are of other "
              "parameters than the optimizer's");

  zero_grad();             // first: a policy may throw
  masters_->begin_step();  // optimizers compare shapes of saved state and masters
  load_optimizer(*optimizer_, optimizer);
  masters_->end_step(0);  // exact: values did not change
  scaler_.load(scaler);
  masters_->restore(fields.masters);
  masters_->set_seed(static_cast<std::uint64_t>(fields.seed));
  for (std::size_t i = 0; i < fields.places.size(); ++i) {
    const at::Tensor& parameter = parameters[static_cast<std::size_t>(fields.places[i])];
    parameter.mutable_grad() = fields.gradients[i].to(parameter.device()).clone();
  }
  steps_ = fields.steps;
  micro_batches_ = fields.micro_batches;
}

}  // namespace mezzo::amp
