#include "mezzo/message_passing/update_all.h"

#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/ops.h"

namespace mezzo {

namespace {

/// The three frames that one round of message passing reads.
struct Sides {
  const Topology& topology;
  const Frame &src, &edge, &dst;

  std::optional<at::Tensor> column(Target target, const std::string& name) const {
    if (name.empty()) return std::nullopt;
    switch (target) {
      case Target::kSrc:
        return src.at(name);
      case Target::kDst:
        return dst.at(name);
      case Target::kEdge:
        return edge.at(name);
    }
    return std::nullopt;
  }
};

at::Tensor builtin_on_edges(const Sides& sides, const BuiltinMessage& m) {
  const auto lhs = sides.column(m.lhs_target, m.lhs), rhs = sides.column(m.rhs_target, m.rhs);
  return gsddmm(sides.topology, m.op, lhs, rhs, m.lhs_target, m.rhs_target);
}

/// The messages of every edge as columns.
Columns messages_on_edges(const Sides& sides, const MessageFunction& message) {
  if (const auto* builtin = std::get_if<BuiltinMessage>(&message.value())) {
    return {{builtin->out, builtin_on_edges(sides, *builtin)}};
  }
  const auto& custom = std::get<MessageFunction::Custom>(message.value());
  Columns columns = custom(EdgeBatch(sides.topology, sides.src, sides.edge, sides.dst));
  for (const auto& [name, column] : columns) {
    MEZZO_CHECK(
        column.defined() && column.dim() >= 1 && column.size(0) == sides.topology.num_edges(),
        "message function: expected column '{}' [{}, ...], one row an edge, got {}", name,
        sides.topology.num_edges(),
        column.defined() ? c10::str(column.sizes()) : "an undefined tensor");
  }
  return columns;
}

const at::Tensor& message_named(const Columns& messages, const std::string& name) {
  const auto found = messages.find(name);
  MEZZO_CHECK(found != messages.end(), "reduce: the message function does not make a column '{}'",
              name);
  return found->second;
}

Columns reduce_builtin(const Sides& sides, const MessageFunction& message,
                       const BuiltinReduce& reduce) {
  const auto* builtin = std::get_if<BuiltinMessage>(&message.value());
  if (builtin == nullptr) {
    const Columns messages = messages_on_edges(sides, message);
    return {{reduce.out, gspmm(sides.topology, BinaryOp::kCopyRhs, reduce.op, std::nullopt,
                               message_named(messages, reduce.message))}};
  }
  MEZZO_CHECK(builtin->out == reduce.message,
              "update_all: the message is called '{}', but the reduction reads '{}'", builtin->out,
              reduce.message);
  const auto lhs = sides.column(builtin->lhs_target, builtin->lhs);
  const auto rhs = sides.column(builtin->rhs_target, builtin->rhs);
  return {{reduce.out, gspmm(sides.topology, builtin->op, reduce.op, lhs, rhs, builtin->lhs_target,
                             builtin->rhs_target)}};
}

/// Destinations of one in-degree and the edges into them.
struct Bucket {
  std::int64_t degree;
  at::Tensor nodes;  ///< int64 [n]
  at::Tensor edges;  ///< int64 [n * degree], those of one node together, ascending
};

/// The destinations with in-edges by in-degree, ascending (DGL's degree buckets). Runs on the host.
std::vector<Bucket> degree_buckets(const Topology& topology) {
  const Adjacency& rows = topology.csc();
  const at::Tensor indptr = rows.indptr.cpu();
  const at::Tensor degrees = indptr.diff();
  const at::Tensor order =
      std::get<1>(degrees.sort(/*stable=*/std::optional<bool>(true), /*dim=*/0));
  const auto [values, inverse, counts] = at::unique_consecutive(
      degrees.index_select(0, order), /*return_inverse=*/false, /*return_counts=*/true);
  std::vector<Bucket> buckets;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const std::int64_t degree = values[i].item<std::int64_t>();
    const std::int64_t count = counts[i].item<std::int64_t>();
    const at::Tensor nodes = order.narrow(0, begin, count);
    begin += count;
    if (degree == 0) continue;
    const at::Tensor slots =
        (indptr.index_select(0, nodes).unsqueeze(1) + at::arange(degree).unsqueeze(0)).flatten();
    const at::Device device = topology.device();
    const at::Tensor placed = slots.to(device);
    buckets.push_back(
        {degree, nodes.to(device),
         rows.edge_ids.defined() ? rows.edge_ids.index_select(0, placed).to(at::kLong) : placed});
  }
  return buckets;
}

Columns mailbox_of(const Columns& messages, const Bucket& bucket) {
  Columns mailbox;
  for (const auto& [name, message] : messages) {
    auto shape = message.sizes().vec();
    shape[0] = bucket.degree;
    shape.insert(shape.begin(), bucket.nodes.size(0));
    mailbox[name] = message.index_select(0, bucket.edges).view(shape);
  }
  return mailbox;
}

/// Rows of the buckets, one below the other, to the rows of their nodes; the others are 0.
at::Tensor spread(const std::vector<at::Tensor>& parts, const at::Tensor& nodes,
                  std::int64_t num_rows) {
  const at::Tensor rows = at::cat(parts);
  auto shape = rows.sizes().vec();
  shape[0] = num_rows;
  return at::zeros(shape, rows.options()).index_copy(0, nodes, rows);
}

Columns reduce_custom(const Sides& sides, const MessageFunction& message,
                      const ReduceFunction::Custom& reduce) {
  const Columns messages = messages_on_edges(sides, message);
  std::map<std::string, std::vector<at::Tensor>> parts;
  std::vector<at::Tensor> nodes;
  for (const Bucket& bucket : degree_buckets(sides.topology)) {
    const Columns reduced =
        reduce(NodeBatch(sides.dst, bucket.nodes, mailbox_of(messages, bucket)));
    for (const auto& [name, column] : reduced) {
      MEZZO_CHECK(column.defined() && column.dim() >= 1 && column.size(0) == bucket.nodes.size(0),
                  "reduce function: expected column '{}' [{}, ...], one row a node of the batch, "
                  "got {}",
                  name, bucket.nodes.size(0),
                  column.defined() ? c10::str(column.sizes()) : "an undefined tensor");
      parts[name].push_back(column);
    }
    nodes.push_back(bucket.nodes);
  }
  Columns result;
  for (const auto& [name, columns] : parts) {
    MEZZO_CHECK(columns.size() == nodes.size(),
                "reduce function: column '{}' was returned for {} of {} in-degrees", name,
                columns.size(), nodes.size());
    result[name] = spread(columns, at::cat(nodes), sides.topology.num_dst());
  }
  return result;
}

}  // namespace

