#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {

/// The torchbind class that passes a Topology through libtorch's dispatcher.
struct TopologyHolder : torch::CustomClassHolder {
  explicit TopologyHolder(Topology topology) : value(std::move(topology)) {}
  Topology value;
};
using TopologyPtr = c10::intrusive_ptr<TopologyHolder>;

/// Registers TopologyHolder with libtorch. Each registration of an operator calls it first, because
/// the order of static initializers over several files is not fixed.
void register_topology_class();

inline TopologyPtr hold(const Topology& topology) {
  return c10::make_intrusive<TopologyHolder>(topology);
}

/// An empty tensor [0, num_src, num_dst, num_edges] whose storage owns the topology. A compiled
/// graph saves tensors for the backward, but no objects, and reads the counts from the shape.
at::Tensor as_tensor(const TopologyPtr& topology);
/// A meta tensor of the same sizes and strides.
at::Tensor meta_of_topology(const c10::SymInt& num_src, const c10::SymInt& num_dst,
                            const c10::SymInt& num_edges);

/// The topology that an operator receives: the object, or a tensor of as_tensor().
class TopologyArgument {
 public:
  TopologyArgument() = default;
  TopologyArgument(TopologyPtr object) : object_(std::move(object)) {}  // NOLINT: a conversion
  TopologyArgument(at::Tensor tensor) : tensor_(std::move(tensor)) {}   // NOLINT: a conversion

  bool is_tensor() const { return tensor_.defined(); }
  const TopologyPtr& object() const { return object_; }
  const at::Tensor& tensor() const { return tensor_; }
  /// The number of rows of an operand of `target`, from the shape of the tensor.
  c10::SymInt rows(Target target) const { return tensor_.sym_size(1 + static_cast<int>(target)); }
  /// The dtype of the ids, from the shape of the tensor.
  at::ScalarType id_dtype() const;

  /// Throws InvalidArgument for a tensor that does not own a topology, such as a copy.
  const TopologyHolder* operator->() const;

 private:
  TopologyPtr object_;
  at::Tensor tensor_;
};

/// The typed dispatcher handle of a registered operator.
template <class Signature>
auto handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Declares that amp::Watch may repeat a call of the operator in float32 to find underflows: it
/// multiplies, divides or exponentiates, and has neither random numbers nor state. name: without
/// the namespace.
void declare_repeatable(const char* name);

/// Whether the operator was declared repeatable. name: with the namespace, "mezzo::gspmm".
bool is_repeatable(std::string_view name);

/// A message: two operands, their targets and the op that combines them.
struct Message {
  BinaryOp op = BinaryOp::kCopyLhs;
  std::optional<at::Tensor> lhs, rhs;
  Target lhs_target = Target::kSrc, rhs_target = Target::kEdge;
};

/// The gradient of the loss with respect to the messages, with the inputs of the operands'
/// gradients.
struct MessageGrad {
  at::Tensor grad;                             ///< rows of grad_target
  Target grad_target;                          ///< kDst for gspmm, kEdge for gsddmm
  std::optional<at::Tensor> arg = {};          ///< ids [num_dst, ...] of max, min and prod
  std::optional<at::Tensor> product = {};      ///< accumulator type, like grad; of prod
  std::optional<at::Tensor> grad_scale = {};   ///< accumulator type, by grad's row
  std::optional<at::Tensor> other_scale = {};  ///< accumulator type, by the other operand's row
};

struct NormalizeByDst {
  static constexpr NormalizeBy kind = NormalizeBy::kDst;
  static constexpr std::string_view name = "dst";
};
struct NormalizeBySrc {
  static constexpr NormalizeBy kind = NormalizeBy::kSrc;
  static constexpr std::string_view name = "src";
};
/// The values of NormalizeBy as strings in the schemas.
using NormalizeBys = TypeList<NormalizeByDst, NormalizeBySrc>;

// Internal operators, called through the dispatcher.

/// x W^T + bias for strided x; x W + bias if not transposed.
at::Tensor dense_product(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias, bool transposed);
/// a^T b.
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b);
/// gspmm of copied rows of sources.
at::Tensor copy_reduce(const TopologyArgument& topology, ReduceOp reduce, const at::Tensor& x);
/// edge_softmax by destination.
at::Tensor softmax_by_dst(const TopologyArgument& topology, const at::Tensor& logits);

}  // namespace mezzo::detail
