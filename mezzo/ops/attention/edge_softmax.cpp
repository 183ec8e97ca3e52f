// The softmax over the edges of each node, and its gradient. It needs no autocast rule, because it
// computes in float32 for every dtype.
#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/sparse/edge_order.h"

namespace mezzo::detail {
namespace {

RowSide side_of(NormalizeBy by) {
  return by == NormalizeBy::kDst ? RowSide::kDst : RowSide::kSrc;
}

void check_edge_tensor(const Topology& topology, const char* name, const at::Tensor& t) {
  MEZZO_CHECK(t.device() == topology.device(),
              "edge_softmax: expected {} on the graph's device {}, got {}", name,
              topology.device().str(), t.device().str());
  MEZZO_CHECK(t.dim() >= 1 && t.size(0) == topology.num_edges(),
              "edge_softmax: expected {} [{}, ...], one row an edge, got shape {}", name,
              topology.num_edges(), c10::str(t.sizes()));
}

struct EdgeSoftmaxGrad {
  TopologyArgument topology;
  at::Tensor value, grad;
  NormalizeBy by = NormalizeBy::kDst;

  static constexpr auto name = "_edge_softmax_grad";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = EdgeSoftmaxGrad;
    return std::tuple(Field{"topology", &A::topology}, Field{"value", &A::value},
                      Field{"grad", &A::grad}, Field{"by", &A::by});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    const Direction direction(topology->value, side_of(by));
    const at::Tensor dy = grad.to(value.scalar_type()).contiguous();
    const EdgeResult<Device> out(topology->value, direction.side, at::empty_like(value));
    kernels::SoftmaxGradArgs args;
    args.entries = direction.entries;
    args.dtype = dtype_of("edge_softmax", value.scalar_type());
    args.length = length_of(value.sizes());
    args.value = value.const_data_ptr();
    args.grad = dy.const_data_ptr();
    args.out_ids = out.row_ids();
    args.out = out.data();
    Device::run(args, direction, args.length);
    return out.in_edge_order();
  }
  Result meta() const { return shape_of(value); }
};

struct EdgeSoftmax {
  TopologyArgument topology;
  at::Tensor logits;
  NormalizeBy by = NormalizeBy::kDst;

  static constexpr auto name = "edge_softmax";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = EdgeSoftmax;
    return std::tuple(Field{"topology", &A::topology}, Field{"logits", &A::logits},
                      Field{"by", &A::by});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    check_edge_tensor(topology->value, "logits", logits);
    const DType dtype = dtype_of("edge_softmax: dtype of logits", logits.scalar_type());
    const Direction direction(topology->value, side_of(by));
    const at::Tensor input = logits.contiguous();
    const EdgeResult<Device> out(topology->value, direction.side, at::empty_like(input));
    kernels::SoftmaxArgs args;
    args.entries = direction.entries;
    args.dtype = dtype;
    args.length = length_of(input.sizes());
    args.logits = input.const_data_ptr();
    args.out_ids = out.row_ids();
    args.out = out.data();
    Device::run(args, direction, args.length);
    return out.in_edge_order();
  }
  Result meta() const { return shape_of(logits); }

  static at::Tensor forward(Saved<EdgeSoftmax>& saved) {
    const at::Tensor out = dispatch(saved.op);
    saved.op.logits.reset();
    saved.more = {out};
    return out;
  }

  static EdgeSoftmax backward(const Saved<EdgeSoftmax>& saved, const at::Tensor& grad) {
    EdgeSoftmax gradients;
    gradients.logits =
        dispatch(EdgeSoftmaxGrad{saved.op.topology, saved.more[0], grad, saved.op.by});
    return gradients;
  }
};

const Registration<EdgeSoftmax, EdgeSoftmaxGrad> kEdgeSoftmaxRegistration;

/// The graph of all nodes and only the edges in `ids` (int64).
Topology edge_subset(const Topology& topology, const at::Tensor& ids) {
  return Topology::from_coo(topology.src().index_select(0, ids),
                            topology.dst().index_select(0, ids), topology.num_src(),
                            topology.num_dst());
}

}  // namespace

at::Tensor softmax_by_dst(const TopologyArgument& topology, const at::Tensor& logits) {
  return dispatch(EdgeSoftmax{topology, logits, NormalizeBy::kDst});
}

}  // namespace mezzo::detail

namespace mezzo {

at::Tensor edge_softmax(const Topology& topology, const at::Tensor& logits, NormalizeBy by,
                        const std::optional<at::Tensor>& edges) {
  constexpr const char* kOperation = "edge_softmax";
  detail::check_strided(kOperation, "logits", logits);
  if (!edges) return detail::dispatch(detail::EdgeSoftmax{detail::hold(topology), logits, by});
  const at::Tensor ids =
      detail::selected_ids(kOperation, "edges", *edges, topology.num_edges(), topology.device());
  detail::check_distinct(kOperation, "edges", ids);
  return detail::dispatch(
      detail::EdgeSoftmax{detail::hold(detail::edge_subset(topology, ids)), logits, by});
}

}  // namespace mezzo
