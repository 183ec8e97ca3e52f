#include "mezzo/message_passing/propagate.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/degree_buckets.h"
#include "mezzo/ops/ops.h"

namespace mezzo {

namespace {

/// "u_mul_e('h', 'w') -> 'm'"
std::string text_of(const BuiltinMessage& message) {
  const auto lhs = name_of(Targets{}, message.lhs_target);
  const auto rhs = name_of(Targets{}, message.rhs_target);
  if (message.op == BinaryOp::kCopyLhs) {
    return fmt::format("copy_{}('{}') -> '{}'", lhs, message.lhs, message.out);
  }
  if (message.op == BinaryOp::kCopyRhs) {
    return fmt::format("copy_{}('{}') -> '{}'", rhs, message.rhs, message.out);
  }
  return fmt::format("{}_{}_{}('{}', '{}') -> '{}'", lhs, name_of(BinaryOps{}, message.op), rhs,
                     message.lhs, message.rhs, message.out);
}

std::string text_of(const MessageFunction& message) {
  const auto* builtin = std::get_if<BuiltinMessage>(&message.value());
  return builtin != nullptr ? "message function " + text_of(*builtin)
                            : "the user-defined message function";
}

std::string text_of(const ReduceFunction& reduce) {
  const auto* builtin = std::get_if<BuiltinReduce>(&reduce.value());
  return builtin != nullptr
             ? fmt::format("reduce function {}('{}') -> '{}'", name_of(ReduceOps{}, builtin->op),
                           builtin->message, builtin->out)
             : "the user-defined reduce function";
}

/// Runs `compute`; an InvalidArgument of it is told with the operation and the function before it.
template <class Function, class Compute>
at::Tensor named(const Sides& sides, const Function& function, const Compute& compute) {
  try {
    return compute();
  } catch (const InvalidArgument& error) {
    detail::raise<InvalidArgument>("{}: {}: {}", sides.operation, text_of(function), error.what());
  }
}

std::optional<at::Tensor> column(const Sides& sides, Target target, const std::string& name) {
  if (name.empty()) return std::nullopt;
  switch (target) {
    case Target::kSrc:
      return sides.src.at(name);
    case Target::kDst:
      return sides.dst.at(name);
    case Target::kEdge:
      return sides.edge.at(name);
  }
  return std::nullopt;
}

at::Tensor reduce_fused(const Sides& sides, const BuiltinMessage& m, const BuiltinReduce& reduce) {
  const MessageFunction message(m);
  MEZZO_CHECK(m.out == reduce.message, "{}: {} reads message '{}', but {} makes '{}'",
              sides.operation, text_of(ReduceFunction(reduce)), reduce.message, text_of(message),
              m.out);
  return named(sides, message, [&] {
    return gspmm(sides.topology, m.op, reduce.op, column(sides, m.lhs_target, m.lhs),
                 column(sides, m.rhs_target, m.rhs), m.lhs_target, m.rhs_target);
  });
}

at::Tensor reduce_messages(const Sides& sides, const Columns& messages, const BuiltinReduce& reduce,
                           const MessageFunction& message) {
  const ReduceFunction function(reduce);
  const auto found = messages.find(reduce.message);
  MEZZO_CHECK(found != messages.end(), "{}: {} reads message '{}', which {} does not make",
              sides.operation, text_of(function), reduce.message, text_of(message));
  return named(sides, function, [&] {
    return gspmm(sides.topology, BinaryOp::kCopyRhs, reduce.op, std::nullopt, found->second);
  });
}

Columns reduced(const Sides& sides, const MessageFunction& message, const ReduceFunction& reduce) {
  const auto* builtin_message = std::get_if<BuiltinMessage>(&message.value());
  const auto* builtin_reduce = std::get_if<BuiltinReduce>(&reduce.value());
  if (builtin_message != nullptr && builtin_reduce != nullptr) {
    return {{builtin_reduce->out, reduce_fused(sides, *builtin_message, *builtin_reduce)}};
  }
  const Columns messages = messages_of(sides, message);
  if (builtin_reduce != nullptr) {
    return {{builtin_reduce->out, reduce_messages(sides, messages, *builtin_reduce, message)}};
  }
  return reduce_by_degree(fmt::format("{}: {}", sides.operation, text_of(reduce)), sides.topology,
                          sides.dst, messages, std::get<ReduceFunction::Custom>(reduce.value()));
}

}  // namespace

void check_sides(const Sides& sides) {
  const Topology& topology = sides.topology;
  const auto check = [&](const char* name, const FrameRows& rows, std::int64_t expected) {
    MEZZO_CHECK(rows.size() == expected, "{}: expected {} frame of {} rows, got {}",
                sides.operation, name, expected, rows.size());
    MEZZO_CHECK(rows.device() == topology.device(), "{}: expected {} frame on {}, got {}",
                sides.operation, name, topology.device().str(), rows.device().str());
  };
  check("a source", sides.src, topology.num_src());
  check("an edge", sides.edge, topology.num_edges());
  check("a destination", sides.dst, topology.num_dst());
}

Columns messages_of(const Sides& sides, const MessageFunction& message) {
  if (const auto* m = std::get_if<BuiltinMessage>(&message.value())) {
    return {{m->out, named(sides, message, [&] {
               return gsddmm(sides.topology, m->op, column(sides, m->lhs_target, m->lhs),
                             column(sides, m->rhs_target, m->rhs), m->lhs_target, m->rhs_target);
             })}};
  }
  const auto& custom = std::get<MessageFunction::Custom>(message.value());
  const std::string context = fmt::format("{}: {}", sides.operation, text_of(message));
  Columns columns = custom(EdgeBatch(sides.topology, sides.src, sides.edge, sides.dst, context));
  check_returned(context, columns, sides.topology.num_edges(), "an edge", sides.topology.device());
  return columns;
}

Columns applied(const std::string& operation, const FrameRows& rows, const ApplyFunction& apply,
                const Columns& fresh) {
  const std::string context = operation + ": the user-defined apply function";
  Columns columns = apply.value()(NodeBatch(rows, /*mailbox=*/{}, fresh, context));
  check_returned(context, columns, rows.size(), "a node", rows.device());
  return columns;
}

Columns propagate(const Sides& sides, const MessageFunction& message, const ReduceFunction& reduce,
                  const ApplyFunction& apply) {
  Columns columns = reduced(sides, message, reduce);
  if (!apply) return columns;
  Columns over = applied(sides.operation, sides.dst, apply, columns);
  over.merge(columns);  // keeps what is in `over`
  return over;
}

}  // namespace mezzo
