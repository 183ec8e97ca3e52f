#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/collective_check.h"
#include "mezzo/dist/group/engine.h"
#include "mezzo/dist/group/group_state.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {
namespace {

using GroupState = ProcessGroup::State;

/// The dtype for reducing tensors of `type`.
at::ScalarType traffic_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;  // one rounding, at the end
    case at::kShort:
      return at::kInt;  // c10d has no 16-bit integers
    case at::kBool:
      return at::kByte;
    default:
      return type;
  }
}

bool is_ordered(ReduceOp op) {
  return op == ReduceOp::kMax || op == ReduceOp::kMin;
}

void check_reducible(const char* operation, at::ScalarType type, ReduceOp op) {
  const bool real = at::isFloatingType(type) && traffic_type(type) != type;
  const bool floating = real || type == at::kFloat || type == at::kDouble;
  const bool complex = type == at::kComplexFloat || type == at::kComplexDouble;
  const bool integer = type == at::kByte || type == at::kChar || type == at::kShort ||
                       type == at::kInt || type == at::kLong || type == at::kBool;
  MEZZO_CHECK(floating || complex || integer,
              "dist::{}: expected numbers that can be reduced, got {}", operation,
              c10::toString(type));
  MEZZO_CHECK(
      op != ReduceOp::kMean || !integer,
      "dist::{}: expected floating or complex numbers for a mean, got {}; convert them to float32",
      operation, c10::toString(type));
  MEZZO_CHECK(!is_ordered(op) || !complex, "dist::{}: expected real numbers for max or min, got {}",
              operation, c10::toString(type));
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "";
}

void check_same_reduction(GroupState& group, const char* operation, const at::Tensor& tensor,
                          const char* op) {
  detail::check_same_call(group, operation,
                          fmt::format("{} ({}) of {}", operation, op, detail::text_of(tensor)));
}

c10d::ReduceOp::RedOpType engine_op(ReduceOp op, at::ScalarType type) {
  if (op == ReduceOp::kMin) return c10d::ReduceOp::MIN;
  // The sum of bool is "any": 256 times true must not wrap to false.
  if (op == ReduceOp::kMax || type == at::kBool) return c10d::ReduceOp::MAX;
  return c10d::ReduceOp::SUM;
}

WorkPointer start_all_reduce(const char* operation, GroupState& group, const at::Tensor& wire,
                             c10d::ReduceOp::RedOpType op) {
  return group.start(operation, [&](c10d::Backend& transport) {
    std::vector<at::Tensor> tensors = {wire};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.timeout = group.timeout;
    return transport.allreduce(tensors, options);
  });
}

WorkPointer start_reduce_scatter(const char* operation, GroupState& group, const at::Tensor& rows,
                                 const at::Tensor& wire, c10d::ReduceOp::RedOpType op) {
  return group.start(operation, [&](c10d::Backend& transport) {
    at::Tensor to = rows, from = wire;
    c10d::ReduceScatterOptions options;
    options.reduceOp = op;
    options.timeout = group.timeout;
    return transport._reduce_scatter_base(to, from, options);
  });
}

/// Values in the form that the reduction takes.
struct Wire {
  at::Tensor numbers;   ///< contiguous; complex values as pairs
  at::Tensor nan = {};  ///< NaN mask in bytes, because the backends lose NaN in max and min
};

/// Converts a tensor; shares its memory if it already has the form.
Wire wire_of(const at::Tensor& tensor, ReduceOp op) {
  const at::Tensor whole = detail::packed(tensor);
  Wire wire{whole.is_complex() ? at::view_as_real(whole)
                               : whole.to(traffic_type(whole.scalar_type()))};
  if (is_ordered(op) && wire.numbers.is_floating_point()) {
    wire.nan = wire.numbers.isnan().to(at::kByte);
  }
  return wire;
}

/// Completes a reduction and copies it to `target`.
void unpack(const Wire& wire, ReduceOp op, std::int64_t world_size, const at::Tensor& target) {
  if (op == ReduceOp::kMean) wire.numbers.div_(static_cast<double>(world_size));
  if (wire.nan.defined()) {
    wire.numbers.masked_fill_(wire.nan.to(at::kBool), std::numeric_limits<double>::quiet_NaN());
  }
  if (wire.numbers.data_ptr() == target.data_ptr()) return;
  target.copy_(target.is_complex() ? at::view_as_complex(wire.numbers) : wire.numbers);
}

