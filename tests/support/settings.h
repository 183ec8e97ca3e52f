#pragma once

#include <torch/nn/module.h>

#include "mezzo/amp/autocast/autocast.h"

#include "support/tensors.h"

namespace mezzo::test {

/// How a module computes in a dtype: with parameters and rows of the dtype, or under autocast with
/// float32 numbers that the dtype represents.
struct Setting {
  DTypeInfo dtype;
  bool autocast;

  std::string name() const { return dtype.name + (autocast ? " by autocast" : ""); }
};

/// Every dtype; the dtypes of autocast appear twice, with autocast and as the module's dtype.
inline std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const DTypeInfo& dtype : dtypes()) all.push_back({dtype, false});
  for (const DTypeInfo& dtype : narrow_dtypes()) all.push_back({dtype, true});
  return all;
}

/// Calls run(dtype of the rows) in the setting, for a module with parameters of the setting's
/// dtype. Under autocast they become float32.
template <class Run>
at::Tensor run_in(const Setting& setting, torch::nn::Module& module, Run run) {
  if (!setting.autocast) return run(setting.dtype.scalar);
  module.to(at::kFloat);
  const amp::Autocast scope(test_device().type(), setting.dtype.scalar);
  return run(at::kFloat);
}

}  // namespace mezzo::test
