#include "mezzo/graph/functions.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
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

/// The rows of a node column, one for each edge. Uses gsddmm if there is a gradient, which it sums
/// in float32; index_select sums in the column's dtype, and a bfloat16 sum of ones stops at 256.
at::Tensor gathered(const Topology& topology, const std::string& name, const at::Tensor& column,
                    Target target) {
  detail::check_gathers_rows(name, column);
  const bool needs_gradient_sum = column.requires_grad() && column.layout() == at::kStrided &&
                                  at::isFloatingType(column.scalar_type());
  if (!needs_gradient_sum) {
    return column.index_select(0, target == Target::kSrc ? topology.src() : topology.dst());
  }
  // A gather keeps its dtype under autocast, as index_select does.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return gsddmm(topology, BinaryOp::kCopyLhs, column, std::nullopt, target, Target::kEdge);
}

/// Returns read() and prepends the context to its InvalidArgument.
template <class Read>
auto with_context(const std::string& context, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    if (context.empty()) throw;
    detail::raise<InvalidArgument>("{}: {}", context, error.what());
  }
}

}  // namespace

at::Tensor EdgeBatch::src(const std::string& column) const {
  return with_context(context_,
                      [&] { return gathered(topology_, column, src_.at(column), Target::kSrc); });
}

at::Tensor EdgeBatch::dst(const std::string& column) const {
  return with_context(context_,
                      [&] { return gathered(topology_, column, dst_.at(column), Target::kDst); });
}

at::Tensor EdgeBatch::data(const std::string& column) const {
  return with_context(context_, [&] { return edge_.at(column); });
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
  const auto entry = fresh_.find(column);
  if (entry != fresh_.end()) return entry->second;
  return with_context(context_, [&] { return rows_.at(column); });
}

const at::Tensor& NodeBatch::mailbox(const std::string& message) const {
  const auto entry = mailbox_.find(message);
  if (entry == mailbox_.end()) {
    std::string available;
    for (const auto& [name, column] : mailbox_) available += (available.empty() ? "" : ", ") + name;
    detail::raise<InvalidArgument>(
        "{}{}mailbox: message '{}' is missing; there are: {}", context_,
        context_.empty() ? "" : ": ", message,
        available.empty() ? "none (no reduce function runs)" : available);
  }
  return entry->second;
}

at::Tensor NodeBatch::nodes() const {
  return rows_.ids();
}

std::int64_t NodeBatch::batch_size() const {
  return rows_.size();
}

}  // namespace mezzo
