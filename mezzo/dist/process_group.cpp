#include "mezzo/dist/process_group.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/engine.h"
#include "mezzo/dist/group_state.h"

namespace mezzo::dist {
namespace {

using GroupState = ProcessGroup::State;

void check_tensor(const char* operation, const at::Tensor& tensor, const GroupState& group) {
  MEZZO_CHECK(tensor.defined(), "dist::{}: the tensor is not defined", operation);
  MEZZO_CHECK(tensor.layout() == at::kStrided, "dist::{}: the tensor is not a dense one",
              operation);
  if (group.world_size == 1) return;
  MEZZO_CHECK(tensor.device().type() == group.device().type(),
              "dist::{}: the tensor is on {}, but {} moves tensors on {}", operation,
              tensor.device().str(), group.backend == Backend::kNccl ? "NCCL" : "Gloo",
              group.device().str());
}

void check_in_place(const char* operation, const at::Tensor& tensor) {
  MEZZO_CHECK(at::has_internal_overlap(tensor.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
              "dist::{}: elements of the tensor share memory, so it cannot be written to",
              operation);
}

/// The same numbers one behind the other; the tensor itself where they are so already.
at::Tensor packed(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

/// The memory of a packed tensor, [bytes].
at::Tensor bytes_of(const at::Tensor& whole) {
  return whole.view({-1}).view(at::kByte);
}

/// The dtype in which tensors of `type` are reduced.
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

void check_reducible(const char* operation, at::ScalarType type, ReduceOp op) {
  const bool real = at::isFloatingType(type) && traffic_type(type) != type;
  const bool floating = real || type == at::kFloat || type == at::kDouble;
  const bool complex = type == at::kComplexFloat || type == at::kComplexDouble;
  const bool integer = type == at::kByte || type == at::kChar || type == at::kShort ||
                       type == at::kInt || type == at::kLong || type == at::kBool;
  MEZZO_CHECK(floating || complex || integer, "dist::{}: tensors of {} cannot be reduced",
              operation, c10::toString(type));
  MEZZO_CHECK(op != ReduceOp::kMean || !integer,
              "dist::{}: there is no mean of {}: reduce it as float32", operation,
              c10::toString(type));
  const bool ordered = op == ReduceOp::kMax || op == ReduceOp::kMin;
  MEZZO_CHECK(!ordered || !complex, "dist::{}: there is no largest or smallest of {}", operation,
              c10::toString(type));
}

c10d::ReduceOp::RedOpType engine_op(ReduceOp op, at::ScalarType type) {
  if (op == ReduceOp::kMin) return c10d::ReduceOp::MIN;
  // A sum of bool says "any": 256 times true must not wrap to false.
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

/// A reduction of a checked tensor in place.
std::shared_ptr<Work::State> reduce_async(const char* operation,
                                          const std::shared_ptr<GroupState>& group,
                                          const at::Tensor& tensor, ReduceOp op) {
  const at::NoGradGuard no_grad;
  auto work = std::make_shared<Work::State>();
  work->group = group;
  work->operation = operation;
  if (group->world_size == 1 || tensor.numel() == 0) return work;

  const at::Tensor target = tensor.detach();
  const at::Tensor whole = packed(target);
  const at::Tensor wire =
      whole.is_complex() ? at::view_as_real(whole) : whole.to(traffic_type(whole.scalar_type()));
  const bool ordered = op == ReduceOp::kMax || op == ReduceOp::kMin;
  at::Tensor nan;
  if (ordered && wire.is_floating_point()) {
    nan = wire.isnan().to(at::kByte);
    work->parts.push_back(start_all_reduce(operation, *group, nan, c10d::ReduceOp::MAX));
  }
  work->parts.push_back(
      start_all_reduce(operation, *group, wire, engine_op(op, target.scalar_type())));
  work->complete = [target, wire, nan, op, world_size = group->world_size] {
    if (op == ReduceOp::kMean) wire.div_(static_cast<double>(world_size));
    if (nan.defined()) {
      wire.masked_fill_(nan.to(at::kBool), std::numeric_limits<double>::quiet_NaN());
    }
    if (wire.data_ptr() == target.data_ptr()) return;
    target.copy_(target.is_complex() ? at::view_as_complex(wire) : wire);
  };
  return work;
}

void finish_now(const char* operation, GroupState& group,
                const std::function<WorkPointer(c10d::Backend&)>& collective) {
  group.finish(operation, group.start(operation, collective));
}

}  // namespace

Work detail::sum_in_own_dtype(const ProcessGroup& group, const at::Tensor& tensor) {
  auto work = std::make_shared<Work::State>();
  work->group = group.state();
  work->operation = "all_reduce";
  check_tensor(work->operation, tensor, *work->group);
  work->parts.push_back(
      start_all_reduce(work->operation, *work->group, tensor, c10d::ReduceOp::SUM));
  return Work(std::move(work));
}

Work::Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

void Work::wait() {
  const at::NoGradGuard no_grad;
  for (const WorkPointer& part : state_->parts) state_->group->finish(state_->operation, part);
  if (state_->complete) state_->complete();
  state_->parts.clear();
  state_->complete = nullptr;
}

bool Work::is_done() const {
  for (const WorkPointer& part : state_->parts) {
    if (!part->isCompleted()) return false;
  }
  return true;
}

ProcessGroup::ProcessGroup() : state_(std::make_shared<State>()) {}
ProcessGroup::ProcessGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::int64_t ProcessGroup::rank() const {
  return state_->rank;
}
std::int64_t ProcessGroup::world_size() const {
  return state_->world_size;
}
std::int64_t ProcessGroup::local_rank() const {
  return state_->local_rank;
}
c10::Device ProcessGroup::device() const {
  return state_->device();
}
Backend ProcessGroup::backend() const {
  return state_->backend;
}
std::chrono::milliseconds ProcessGroup::timeout() const {
  return state_->timeout;
}
const std::shared_ptr<void>& ProcessGroup::engine() const {
  return state_->engine;
}
const std::shared_ptr<GroupState>& ProcessGroup::state() const {
  return state_;
}

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  all_reduce_async(tensor, op).wait();
}

Work ProcessGroup::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* kName = "all_reduce";
  check_tensor(kName, tensor, *state_);
  check_in_place(kName, tensor);
  check_reducible(kName, tensor.scalar_type(), op);
  return Work(reduce_async(kName, state_, tensor, op));
}

void ProcessGroup::broadcast(const at::Tensor& tensor, std::int64_t root) const {
  constexpr const char* kName = "broadcast";
  check_tensor(kName, tensor, *state_);
  check_in_place(kName, tensor);
  MEZZO_CHECK(root >= 0 && root < world_size(), "dist::broadcast: root is {}, not one of {} ranks",
              root, world_size());
  if (world_size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor target = tensor.detach();
  const at::Tensor whole = packed(target);
  finish_now(kName, *state_, [&](c10d::Backend& transport) {
    std::vector<at::Tensor> tensors = {bytes_of(whole)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout();
    return transport.broadcast(tensors, options);
  });
  if (rank() != root && whole.data_ptr() != target.data_ptr()) target.copy_(whole);
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& tensor) const {
  constexpr const char* kName = "all_gather";
  check_tensor(kName, tensor, *state_);
  const at::NoGradGuard no_grad;
  const at::Tensor whole = packed(tensor);
  std::vector<std::int64_t> sizes = whole.sizes().vec();
  sizes.insert(sizes.begin(), world_size());
  if (world_size() == 1) return whole.clone().view(sizes);
  at::Tensor result = at::empty(sizes, whole.options());
  if (whole.numel() == 0) return result;
  finish_now(kName, *state_, [&](c10d::Backend& transport) {
    at::Tensor to = bytes_of(result);
    at::Tensor from = bytes_of(whole);
    c10d::AllgatherOptions options;
    options.timeout = timeout();
    return transport._allgather_base(to, from, options);
  });
  return result;
}

at::Tensor ProcessGroup::reduce_scatter(const at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* kName = "reduce_scatter";
  check_tensor(kName, tensor, *state_);
  check_reducible(kName, tensor.scalar_type(), op);
  MEZZO_CHECK(tensor.dim() >= 1 && tensor.size(0) % world_size() == 0,
              "dist::reduce_scatter: the rows of a tensor with {} dimensions and {} rows do not "
              "divide evenly over {} ranks",
              tensor.dim(), tensor.dim() == 0 ? 0 : tensor.size(0), world_size());
  const at::NoGradGuard no_grad;
  const at::Tensor all = tensor.detach().clone(at::MemoryFormat::Contiguous);
  Work(reduce_async(kName, state_, all, op)).wait();
  const std::int64_t rows = all.size(0) / world_size();
  const at::Tensor own = all.narrow(0, rank() * rows, rows);
  return world_size() == 1 ? own : own.clone();
}

at::Tensor ProcessGroup::all_to_all(const at::Tensor& tensor,
                                    const std::vector<std::int64_t>& counts) const {
  constexpr const char* kName = "all_to_all";
  check_tensor(kName, tensor, *state_);
  MEZZO_CHECK(tensor.dim() >= 1, "dist::all_to_all: the tensor has no rows");
  MEZZO_CHECK(static_cast<std::int64_t>(counts.size()) == world_size(),
              "dist::all_to_all: {} counts for {} ranks", counts.size(), world_size());
  for (const std::int64_t count : counts) {
    MEZZO_CHECK(count >= 0, "dist::all_to_all: a count is {}", count);
  }
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  MEZZO_CHECK(sum == tensor.size(0), "dist::all_to_all: the counts add up to {}, not to {} rows",
              sum, tensor.size(0));
  const at::NoGradGuard no_grad;
  const at::Tensor whole = packed(tensor);
  if (world_size() == 1) return whole.clone();

  const at::Tensor sent = at::tensor(counts, at::kLong).to(state_->device());
  const at::Tensor arriving = all_gather(sent).select(1, rank()).contiguous().cpu();
  const auto* first = arriving.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> arriving_counts(first, first + world_size());
  std::vector<std::int64_t> sizes = whole.sizes().vec();
  sizes[0] = arriving.sum().item<std::int64_t>();
  at::Tensor result = at::empty(sizes, whole.options());
  std::int64_t row_bytes = static_cast<std::int64_t>(whole.element_size());
  for (std::size_t i = 1; i < sizes.size(); ++i) row_bytes *= sizes[i];
  if (row_bytes == 0) return result;
  finish_now(kName, *state_, [&](c10d::Backend& transport) {
    at::Tensor to = bytes_of(result).view({sizes[0], row_bytes});
    at::Tensor from = bytes_of(whole).view({sum, row_bytes});
    std::vector<std::int64_t> leaving_counts = counts;
    c10d::AllToAllOptions options;
    options.timeout = timeout();
    return transport.alltoall_base(to, from, arriving_counts, leaving_counts, options);
  });
  return result;
}

void ProcessGroup::barrier() const {
  if (world_size() == 1) return;
  finish_now("barrier", *state_, [&](c10d::Backend& transport) {
    c10d::BarrierOptions options;
    options.timeout = timeout();
    if (backend() == Backend::kNccl) options.device_ids = {device().index()};
    return transport.barrier(options);
  });
}

void ProcessGroup::give_up(const std::string& reason) const noexcept {
  if (world_size() > 1) state_->give_up(reason);
}

double ProcessGroup::all_reduce(double value, ReduceOp op) const {
  const at::Tensor number =
      at::full({1}, value, at::TensorOptions(at::kDouble).device(state_->device()));
  if (world_size() > 1) all_reduce(number, op);
  return number.item<double>();
}

std::vector<std::int64_t> ProcessGroup::ranks_that_differ(const std::string& text) const {
  if (world_size() == 1) return {};
  const c10::Device device = state_->device();
  const auto size = static_cast<std::int64_t>(text.size());
  at::Tensor first_size = at::full({1}, size, at::TensorOptions(at::kLong).device(device));
  broadcast(first_size);
  at::Tensor first = at::empty({first_size.item<std::int64_t>()}, at::kByte);
  if (rank() == 0) std::copy(text.begin(), text.end(), first.mutable_data_ptr<std::uint8_t>());
  first = first.to(device);
  broadcast(first);
  first = first.cpu();
  const auto* bytes = first.const_data_ptr<std::uint8_t>();
  const bool same = std::string(bytes, bytes + first.numel()) == text;
  const at::Tensor differs =
      all_gather(at::full({1}, same ? 0 : 1, at::TensorOptions(at::kByte).device(device))).cpu();
  const auto* flags = differs.const_data_ptr<std::uint8_t>();
  std::vector<std::int64_t> ranks;
  for (std::int64_t other = 0; other < world_size(); ++other) {
    if (flags[other] != 0) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace mezzo::dist
