#include "mezzo/message_passing/schema.h"

#include <fmt/format.h>
#include <torch/custom_class.h>
#include <torch/library.h>

// The one declaration of the operators. Names without an underscore are for users, from C++ through
// ops.h and from Python as torch.ops.mezzo.*; the others are pieces of gradients.

namespace mezzo {

namespace {

// Ids are copied on their way in and out: a Topology's own arrays may not change, and Python writes
// to tensors in place.

std::tuple<at::Tensor, at::Tensor> edges_of(const Topology& t) {
  const auto copied = [](const at::Tensor& ids) {
    return ids.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  };
  return {copied(t.src()), copied(t.dst())};
}

std::string described(const Topology& t) {
  return fmt::format("mezzo.Topology({} sources, {} destinations, {} edges, {})", t.num_src(),
                     t.num_dst(), t.num_edges(), t.device().str());
}

using TopologyState = std::tuple<at::Tensor, at::Tensor, std::int64_t, std::int64_t>;

}  // namespace

void register_topology_class() {
  static const auto registered =
      torch::class_<TopologyHolder>("mezzo", "Topology")
          .def_static("from_coo",
                      [](const at::Tensor& src, const at::Tensor& dst, std::int64_t num_src,
                         std::int64_t num_dst) {
                        return hold(Topology::from_coo(src.clone(), dst.clone(), num_src, num_dst));
                      })
          .def_static(
              "from_csr",
              [](const at::Tensor& indptr, const at::Tensor& indices, std::int64_t num_dst) {
                return hold(Topology::from_csr(indptr.clone(), indices.clone(), num_dst));
              })
          .def_static(
              "from_csc",
              [](const at::Tensor& indptr, const at::Tensor& indices, std::int64_t num_src) {
                return hold(Topology::from_csc(indptr.clone(), indices.clone(), num_src));
              })
          .def("num_src", [](const TopologyPtr& t) { return t->value.num_src(); })
          .def("num_dst", [](const TopologyPtr& t) { return t->value.num_dst(); })
          .def("num_edges", [](const TopologyPtr& t) { return t->value.num_edges(); })
          .def("edges", [](const TopologyPtr& t) { return edges_of(t->value); })
          .def("in_degrees", [](const TopologyPtr& t) { return t->value.in_degrees(); })
          .def("out_degrees", [](const TopologyPtr& t) { return t->value.out_degrees(); })
          .def("reverse", [](const TopologyPtr& t) { return hold(t->value.reverse()); })
          .def("__repr__", [](const TopologyPtr& t) { return described(t->value); })
          .def("__str__", [](const TopologyPtr& t) { return described(t->value); })
          .def_pickle(
              [](const TopologyPtr& t) -> TopologyState {
                return std::tuple_cat(edges_of(t->value),
                                      std::make_tuple(t->value.num_src(), t->value.num_dst()));
              },
              [](TopologyState state) {
                const auto& [src, dst, num_src, num_dst] = state;
                return hold(Topology::from_coo(src, dst, num_src, num_dst));
              });
}

}  // namespace mezzo

TORCH_LIBRARY(mezzo, m) {
  mezzo::register_topology_class();
#define MEZZO_TOPOLOGY "__torch__.torch.classes.mezzo.Topology topology"
#define MEZZO_MESSAGE "Tensor? lhs, Tensor? rhs, str lhs_target, str rhs_target"
  m.def("gspmm(" MEZZO_TOPOLOGY ", str op, str reduce, " MEZZO_MESSAGE ") -> Tensor");
  m.def("_gspmm(" MEZZO_TOPOLOGY ", str op, str reduce, " MEZZO_MESSAGE
        ") -> (Tensor, Tensor, Tensor)");
  m.def("gsddmm(" MEZZO_TOPOLOGY ", str op, " MEZZO_MESSAGE ") -> Tensor");
  m.def("_message_grad(" MEZZO_TOPOLOGY ", str op, " MEZZO_MESSAGE
        ", Tensor grad, str grad_target, Tensor? arg, Tensor? product, Tensor? grad_scale, "
        "Tensor? other_scale, bool of_lhs, int[] shape, int[] other_shape, ScalarType dtype) -> "
        "Tensor");
  m.def("scaled_sum(" MEZZO_TOPOLOGY
        ", Tensor x, Tensor? weight, Tensor? src_scale, Tensor? dst_scale) -> Tensor");
  m.def("_scaled_sum(" MEZZO_TOPOLOGY
        ", Tensor x, Tensor? weight, Tensor? src_scale, Tensor? dst_scale, bool transposed) -> "
        "Tensor");
  m.def("edge_softmax(" MEZZO_TOPOLOGY ", Tensor logits, str by) -> Tensor");
  m.def("_edge_softmax_grad(" MEZZO_TOPOLOGY ", Tensor value, Tensor grad, str by) -> Tensor");
#undef MEZZO_MESSAGE
#undef MEZZO_TOPOLOGY
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def("_linear(Tensor x, Tensor weight, Tensor? bias, bool transposed) -> Tensor");
  m.def("_transposed_product(Tensor a, Tensor b) -> Tensor");
}

