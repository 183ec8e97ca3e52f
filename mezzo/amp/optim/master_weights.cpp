#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// Converts 16-bit tensors of a parameter's state to float32. Goes through serialization, because
/// state classes differ between optimizers.
void convert_to_float32(OptimizerParamState& state) {
  OutputArchive original;
  state.serialize(original);
  std::stringstream stream;
  original.save_to(stream);
  InputArchive fields;
  fields.load_from(stream);
  OutputArchive converted;
  for (const std::string& key : fields.keys()) {
    c10::IValue value;
    fields.read(key, value);
    if (value.isTensor() && is_16_bit(value.toTensor())) value = value.toTensor().to(at::kFloat);
    converted.write(key, value);
  }
  std::stringstream result;
  converted.save_to(result);
  InputArchive reader;
  reader.load_from(result);
  state.serialize(reader);
}

/// A copy of the state of `parameter` in float32; null if it has none.
std::unique_ptr<OptimizerParamState> float32_state(const Optimizer& optimizer,
                                                   const at::Tensor& parameter) {
  const auto original = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (original == optimizer.state().end()) return nullptr;
  try {
    std::unique_ptr<OptimizerParamState> state = original->second->clone();
    convert_to_float32(*state);
    return state;
  } catch (const c10::Error&) {
    mezzo::detail::raise<InvalidArgument>(
        "MasterWeights: the optimizer's state of a {} parameter cannot be copied to float32; "
        "create the object before the first step",
        c10::toString(parameter.scalar_type()));
  }
}

/// Replaces `from` by `to` in the groups.
void replace(Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (at::Tensor& member : group.params()) {
      if (member.is_same(from)) member = to;
    }
  }
}

/// Frees the memory. Keeps the tensor, the key of the optimizer's state, and its shape, which
/// gradients need.
void free_memory(const at::Tensor& master) {
  constexpr double kUnset = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor number = at::full({}, kUnset, master.options().requires_grad(false));
  master.set_data(number.expand(master.sizes()));
}

/// The sum of two gradients, computed in place in one of them. libtorch can only add sparse to
/// dense.
at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& gradient) {
  const bool becomes_dense = sum.layout() != at::kStrided && gradient.layout() == at::kStrided;
  return becomes_dense ? gradient.add_(sum) : sum.add_(gradient);
}

}  // namespace

MasterWeights::MasterWeights(Optimizer& optimizer, ParameterRounding rounding, std::uint64_t seed)
    : optimizer_(&optimizer), rounding_(rounding), seed_(seed) {
  adopt();
}

MasterWeights::~MasterWeights() {
  for (const Entry& entry : entries_) {
    replace(*optimizer_, entry.master, entry.parameter);
    auto& states = optimizer_->state();
    const auto master_state = states.find(entry.master.unsafeGetTensorImpl());
    if (master_state == states.end()) continue;
    std::unique_ptr<OptimizerParamState> state = std::move(master_state->second);
    states.erase(master_state);
    states[entry.parameter.unsafeGetTensorImpl()] = std::move(state);
  }
}

void MasterWeights::adopt() {
  const at::NoGradGuard no_grad;
  struct Adoption {
    Entry entry;
    std::unique_ptr<OptimizerParamState> state;
  };
  std::vector<Adoption> adoptions;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const bool known = std::any_of(
          adoptions.begin(), adoptions.end(),
          [&](const Adoption& adoption) { return adoption.entry.parameter.is_same(parameter); });
      if (known || !is_16_bit(parameter)) continue;
      const bool twice = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.parameter.is_same(parameter);
      });
      MEZZO_CHECK(
          !twice,
          "MasterWeights: expected each parameter once in the optimizer, got one a second time");
      MEZZO_CHECK(
          rounding_ != ParameterRounding::kStochastic || parameter.scalar_type() == at::kBFloat16,
          "MasterWeights: expected bfloat16 parameters for ParameterRounding::kStochastic, got a "
          "float16 one; use kMasterWeights");
      at::Tensor master = parameter.detach().to(at::kFloat);
      if (rounding_ == ParameterRounding::kStochastic) free_memory(master);
      master.set_requires_grad(parameter.requires_grad());
      adoptions.push_back({{parameter, master}, float32_state(*optimizer_, parameter)});
    }
  }
  for (auto& [entry, state] : adoptions) {
    replace(*optimizer_, entry.parameter, entry.master);
    if (state) {
      optimizer_->state().erase(entry.parameter.unsafeGetTensorImpl());
      optimizer_->state()[entry.master.unsafeGetTensorImpl()] = std::move(state);
    }
    record_version(entry);
    entries_.push_back(std::move(entry));
  }
}

