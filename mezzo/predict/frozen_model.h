#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/amp/precision.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/runtime/batch_invariant.h"

/// A model that does not change. Internal to predict; not exported.
namespace mezzo::detail {

/// A copy of a model in evaluation mode, on the CPU, without gradients. In a 16-bit precision
/// weights of products are stored in that type, except those of options.keep_float32. Const
/// functions may run in several threads at the same time; they need a Scope of the model in their
/// thread, and then a row of the result does not depend on the other rows.
class FrozenModel {
 public:
  /// Throws InvalidArgument for a model that is missing, nn::is_own(), has an LSTM, or is not on
  /// the CPU.
  FrozenModel(const nn::Model& model, amp::Precision precision);

  class Scope {
   public:
    explicit Scope(const FrozenModel& model);

   private:
    at::NoGradGuard no_grad_;
    at::AutoDispatchBelowADInplaceOrView below_;  // operations skip autograd's dispatch
    BatchInvariant invariant_;
    amp::PrecisionScope precision_;
  };

  const nn::ModelOptions& options() const { return model_->options; }
  std::int64_t num_layers() const { return model_->num_layers(); }
  /// The dtype in which the first layer reads features.
  at::ScalarType feature_dtype() const;
  /// Whether layer `index`, reading rows of this type, sums them as they are, before a product and
  /// without a conversion.
  bool sums_inputs(std::int64_t index, at::ScalarType type) const;
  /// Bytes of parameters and buffers.
  std::int64_t memory_bytes() const;

  at::Tensor layer(std::int64_t index, const Topology& topology, const nn::NodeRows& x,
                   const at::Tensor& edge_rows) const {
    return model_->forward_layer(index, topology, x, edge_rows);
  }
  at::Tensor head(const at::Tensor& rows, const nn::HeadTargets& targets) const {
    return model_->forward_head(rows, &targets);
  }
  at::Tensor forward(const nn::ModelInput& input, const at::Tensor& x) const {
    return model_->forward(input, x);
  }

 private:
  /// The type of products, if they have 16 bits.
  std::optional<at::ScalarType> low_type() const;

  std::shared_ptr<nn::ModelImpl> model_;
  amp::Precision precision_;
};

}  // namespace mezzo::detail
