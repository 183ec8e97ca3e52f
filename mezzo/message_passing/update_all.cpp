#include "mezzo/message_passing/update_all.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/selection.h"
#include "mezzo/message_passing/propagate.h"

namespace mezzo {

namespace {

/// What one call of send_and_recv, pull or push is given, but for the edges.
struct Round {
  const char* operation;
  const Topology& topology;
  const Frame& src;
  const Frame& edge;
  Frame& dst;
  const MessageFunction& message;
  const ReduceFunction& reduce;
  const ApplyFunction& apply;

  void check() const { check_sides({operation, topology, src, edge, dst}); }
};

at::Tensor ascending_distinct(const at::Tensor& ids) {
  return std::get<0>(at::_unique2(ids, /*sorted=*/true));
}

at::Tensor destinations_of(const Topology& topology, const at::Tensor& edges) {
  return topology.dst().index_select(0, edges).to(at::kLong);
}

/// Along `edges` (int64) to `receivers` (int64, ascending, distinct), which are the destinations of
/// a structure of their own: work and memory go with the edges, not with the graph. The sources
/// keep their ids, which spares a copy of their rows.
void run(const Round& round, const at::Tensor& edges, const at::Tensor& receivers) {
  const Topology part =
      Topology::from_coo(round.topology.src().index_select(0, edges),
                         at::searchsorted(receivers, destinations_of(round.topology, edges)),
                         round.topology.num_src(), receivers.numel());
  const Sides sides{round.operation, part, round.src, FrameRows(round.edge, edges),
                    FrameRows(round.dst, receivers)};
  round.dst.update_rows(receivers, propagate(sides, round.message, round.reduce, round.apply));
}

/// Along `edges` (int64), to the nodes they run into.
void send(const Round& round, const at::Tensor& edges) {
  if (edges.numel() == 0) return;
  run(round, edges, ascending_distinct(destinations_of(round.topology, edges)));
}

}  // namespace

void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                const MessageFunction& message, const ReduceFunction& reduce,
                const ApplyFunction& apply) {
  const Sides sides{"update_all", topology, src, edge, dst};
  check_sides(sides);
  dst.update(propagate(sides, message, reduce, apply));
}

void send_and_recv(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                   const at::Tensor& edges, const MessageFunction& message,
                   const ReduceFunction& reduce, const ApplyFunction& apply) {
  const Round round{"send_and_recv", topology, src, edge, dst, message, reduce, apply};
  round.check();
  send(round, detail::selected_ids(round.operation, "edges", edges, topology.num_edges(),
                                   topology.device()));
}

void pull(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
          const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
          const ApplyFunction& apply) {
  const Round round{"pull", topology, src, edge, dst, message, reduce, apply};
  round.check();
  const at::Tensor ids =
      detail::selected_ids(round.operation, "nodes", nodes, topology.num_dst(), topology.device());
  if (ids.numel() == 0) return;
  run(round, detail::edges_into(topology, ids), ascending_distinct(ids));
}

void push(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
          const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
          const ApplyFunction& apply) {
  const Round round{"push", topology, src, edge, dst, message, reduce, apply};
  round.check();
  const at::Tensor ids =
      detail::selected_ids(round.operation, "nodes", nodes, topology.num_src(), topology.device());
  send(round, detail::edges_into(topology.reverse(), ids));
}

void apply_edges(const Topology& topology, const Frame& src, Frame& edge, const Frame& dst,
                 const MessageFunction& function, const std::optional<at::Tensor>& edges) {
  const Sides sides{"apply_edges", topology, src, edge, dst};
  check_sides(sides);
  if (!edges) {
    edge.update(messages_of(sides, function));
    return;
  }
  const at::Tensor ids = detail::selected_ids(sides.operation, "edges", *edges,
                                              topology.num_edges(), topology.device());
  detail::check_distinct(sides.operation, "edges", ids);
  const Topology part =
      Topology::from_coo(topology.src().index_select(0, ids), topology.dst().index_select(0, ids),
                         topology.num_src(), topology.num_dst());
  edge.update_rows(ids,
                   messages_of({sides.operation, part, src, FrameRows(edge, ids), dst}, function));
}

void apply_nodes(Frame& nodes, const ApplyFunction& function,
                 const std::optional<at::Tensor>& ids) {
  constexpr const char* kOperation = "apply_nodes";
  MEZZO_CHECK(function, "{}: expected a function, got none", kOperation);
  if (!ids) {
    nodes.update(applied(kOperation, nodes, function, /*fresh=*/{}));
    return;
  }
  const at::Tensor rows =
      detail::selected_ids(kOperation, "nodes", *ids, nodes.num_rows(), nodes.device());
  detail::check_distinct(kOperation, "nodes", rows);
  nodes.update_rows(rows, applied(kOperation, FrameRows(nodes, rows), function, /*fresh=*/{}));
}

void Graph::update_all(const MessageFunction& message, const ReduceFunction& reduce,
                       const ApplyFunction& apply) {
  mezzo::update_all(topology(), ndata(), edata(), ndata(), message, reduce, apply);
}

void Graph::send_and_recv(const at::Tensor& edges, const MessageFunction& message,
                          const ReduceFunction& reduce, const ApplyFunction& apply) {
  mezzo::send_and_recv(topology(), ndata(), edata(), ndata(), edges, message, reduce, apply);
}

void Graph::pull(const at::Tensor& nodes, const MessageFunction& message,
                 const ReduceFunction& reduce, const ApplyFunction& apply) {
  mezzo::pull(topology(), ndata(), edata(), ndata(), nodes, message, reduce, apply);
}

void Graph::push(const at::Tensor& nodes, const MessageFunction& message,
                 const ReduceFunction& reduce, const ApplyFunction& apply) {
  mezzo::push(topology(), ndata(), edata(), ndata(), nodes, message, reduce, apply);
}

void Graph::apply_nodes(const ApplyFunction& function, const std::optional<at::Tensor>& nodes) {
  mezzo::apply_nodes(ndata(), function, nodes);
}

void Graph::apply_edges(const MessageFunction& function, const std::optional<at::Tensor>& edges) {
  mezzo::apply_edges(topology(), ndata(), edata(), ndata(), function, edges);
}

}  // namespace mezzo