/// Rows of this rank's share: a part of the reduced tensor, or newly allocated.
at::Tensor share_of(const at::Tensor& numbers, const GroupState& group, bool own_memory) {
  if (!numbers.defined()) return {};
  const std::int64_t rows = numbers.size(0) / group.world_size;
  const at::Tensor share = numbers.narrow(0, group.rank * rows, rows);
  return own_memory ? at::empty(share.sizes(), share.options()) : share;
}

void check_rows(const char* operation, const at::Tensor& tensor, const GroupState& group) {
  MEZZO_CHECK(tensor.dim() >= 1 && tensor.size(0) % group.world_size == 0,
              "dist::{}: expected rows that divide evenly over {} ranks, got [{}]", operation,
              group.world_size, fmt::join(tensor.sizes(), ", "));
}

std::vector<std::int64_t> sizes_of_share(const at::Tensor& tensor, const GroupState& group) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[0] /= group.world_size;
  return sizes;
}

}  // namespace

Work detail::sum_in_own_dtype(const ProcessGroup& group, const at::Tensor& tensor) {
  constexpr const char* kName = "all_reduce";
  GroupState& state = *group.state();
  check_tensor(kName, tensor, state);
  check_same_reduction(state, kName, tensor, "sum in its own dtype");
  auto work = new_work(kName, group.state());
  work->parts.push_back(start_all_reduce(kName, state, tensor, c10d::ReduceOp::SUM));
  return Work(std::move(work));
}

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  all_reduce_async(tensor, op).wait();
}

Work ProcessGroup::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* kName = "all_reduce";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    detail::check_writable(kName, tensor);
    check_reducible(kName, tensor.scalar_type(), op);
  });
  check_same_reduction(*state_, kName, tensor, name_of(op));
  auto work = detail::new_work(kName, state_);
  if (world_size() == 1 || tensor.numel() == 0) return Work(std::move(work));

  const at::NoGradGuard no_grad;
  const at::Tensor target = tensor.detach();
  const Wire wire = wire_of(target, op);
  if (wire.nan.defined()) {
    work->parts.push_back(start_all_reduce(kName, *state_, wire.nan, c10d::ReduceOp::MAX));
  }
  work->parts.push_back(
      start_all_reduce(kName, *state_, wire.numbers, engine_op(op, target.scalar_type())));
  work->complete = [target, wire, op, ranks = world_size()] { unpack(wire, op, ranks, target); };
  return Work(std::move(work));
}

at::Tensor ProcessGroup::reduce_scatter(const at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* kName = "reduce_scatter";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    check_rows(kName, tensor, *state_);
  });
  at::Tensor result = at::empty(sizes_of_share(tensor, *state_), tensor.options());
  reduce_scatter_async(result, tensor, op).wait();
  return result;
}

Work ProcessGroup::reduce_scatter_async(const at::Tensor& result, const at::Tensor& tensor,
                                        ReduceOp op) const {
  constexpr const char* kName = "reduce_scatter";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    check_reducible(kName, tensor.scalar_type(), op);
    check_rows(kName, tensor, *state_);
    detail::check_result(kName, result, tensor, sizes_of_share(tensor, *state_));
  });
  check_same_reduction(*state_, kName, tensor, name_of(op));
  auto work = detail::new_work(kName, state_);
  if (tensor.numel() == 0) return Work(std::move(work));

  const at::NoGradGuard no_grad;
  const at::Tensor target = result.detach();
  if (world_size() == 1) {
    target.copy_(tensor.detach());
    return Work(std::move(work));
  }
  // c10d's version for Gloo is an all-reduce of a copy too, but its Work has no time-out.
  const bool scatters = backend() == Backend::kNccl;
  Wire all = wire_of(tensor.detach(), op);
  if (!scatters && all.numbers.is_alias_of(tensor)) all.numbers = all.numbers.clone();
  const Wire own{share_of(all.numbers, *state_, scatters), share_of(all.nan, *state_, scatters)};
  const auto start = [&](const at::Tensor& rows, const at::Tensor& wire,
                         c10d::ReduceOp::RedOpType engine) {
    work->parts.push_back(scatters ? start_reduce_scatter(kName, *state_, rows, wire, engine)
                                   : start_all_reduce(kName, *state_, wire, engine));
  };
  if (all.nan.defined()) start(own.nan, all.nan, c10d::ReduceOp::MAX);
  start(own.numbers, all.numbers, engine_op(op, tensor.scalar_type()));
  work->complete = [target, own, op, ranks = world_size()] { unpack(own, op, ranks, target); };
  return Work(std::move(work));
}

}  // namespace mezzo::dist
