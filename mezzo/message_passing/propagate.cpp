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

/// Returns compute() and prepends the operation and the function to its InvalidArgument.
template <class Function, class Compute>
at::Tensor with_context(const MessagePassingArgs& args, const Function& function,
                        const Compute& compute) {
  try {
    return compute();
  } catch (const InvalidArgument& error) {
    detail::raise<InvalidArgument>("{}: {}: {}", args.operation, text_of(function), error.what());
  }
}

std::optional<at::Tensor> column(const MessagePassingArgs& args, Target target,
                                 const std::string& name) {
  if (name.empty()) return std::nullopt;
  switch (target) {
    case Target::kSrc:
      return args.src.at(name);
    case Target::kDst:
      return args.dst.at(name);
    case Target::kEdge:
      return args.edge.at(name);
  }
  return std::nullopt;
}

at::Tensor reduce_fused(const MessagePassingArgs& args, const BuiltinMessage& m,
                        const BuiltinReduce& reduce) {
  const MessageFunction message(m);
  MEZZO_CHECK(m.out == reduce.message, "{}: {} reads message '{}', but {} makes '{}'",
              args.operation, text_of(ReduceFunction(reduce)), reduce.message, text_of(message),
              m.out);
  return with_context(args, message, [&] {
    return gspmm(args.topology, m.op, reduce.op, column(args, m.lhs_target, m.lhs),
                 column(args, m.rhs_target, m.rhs), m.lhs_target, m.rhs_target);
  });
}

at::Tensor reduce_messages(const MessagePassingArgs& args, const Columns& messages,
                           const BuiltinReduce& reduce, const MessageFunction& message) {
  const ReduceFunction function(reduce);
  const auto entry = messages.find(reduce.message);
  MEZZO_CHECK(entry != messages.end(), "{}: {} reads message '{}', which {} does not make",
              args.operation, text_of(function), reduce.message, text_of(message));
  return with_context(args, function, [&] {
    return gspmm(args.topology, BinaryOp::kCopyRhs, reduce.op, std::nullopt, entry->second);
  });
}

Columns reduced(const MessagePassingArgs& args, const MessageFunction& message,
                const ReduceFunction& reduce) {
  const auto* builtin_message = std::get_if<BuiltinMessage>(&message.value());
  const auto* builtin_reduce = std::get_if<BuiltinReduce>(&reduce.value());
  if (builtin_message != nullptr && builtin_reduce != nullptr) {
    return {{builtin_reduce->out, reduce_fused(args, *builtin_message, *builtin_reduce)}};
  }
  const Columns messages = messages_of(args, message);
  if (builtin_reduce != nullptr) {
    return {{builtin_reduce->out, reduce_messages(args, messages, *builtin_reduce, message)}};
  }
  return reduce_by_degree(fmt::format("{}: {}", args.operation, text_of(reduce)), args.topology,
                          args.dst, messages, std::get<ReduceFunction::Custom>(reduce.value()));
}

}  // namespace

void check_frames(const MessagePassingArgs& args) {
  const Topology& topology = args.topology;
  const auto check = [&](const char* name, const FrameRows& rows, std::int64_t expected) {
    MEZZO_CHECK(rows.size() == expected, "{}: expected {} frame of {} rows, got {}", args.operation,
                name, expected, rows.size());
    MEZZO_CHECK(rows.device() == topology.device(), "{}: expected {} frame on {}, got {}",
                args.operation, name, topology.device().str(), rows.device().str());
  };
  check("a source", args.src, topology.num_src());
  check("an edge", args.edge, topology.num_edges());
  check("a destination", args.dst, topology.num_dst());
}

Columns messages_of(const MessagePassingArgs& args, const MessageFunction& message) {
  if (const auto* m = std::get_if<BuiltinMessage>(&message.value())) {
    return {{m->out, with_context(args, message, [&] {
               return gsddmm(args.topology, m->op, column(args, m->lhs_target, m->lhs),
                             column(args, m->rhs_target, m->rhs), m->lhs_target, m->rhs_target);
             })}};
  }
  const auto& custom = std::get<MessageFunction::Custom>(message.value());
  const std::string context = fmt::format("{}: {}", args.operation, text_of(message));
  Columns columns = custom(EdgeBatch(args.topology, args.src, args.edge, args.dst, context));
  check_returned(context, columns, args.topology.num_edges(), "an edge", args.topology.device());
  return columns;
}

Columns apply_to(const std::string& operation, const FrameRows& rows, const ApplyFunction& apply,
                 const Columns& fresh) {
  const std::string context = operation + ": the user-defined apply function";
  Columns columns = apply.value()(NodeBatch(rows, /*mailbox=*/{}, fresh, context));
  check_returned(context, columns, rows.size(), "a node", rows.device());
  return columns;
}

Columns propagate(const MessagePassingArgs& args, const MessageFunction& message,
                  const ReduceFunction& reduce, const ApplyFunction& apply) {
  Columns columns = reduced(args, message, reduce);
  if (!apply) return columns;
  Columns result = apply_to(args.operation, args.dst, apply, columns);
  result.merge(columns);  // keeps the columns that `result` has
  return result;
}

}  // namespace mezzo
