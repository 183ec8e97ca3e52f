#include "mezzo/graph/functions.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/ops.h"

namespace mezzo {

EdgeBatch::EdgeBatch(const Topology& topology, FrameRows src, FrameRows edge, FrameRows dst,
                     std::string context)
    : topology_(topology),
      src_(std::move(src)),
      edge_(std::move(edge)),
      dst_(std::move(dst)),
      context_(std::move(context)) {}

namespace {

/// The rows of a node column that the edges see. Through gsddmm, whose gradient is summed in
/// float32: that of index_select adds up in the column's own type, and a hub in bfloat16 would stop
/// at 256. Numbers that gsddmm does not know, complex ones, are gathered by libtorch.
at::Tensor gathered(const Topology& topology, const at::Tensor& column, Target target) {
  const bool summed_here = column.requires_grad() && column.layout() == at::kStrided &&
                           at::isFloatingType(column.scalar_type());
  if (!summed_here) {
    return column.index_select(0, target == Target::kSrc ? topology.src() : topology.dst());
  }
  // Under autocast a gather keeps its dtype, as index_select does.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return gsddmm(topology, BinaryOp::kCopyLhs, column, std::nullopt, target, Target::kEdge);
}

/// What `read` returns; an InvalidArgument of it is told with the function that read before it.
template <class Read>
auto read_in(const std::string& context, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    if (context.empty()) throw;
    detail::raise<InvalidArgument>("{}: {}", context, error.what());
  }
}

}  // namespace

at::Tensor EdgeBatch::src(const std::string& column) const {
  return read_in(context_, [&] { return gathered(topology_, src_.at(column), Target::kSrc); });
}

at::Tensor EdgeBatch::dst(const std::string& column) const {
  return read_in(context_, [&] { return gathered(topology_, dst_.at(column), Target::kDst); });
}

at::Tensor EdgeBatch::data(const std::string& column) const {
  return read_in(context_, [&] { return edge_.at(column); });
}

at::Tensor EdgeBatch::src_ids() const {
  return src_.pick(topology_.src().to(at::kLong)).ids();
}

at::Tensor EdgeBatch::dst_ids() const {
  return dst_.pick(topology_.dst().to(at::kLong)).ids();
}

at::Tensor EdgeBatch::edge_ids() const {
  return edge_.ids();
}

std::int64_t EdgeBatch::batch_size() const {
  return topology_.num_edges();
}

NodeBatch::NodeBatch(FrameRows rows, Columns mailbox, Columns fresh, std::string context)
    : rows_(std::move(rows)),
      mailbox_(std::move(mailbox)),
      fresh_(std::move(fresh)),
      context_(std::move(context)) {}

at::Tensor NodeBatch::data(const std::string& column) const {
  const auto found = fresh_.find(column);
  if (found != fresh_.end()) return found->second;
  return read_in(context_, [&] { return rows_.at(column); });
}

const at::Tensor& NodeBatch::mailbox(const std::string& message) const {
  const auto found = mailbox_.find(message);
  if (found == mailbox_.end()) {
    std::string known;
    for (const auto& [name, column] : mailbox_) known += (known.empty() ? "" : ", ") + name;
    detail::raise<InvalidArgument>("{}{}mailbox: message '{}' is missing; there are: {}", context_,
                                   context_.empty() ? "" : ": ", message,
                                   known.empty() ? "none (no reduce function runs)" : known);
  }
  return found->second;
}

at::Tensor NodeBatch::nodes() const {
  return rows_.ids();
}

std::int64_t NodeBatch::batch_size() const {
  return rows_.size();
}

}  // namespace mezzo
