#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Keeps modules of a model in float32 in the 16-bit regions of the calling thread, from
/// construction to destruction. The forward of the model does not change:
///
///     const amp::KeepFloat32 kept = amp::keep_float32(*model, {"encoder"});
///     optimizer.minimize([&] { return loss_of(model->forward(x), y); });
///
/// Operations that autocast would cast to 16 bits take float32 arguments instead if they belong to
/// one of the paths or to a submodule of one. An operation belongs to a module as in amp::Watch;
/// one without parameters, such as the product of queries and keys, to the last module before it.
/// Other operations keep the dtypes of their arguments, and 16-bit results of modules before are
/// cast up. The backward of these operations is in float32 too.
///
/// Cost: one to two microseconds per operation of the thread. Not needed for nn::Model, which has
/// ModelOptions::keep_float32, nor in a forward that opens a disabled Autocast region itself. No
/// effect in captured steps that were captured without it.
///
/// At most one per thread. Must be destroyed on the thread that created it; destruction on
/// another thread warns and ends it. Holds references to the
/// parameters, whose storage must not change.
class MEZZO_API KeepFloat32 {
 public:
  /// named_parameters: of the root module, all on one device. Throws InvalidArgument for a path
  /// without parameters, LogicError if the thread has another KeepFloat32.
  KeepFloat32(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
              const std::vector<std::string>& paths);

  KeepFloat32(const KeepFloat32&) = delete;
  KeepFloat32& operator=(const KeepFloat32&) = delete;
  ~KeepFloat32();

 private:
  class State;

  std::shared_ptr<State> state_;  // null: no paths
};

/// Keeps modules of a torch::nn::Module, a module holder, or any type with named_parameters().
template <detail::HasNamedParameters Module>
KeepFloat32 keep_float32(const Module& model, const std::vector<std::string>& paths) {
  return KeepFloat32(detail::named_parameters_of(model), paths);
}

}  // namespace mezzo::amp