namespace mezzo::op {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> gspmm(const TopologyPtr& topology,
                                                     const Message& message, ReduceOp reduce) {
  static const auto op = handle<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const TopologyPtr&, c10::string_view, c10::string_view, const OptionalTensor&,
      const OptionalTensor&, c10::string_view, c10::string_view)>("mezzo::_gspmm");
  return op.call(topology, name_of(BinaryOps{}, message.op), name_of(ReduceOps{}, reduce),
                 message.lhs, message.rhs, name_of(Targets{}, message.lhs_target),
                 name_of(Targets{}, message.rhs_target));
}

at::Tensor gsddmm(const TopologyPtr& topology, const Message& message) {
  static const auto op =
      handle<at::Tensor(const TopologyPtr&, c10::string_view, const OptionalTensor&,
                        const OptionalTensor&, c10::string_view, c10::string_view)>(
          "mezzo::gsddmm");
  return op.call(topology, name_of(BinaryOps{}, message.op), message.lhs, message.rhs,
                 name_of(Targets{}, message.lhs_target), name_of(Targets{}, message.rhs_target));
}

at::Tensor message_grad(const TopologyPtr& topology, const Message& message,
                        const MessageGrad& grad, bool of_lhs, c10::IntArrayRef shape,
                        c10::IntArrayRef other_shape, at::ScalarType dtype) {
  static const auto op = handle<at::Tensor(
      const TopologyPtr&, c10::string_view, const OptionalTensor&, const OptionalTensor&,
      c10::string_view, c10::string_view, const at::Tensor&, c10::string_view,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      bool, c10::IntArrayRef, c10::IntArrayRef, at::ScalarType)>("mezzo::_message_grad");
  return op.call(topology, name_of(BinaryOps{}, message.op), message.lhs, message.rhs,
                 name_of(Targets{}, message.lhs_target), name_of(Targets{}, message.rhs_target),
                 grad.grad, name_of(Targets{}, grad.grad_target), grad.arg, grad.product,
                 grad.grad_scale, grad.other_scale, of_lhs, shape, other_shape, dtype);
}

at::Tensor scaled_sum(const TopologyPtr& topology, const at::Tensor& x,
                      const OptionalTensor& weight, const OptionalTensor& src_scale,
                      const OptionalTensor& dst_scale, bool transposed) {
  static const auto op =
      handle<at::Tensor(const TopologyPtr&, const at::Tensor&, const OptionalTensor&,
                        const OptionalTensor&, const OptionalTensor&, bool)>("mezzo::_scaled_sum");
  return op.call(topology, x, weight, src_scale, dst_scale, transposed);
}

at::Tensor edge_softmax(const TopologyPtr& topology, const at::Tensor& logits, NormalizeBy by) {
  static const auto op =
      handle<at::Tensor(const TopologyPtr&, const at::Tensor&, c10::string_view)>(
          "mezzo::edge_softmax");
  return op.call(topology, logits, name_of(NormalizeBys{}, by));
}

at::Tensor edge_softmax_grad(const TopologyPtr& topology, const at::Tensor& value,
                             const at::Tensor& grad, NormalizeBy by) {
  static const auto op = handle<at::Tensor(const TopologyPtr&, const at::Tensor&, const at::Tensor&,
                                           c10::string_view)>("mezzo::_edge_softmax_grad");
  return op.call(topology, value, grad, name_of(NormalizeBys{}, by));
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                  bool transposed) {
  static const auto op =
      handle<at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, bool)>(
          "mezzo::_linear");
  return op.call(x, weight, bias, transposed);
}

at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b) {
  static const auto op =
      handle<at::Tensor(const at::Tensor&, const at::Tensor&)>("mezzo::_transposed_product");
  return op.call(a, b);
}

}  // namespace mezzo::op