void MasterWeights::record_version(Entry& entry) const {
  entry.version = entry.parameter._version();
  entry.written = entry.parameter.detach();
}

void MasterWeights::collect_gradients() {
  const at::NoGradGuard no_grad;
  for (const Entry& entry : entries_) {
    at::Tensor& gradient = entry.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    const at::Tensor float32 = gradient.detach().to(at::kFloat);
    at::Tensor& sum = entry.master.mutable_grad();
    sum = sum.defined() ? sum_of(sum, float32) : float32;
    gradient = at::Tensor();
  }
}

void MasterWeights::follow_parameters() {
  if (rounding_ == ParameterRounding::kStochastic) return;
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const bool unchanged = entry.version == entry.parameter._version() &&
                           entry.written.const_data_ptr() == entry.parameter.const_data_ptr();
    if (unchanged) continue;
    const at::Tensor parameter = entry.parameter.detach(), master = entry.master.detach();
    // Rewriting equal values, e.g. loading a checkpoint, must not lose the low bits.
    const at::Tensor changed = master.to(parameter.scalar_type()).ne(parameter);
    entry.master.copy_(at::where(changed, parameter.to(at::kFloat), master));
    record_version(entry);
  }
}

void MasterWeights::begin_step() {
  follow_parameters();
  if (rounding_ != ParameterRounding::kStochastic) return;
  const at::NoGradGuard no_grad;
  for (const Entry& entry : entries_) {
    entry.master.set_data(entry.parameter.detach().to(at::kFloat));
  }
}

void MasterWeights::round_to_nearest(Entry& entry) const {
  entry.parameter.copy_(entry.master);
  record_version(entry);
}

void MasterWeights::end_step(std::uint64_t step) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (rounding_ == ParameterRounding::kStochastic) {
      round_stochastically(entry.master.detach(), entry.parameter,
                           {.seed = seed_, .step = step, .parameter = i});
      free_memory(entry.master);
    } else {
      round_to_nearest(entry);
    }
    entry.master.mutable_grad() = at::Tensor();
  }
}

void MasterWeights::zero_grad() {
  for (const Entry& entry : entries_) entry.parameter.mutable_grad() = at::Tensor();
}

std::vector<at::Tensor> MasterWeights::parameters() const {
  std::vector<at::Tensor> all;
  for (const Entry& entry : entries_) all.push_back(entry.parameter);
  return all;
}

std::vector<at::Tensor> MasterWeights::masters() const {
  std::vector<at::Tensor> all;
  if (rounding_ == ParameterRounding::kStochastic) return all;
  for (const Entry& entry : entries_) all.push_back(entry.master);
  return all;
}

const at::Tensor& MasterWeights::original(const at::Tensor& member) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.master.is_same(member); });
  return entry == entries_.end() ? member : entry->parameter;
}

bool MasterWeights::fits(const std::vector<at::Tensor>& masters) const {
  const std::vector<at::Tensor> own = this->masters();
  return std::equal(masters.begin(), masters.end(), own.begin(), own.end(),
                    [](const at::Tensor& tensor, const at::Tensor& master) {
                      return tensor.defined() && tensor.scalar_type() == at::kFloat &&
                             tensor.sizes() == master.sizes();
                    });
}

void MasterWeights::restore(const std::vector<at::Tensor>& masters) {
  MEZZO_CHECK(
      fits(masters),
      "MasterWeights::restore: expected {} float32 masters of the parameters' shapes, got {} "
      "tensors, or other dtypes or shapes",
      this->masters().size(), masters.size());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    entries_[i].master.copy_(masters[i]);
    round_to_nearest(entries_[i]);
  }
}

}  // namespace mezzo::amp
