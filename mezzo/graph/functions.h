#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

/// The argument of a user-defined message function: n edges, in ascending id or, for selected
/// edges, in the caller's order. Refers to the graph's frames; valid only during the call.
class MEZZO_API EdgeBatch {
 public:
  /// Edge i of `topology` is row i of `edge` and runs between rows of `src` and of `dst`. context:
  /// prefix of the batch's errors (operation and function).
  EdgeBatch(const Topology& topology, FrameRows src, FrameRows edge, FrameRows dst,
            std::string context = {});
  at::Tensor src(const std::string& column) const;  ///< [n, ...], gathered rows of the sources
  at::Tensor dst(const std::string& column) const;  ///< [n, ...], gathered rows of the destinations
  at::Tensor data(const std::string& column) const;  ///< [n, ...], the edges' own column
  at::Tensor src_ids() const;                        ///< int64 [n], in the source's frame
  at::Tensor dst_ids() const;                        ///< int64 [n], in the destination's frame
  at::Tensor edge_ids() const;                       ///< int64 [n]
  std::int64_t batch_size() const;

 private:
  Topology topology_;
  FrameRows src_, edge_, dst_;
  std::string context_;
};

/// The argument of a user-defined reduce or apply function: n nodes. A reduce function is called
/// once per distinct non-zero in-degree (DGL's degree buckets). Refers to the graph's frame; valid
/// only during the call.
class MEZZO_API NodeBatch {
 public:
  /// fresh: columns just computed for these nodes; they hide the frame's columns; context: as in
  /// EdgeBatch.
  explicit NodeBatch(FrameRows rows, Columns mailbox = {}, Columns fresh = {},
                     std::string context = {});
  at::Tensor data(const std::string& column) const;  ///< [n, ...]
  /// [n, in-degree, ...]: the messages of each node, in the order of their edges in the EdgeBatch.
  /// Reduce functions only.
  const at::Tensor& mailbox(const std::string& message) const;
  at::Tensor nodes() const;  ///< int64 [n], the nodes' ids
  std::int64_t batch_size() const;

 private:
  FrameRows rows_;
  Columns mailbox_, fresh_;
  std::string context_;
};

/// A built-in message: `op` of two columns. `out` names the message.
struct BuiltinMessage {
  BinaryOp op;
  Target lhs_target, rhs_target;
  std::string lhs, rhs;  ///< column names; empty if op ignores the side
  std::string out;
};

/// A built-in reduction of the message `message` into the node column `out`.
struct BuiltinReduce {
  ReduceOp op;
  std::string message, out;
};

/// A built-in of mezzo::fn, or anything callable as Columns(const EdgeBatch&).
class MessageFunction {
 public:
  using Custom = std::function<Columns(const EdgeBatch&)>;
  MessageFunction(BuiltinMessage builtin) : value_(std::move(builtin)) {}  // NOLINT: converts
  template <class F>
  requires std::is_invocable_r_v < Columns, std::decay_t<F>
  &, const EdgeBatch& > MessageFunction(F&& function)
      : value_(Custom(std::forward<F>(function))) {}  // NOLINT: converts
  const std::variant<BuiltinMessage, Custom>& value() const { return value_; }

 private:
  std::variant<BuiltinMessage, Custom> value_;
};

/// A built-in of mezzo::fn, or anything callable as Columns(const NodeBatch&).
class ReduceFunction {
 public:
  using Custom = std::function<Columns(const NodeBatch&)>;
  ReduceFunction(BuiltinReduce builtin) : value_(std::move(builtin)) {}  // NOLINT: converts
  template <class F>
  requires std::is_invocable_r_v < Columns, std::decay_t<F>
  &, const NodeBatch& > ReduceFunction(F&& function)
      : value_(Custom(std::forward<F>(function))) {}  // NOLINT: converts
  const std::variant<BuiltinReduce, Custom>& value() const { return value_; }

 private:
  std::variant<BuiltinReduce, Custom> value_;
};

/// Nothing, or anything callable as Columns(const NodeBatch&): a lambda, a libtorch module holder.
class ApplyFunction {
 public:
  using Custom = std::function<Columns(const NodeBatch&)>;
  ApplyFunction() = default;
  template <class F>
  requires std::is_invocable_r_v < Columns, std::decay_t<F>
  &, const NodeBatch& > ApplyFunction(F&& function)
      : value_(std::forward<F>(function)) {}  // NOLINT: converts
  explicit operator bool() const { return static_cast<bool>(value_); }
  const Custom& value() const { return value_; }

 private:
  Custom value_;
};

}  // namespace mezzo