void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                const MessageFunction& message, const ReduceFunction& reduce,
                const ApplyFunction& apply) {
  const Sides sides{topology, src, edge, dst};
  const auto* builtin = std::get_if<BuiltinReduce>(&reduce.value());
  dst.update(builtin != nullptr
                 ? reduce_builtin(sides, message, *builtin)
                 : reduce_custom(sides, message, std::get<ReduceFunction::Custom>(reduce.value())));
  if (apply) dst.update(apply.value()(NodeBatch(dst, at::Tensor())));
}

void apply_edges(const Topology& topology, const Frame& src, Frame& edge, const Frame& dst,
                 const MessageFunction& message) {
  edge.update(messages_on_edges({topology, src, edge, dst}, message));
}

void Graph::update_all(const MessageFunction& message, const ReduceFunction& reduce) {
  mezzo::update_all(topology(), ndata(), edata(), ndata(), message, reduce);
}

void Graph::update_all(const MessageFunction& message, const ReduceFunction& reduce,
                       const ApplyFunction& apply) {
  mezzo::update_all(topology(), ndata(), edata(), ndata(), message, reduce, apply);
}

void Graph::apply_edges(const MessageFunction& message) {
  mezzo::apply_edges(topology(), ndata(), edata(), ndata(), message);
}

}  // namespace mezzo
