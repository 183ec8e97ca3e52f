#include "mezzo/message_passing/update_all.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/selection.h"
#include "mezzo/message_passing/propagate.h"

namespace mezzo {
namespace {

/// The arguments of send_and_recv, pull or push, without the edges.
struct PartialUpdate {
  const char* operation;
  const Topology& topology;
  const Frame& src;
  const Frame& edge;
  Frame& dst;
  const MessageFunction& message;
  const ReduceFunction& reduce;
  const ApplyFunction& apply;

  void check() const { check_frames({operation, topology, src, edge, dst}); }
};

at::Tensor ascending_distinct(const at::Tensor& ids) {
  return std::get<0>(at::_unique2(ids, /*sorted=*/true));
}

at::Tensor destinations_of(const Topology& topology, const at::Tensor& edges) {
  return topology.dst().index_select(0, edges).to(at::kLong);
}

/// Updates `receivers` (int64, ascending, distinct) along `edges` (int64). They become the
/// destinations of a smaller graph, so that work and memory depend on the edges only. The sources
/// keep their ids, which avoids a copy of their rows.
void run(const PartialUpdate& update, const at::Tensor& edges, const at::Tensor& receivers) {
  const Topology part =
      Topology::from_coo(update.topology.src().index_select(0, edges),
                         at::searchsorted(receivers, destinations_of(update.topology, edges)),
                         update.topology.num_src(), receivers.numel());
  const MessagePassingArgs args{update.operation, part, update.src, FrameRows(update.edge, edges),
                                FrameRows(update.dst, receivers)};
  update.dst.update_rows(receivers, propagate(args, update.message, update.reduce, update.apply));
}

/// Updates the destinations of `edges` (int64).
void send(const PartialUpdate& update, const at::Tensor& edges) {
  if (edges.numel() == 0) return;
  run(update, edges, ascending_distinct(destinations_of(update.topology, edges)));
}

}  // namespace

void update_all(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                const MessageFunction& message, const ReduceFunction& reduce,
                const ApplyFunction& apply) {
  const MessagePassingArgs args{"update_all", topology, src, edge, dst};
  check_frames(args);
  dst.update(propagate(args, message, reduce, apply));
}

void send_and_recv(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
                   const at::Tensor& edges, const MessageFunction& message,
                   const ReduceFunction& reduce, const ApplyFunction& apply) {
  const PartialUpdate update{"send_and_recv", topology, src, edge, dst, message, reduce, apply};
  update.check();
  send(update, detail::selected_ids(update.operation, "edges", edges, topology.num_edges(),
                                    topology.device()));
}

void pull(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
          const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
          const ApplyFunction& apply) {
  const PartialUpdate update{"pull", topology, src, edge, dst, message, reduce, apply};
  update.check();
  const at::Tensor ids =
      detail::selected_ids(update.operation, "nodes", nodes, topology.num_dst(), topology.device());
  if (ids.numel() == 0) return;
  run(update, detail::edges_into(topology, ids), ascending_distinct(ids));
}

void push(const Topology& topology, const Frame& src, const Frame& edge, Frame& dst,
          const at::Tensor& nodes, const MessageFunction& message, const ReduceFunction& reduce,
          const ApplyFunction& apply) {
  const PartialUpdate update{"push", topology, src, edge, dst, message, reduce, apply};
  update.check();
  const at::Tensor ids =
      detail::selected_ids(update.operation, "nodes", nodes, topology.num_src(), topology.device());
  send(update, detail::edges_into(topology.reverse(), ids));
}

void apply_edges(const Topology& topology, const Frame& src, Frame& edge, const Frame& dst,
                 const MessageFunction& function, const std::optional<at::Tensor>& edges) {
  const MessagePassingArgs args{"apply_edges", topology, src, edge, dst};
  check_frames(args);
  if (!edges) {
    edge.update(messages_of(args, function));
    return;
  }
  const at::Tensor ids = detail::selected_ids(args.operation, "edges", *edges, topology.num_edges(),
                                              topology.device());
  detail::check_distinct(args.operation, "edges", ids);
  const Topology part =
      Topology::from_coo(topology.src().index_select(0, ids), topology.dst().index_select(0, ids),
                         topology.num_src(), topology.num_dst());
  edge.update_rows(ids,
                   messages_of({args.operation, part, src, FrameRows(edge, ids), dst}, function));
}

void apply_nodes(Frame& nodes, const ApplyFunction& function,
                 const std::optional<at::Tensor>& ids) {
  constexpr const char* kOperation = "apply_nodes";
  MEZZO_CHECK(function, "{}: expected a function, got none", kOperation);
  if (!ids) {
    nodes.update(apply_to(kOperation, nodes, function, /*fresh=*/{}));
    return;
  }
  const at::Tensor rows =
      detail::selected_ids(kOperation, "nodes", *ids, nodes.num_rows(), nodes.device());
  detail::check_distinct(kOperation, "nodes", rows);
  nodes.update_rows(rows, apply_to(kOperation, FrameRows(nodes, rows), function, /*fresh=*/{}));
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
