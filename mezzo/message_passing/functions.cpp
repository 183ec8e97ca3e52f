#include "mezzo/message_passing/functions.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"

namespace mezzo {

EdgeBatch::EdgeBatch(const Topology& topology, const Frame& src, const Frame& edge,
                     const Frame& dst)
    : topology_(topology), src_(src), edge_(edge), dst_(dst) {}

namespace {

/// The rows of a node column that the edges see. Through gsddmm, whose gradient is summed in
/// float32: that of index_select adds up in the column's own type, and a hub in bfloat16 would stop
/// at 256.
at::Tensor gathered(const Topology& topology, const at::Tensor& column, Target target) {
  const bool differentiable = column.requires_grad() && column.layout() == at::kStrided;
  if (!differentiable) {
    return column.index_select(0, target == Target::kSrc ? topology.src() : topology.dst());
  }
  // Under autocast a gather keeps its dtype, as index_select does.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return gsddmm(topology, BinaryOp::kCopyLhs, column, std::nullopt, target, Target::kEdge);
}

}  // namespace

at::Tensor EdgeBatch::src(const std::string& column) const {
  return gathered(topology_, src_.at(column), Target::kSrc);
}

at::Tensor EdgeBatch::dst(const std::string& column) const {
  return gathered(topology_, dst_.at(column), Target::kDst);
}

at::Tensor EdgeBatch::data(const std::string& column) const {
  return edge_.at(column);
}

at::Tensor EdgeBatch::src_ids() const {
  return topology_.src().to(at::kLong);
}

at::Tensor EdgeBatch::dst_ids() const {
  return topology_.dst().to(at::kLong);
}

std::int64_t EdgeBatch::batch_size() const {
  return topology_.num_edges();
}

NodeBatch::NodeBatch(const Frame& frame, at::Tensor nodes, Columns mailbox)
    : frame_(frame), nodes_(std::move(nodes)), mailbox_(std::move(mailbox)) {}

at::Tensor NodeBatch::data(const std::string& column) const {
  const at::Tensor& all = frame_.at(column);
  return nodes_.defined() ? all.index_select(0, nodes_) : all;
}

const at::Tensor& NodeBatch::mailbox(const std::string& message) const {
  const auto found = mailbox_.find(message);
  if (found == mailbox_.end()) {
    std::string known;
    for (const auto& [name, column] : mailbox_) known += (known.empty() ? "" : ", ") + name;
    detail::raise<InvalidArgument>("mailbox: message '{}' is missing; there are: {}", message,
                                   known.empty() ? "none (no reduce function runs)" : known);
  }
  return found->second;
}

at::Tensor NodeBatch::nodes() const {
  return nodes_.defined()
             ? nodes_
             : at::arange(frame_.num_rows(),
                          at::TensorOptions().dtype(at::kLong).device(frame_.device()));
}

std::int64_t NodeBatch::batch_size() const {
  return nodes_.defined() ? nodes_.size(0) : frame_.num_rows();
}

}  // namespace mezzo
