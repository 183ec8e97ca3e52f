#include "mezzo/dist/group/process_group.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/collective_check.h"
#include "mezzo/dist/group/group_state.h"

namespace mezzo::dist {
namespace {

using GroupState = ProcessGroup::State;

/// Bytes of a contiguous tensor, [bytes].
at::Tensor bytes_of(const at::Tensor& whole) {
  return whole.view({-1}).view(at::kByte);
}

std::vector<std::int64_t> gathered_sizes(const at::Tensor& tensor, std::int64_t world_size) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), world_size);
  return sizes;
}

/// Gathers the contiguous tensors of all ranks, concatenated.
WorkPointer start_all_gather(const char* operation, GroupState& group, const at::Tensor& result,
                             const at::Tensor& whole) {
  return group.start(operation, [&](c10d::Backend& transport) {
    at::Tensor to = bytes_of(result);
    at::Tensor from = bytes_of(whole);
    c10d::AllgatherOptions options;
    options.timeout = group.timeout;
    return transport._allgather_base(to, from, options);
  });
}

}  // namespace

std::shared_ptr<Work::State> detail::new_work(const char* operation,
                                              std::shared_ptr<GroupState> group) {
  auto work = std::make_shared<Work::State>();
  work->group = std::move(group);
  work->operation = operation;
  return work;
}

at::Tensor detail::packed(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
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
std::int64_t ProcessGroup::local_world_size() const {
  return state_->local_world_size;
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

void ProcessGroup::broadcast(const at::Tensor& tensor, std::int64_t root) const {
  broadcast_async(tensor, root).wait();
}

Work ProcessGroup::broadcast_async(const at::Tensor& tensor, std::int64_t root) const {
  constexpr const char* kName = "broadcast";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    detail::check_writable(kName, tensor);
    MEZZO_CHECK(root >= 0 && root < world_size(),
                "dist::broadcast: expected root in [0, {}), got {}", world_size(), root);
  });
  detail::check_same_call(
      *state_, kName, fmt::format("{} from rank {} of {}", kName, root, detail::text_of(tensor)));
  auto work = detail::new_work(kName, state_);
  if (world_size() == 1 || tensor.numel() == 0) return Work(std::move(work));
  const at::NoGradGuard no_grad;
  const at::Tensor target = tensor.detach();
  const at::Tensor whole = detail::packed(target);
  work->parts.push_back(state_->start(kName, [&](c10d::Backend& transport) {
    std::vector<at::Tensor> tensors = {bytes_of(whole)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout();
    return transport.broadcast(tensors, options);
  }));
  work->complete = [target, whole, receives = rank() != root] {
    if (receives && whole.data_ptr() != target.data_ptr()) target.copy_(whole);
  };
  return Work(std::move(work));
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& tensor) const {
  detail::check_arguments(*state_, "all_gather",
                          [&] { detail::check_tensor("all_gather", tensor, *state_); });
  at::Tensor result = at::empty(gathered_sizes(tensor, world_size()), tensor.options());
  all_gather_async(result, tensor).wait();
  return result;
}

Work ProcessGroup::all_gather_async(const at::Tensor& result, const at::Tensor& tensor) const {
  constexpr const char* kName = "all_gather";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    detail::check_result(kName, result, tensor, gathered_sizes(tensor, world_size()));
  });
  detail::check_same_call(*state_, kName, fmt::format("{} of {}", kName, detail::text_of(tensor)));
  auto work = detail::new_work(kName, state_);
  if (tensor.numel() == 0) return Work(std::move(work));
  const at::NoGradGuard no_grad;
  const at::Tensor target = result.detach();
  if (world_size() == 1) {
    target.select(0, 0).copy_(tensor.detach());
    return Work(std::move(work));
  }
  const at::Tensor room = detail::packed(target);
  work->parts.push_back(start_all_gather(kName, *state_, room, detail::packed(tensor)));
  work->complete = [target, room] {
    if (room.data_ptr() != target.data_ptr()) target.copy_(room);
  };
  return Work(std::move(work));
}

at::Tensor ProcessGroup::all_to_all(const at::Tensor& tensor,
                                    const std::vector<std::int64_t>& counts) const {
  constexpr const char* kName = "all_to_all";
  detail::check_arguments(*state_, kName, [&] {
    detail::check_tensor(kName, tensor, *state_);
    MEZZO_CHECK(tensor.dim() >= 1, "dist::all_to_all: expected a tensor with rows, got a scalar");
    MEZZO_CHECK(static_cast<std::int64_t>(counts.size()) == world_size(),
                "dist::all_to_all: expected {} counts, one a rank, got {}", world_size(),
                counts.size());
    for (const std::int64_t count : counts) {
      MEZZO_CHECK(count >= 0, "dist::all_to_all: expected counts of at least 0, got {}", count);
    }
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    MEZZO_CHECK(sum == tensor.size(0),
                "dist::all_to_all: expected counts that sum to the tensor's {} rows, got {}",
                tensor.size(0), sum);
  });
  detail::check_same_call(
      *state_, kName,
      fmt::format("{} of {} [*{}{}]", kName, c10::toString(tensor.scalar_type()),
                  tensor.dim() > 1 ? ", " : "", fmt::join(tensor.sizes().slice(1), ", ")));
  const at::NoGradGuard no_grad;
  const at::Tensor whole = detail::packed(tensor);
  if (world_size() == 1) return whole.clone();

  const at::Tensor sent = at::tensor(counts, at::kLong).to(state_->device());
  const at::Tensor table = at::empty({world_size(), world_size()}, sent.options());
  state_->finish(kName, start_all_gather(kName, *state_, table, sent));
  const at::Tensor arriving = table.select(1, rank()).contiguous().cpu();
  const auto* first = arriving.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> arriving_counts(first, first + world_size());
  std::vector<std::int64_t> sizes = whole.sizes().vec();
  sizes[0] = arriving.sum().item<std::int64_t>();
  at::Tensor result = at::empty(sizes, whole.options());
  std::int64_t row_bytes = static_cast<std::int64_t>(whole.element_size());
  for (std::size_t i = 1; i < sizes.size(); ++i) row_bytes *= sizes[i];
  if (row_bytes == 0) return result;
  state_->finish(kName, state_->start(kName, [&](c10d::Backend& transport) {
    at::Tensor to = bytes_of(result).view({sizes[0], row_bytes});
    at::Tensor from = bytes_of(whole).view({tensor.size(0), row_bytes});
    std::vector<std::int64_t> leaving_counts = counts;
    c10d::AllToAllOptions options;
    options.timeout = timeout();
    return transport.alltoall_base(to, from, arriving_counts, leaving_counts, options);
  }));
  return result;
}

void ProcessGroup::barrier() const {
  barrier_async().wait();
}

Work ProcessGroup::barrier_async() const {
  constexpr const char* kName = "barrier";
  detail::check_same_call(*state_, kName, kName);
  auto work = detail::new_work(kName, state_);
  if (world_size() == 1) return Work(std::move(work));
  work->parts.push_back(state_->start(kName, [&](c10d::Backend& transport) {
    c10d::BarrierOptions options;
    options.timeout = timeout();
    if (backend() == Backend::kNccl) options.device_ids = {device().index()};
    return transport.barrier(options);
  }));
  return Work(std::move(work));
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
