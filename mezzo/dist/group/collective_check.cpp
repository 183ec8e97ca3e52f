#include "mezzo/dist/group/collective_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/core/fnv.h"
#include "mezzo/dist/group/group_state.h"
#include "mezzo/dist/rendezvous/failure.h"

namespace mezzo::dist::detail {
namespace {

/// Size of the call description that a rank sends, padded with zeros.
constexpr std::size_t kRecordBytes = 256;
/// Prefix of a text that is too long, sent with its hash.
constexpr std::size_t kKeptBytes = 200;

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = kFnvBasis;
  for (const char letter : text) hash = fnv_step(hash, static_cast<unsigned char>(letter));
  return hash;
}

/// Shortens the text to less than a record.
std::string shortened(const std::string& call) {
  if (call.size() < kRecordBytes) return call;
  return fmt::format("{}... (hash {:016x})", call.substr(0, kKeptBytes), hash_of(call));
}

/// The records of all ranks, concatenated.
at::Tensor gathered(ProcessGroup::State& group, const char* operation, const std::string& call) {
  const std::string text = shortened(call);
  const auto size = static_cast<std::int64_t>(kRecordBytes);
  const at::Tensor record = at::zeros({size}, at::kByte);
  std::copy(text.begin(), text.end(), record.mutable_data_ptr<std::uint8_t>());
  at::Tensor from = record.to(group.device());
  at::Tensor to = at::empty({group.world_size * size}, from.options());
  group.finish(operation, group.start(operation, [&](c10d::Backend& transport) {
    c10d::AllgatherOptions options;
    options.timeout = group.timeout;
    return transport._allgather_base(to, from, options);
  }));
  return to.cpu();
}

}  // namespace

void check_tensor(const char* operation, const at::Tensor& tensor,
                  const ProcessGroup::State& group) {
  MEZZO_CHECK(tensor.defined(), "dist::{}: expected a tensor, got an undefined one", operation);
  MEZZO_CHECK(tensor.layout() == at::kStrided,
              "dist::{}: expected a dense tensor, got one of layout {}", operation,
              c10::str(tensor.layout()));
  if (group.world_size == 1) return;
  MEZZO_CHECK(tensor.device().type() == group.device().type(),
              "dist::{}: expected a tensor on {}, as {} moves them, got one on {}", operation,
              group.device().str(), group.backend == Backend::kNccl ? "NCCL" : "Gloo",
              tensor.device().str());
}

void check_writable(const char* operation, const at::Tensor& tensor) {
  MEZZO_CHECK(at::has_internal_overlap(tensor.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
              "dist::{}: expected a tensor to write to, got one whose elements share memory",
              operation);
}

void check_result(const char* operation, const at::Tensor& result, const at::Tensor& tensor,
                  c10::IntArrayRef sizes) {
  MEZZO_CHECK(result.defined() && result.layout() == at::kStrided,
              "dist::{}: expected a dense tensor as result, got another", operation);
  MEZZO_CHECK(result.scalar_type() == tensor.scalar_type() && result.sizes() == sizes,
              "dist::{}: expected a result of {} [{}], got {}", operation,
              c10::toString(tensor.scalar_type()), fmt::join(sizes, ", "), text_of(result));
  MEZZO_CHECK(result.device() == tensor.device(),
              "dist::{}: expected a result on {}, got one on {}", operation, tensor.device().str(),
              result.device().str());
  check_writable(operation, result);
  const at::MemOverlapStatus overlap = at::get_overlap_status(result, tensor);
  MEZZO_CHECK(overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial,
              "dist::{}: expected a result that shares no memory with the tensor", operation);
}

std::string text_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

void check_arguments(ProcessGroup::State& group, const char* operation,
                     const std::function<void()>& checks) {
  std::exception_ptr refusal;
  std::string told;
  try {
    return checks();
  } catch (const InvalidArgument& error) {
    refusal = std::current_exception();
    told = fmt::format("{} (refused: {})", operation, error.what());
  }
  if (group.checks_collectives && group.world_size > 1) {
    try {
      const at::NoGradGuard no_grad;
      gathered(group, operation, told);
    } catch (const IoError&) {
      // This rank's own error says more than the failure of the others.
      forget_failure_of_another();
    }
  }
  std::rethrow_exception(refusal);
}

void check_same_call(ProcessGroup::State& group, const char* operation, const std::string& call) {
  if (!group.checks_collectives || group.world_size == 1) return;
  const at::NoGradGuard no_grad;
  const at::Tensor records = gathered(group, operation, call);
  const auto* bytes = static_cast<const char*>(records.const_data_ptr());
  const auto record = [bytes](std::int64_t rank) {
    return bytes + static_cast<std::size_t>(rank) * kRecordBytes;
  };
  std::vector<std::int64_t> others;
  for (std::int64_t rank = 1; rank < group.world_size; ++rank) {
    if (std::memcmp(record(0), record(rank), kRecordBytes) != 0) others.push_back(rank);
  }
  if (others.empty()) return;
  mezzo::detail::raise<InvalidArgument>(
      "dist::{}: expected the same call on all ranks, got {} on rank 0, {} on rank {}; not as on "
      "rank 0: rank{} {}",
      operation, record(0), record(others[0]), others[0], others.size() == 1 ? "" : "s",
      fmt::join(others, ", "));
}

}  // namespace mezzo::dist::detail
