#include "mezzo/dist/sharded_features.h"

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"

namespace mezzo::dist {
namespace {

/// Why `rows` cannot be sharded; empty if they can.
std::string fault_of_rows(const at::Tensor& rows, const ProcessGroup& group) {
  if (!rows.defined()) return "expected a tensor, got an undefined one";
  if (rows.layout() != at::kStrided) return "expected a dense tensor, got a sparse one";
  if (rows.dim() < 1) return "expected [rows, ...], got a scalar";
  if (group.world_size() > 1 && rows.device().type() != group.device().type()) {
    return fmt::format("expected a tensor on {}, as the group moves them, got one on {}",
                       group.device().str(), rows.device().str());
  }
  return {};
}

std::vector<std::int64_t> counts_of(const at::Tensor& counts) {
  const at::Tensor on_host = counts.to(at::kCPU).contiguous();
  const auto* const data = on_host.const_data_ptr<std::int64_t>();
  return {data, data + on_host.numel()};
}

/// Throws on all ranks if one has a fault or if they differ in `form`.
void agree_on_rows(const char* name, const std::string& fault, const std::string& form,
                   const ProcessGroup& group) {
  const auto options = at::TensorOptions(at::kByte).device(group.device());
  const at::Tensor is_wrong = group.all_gather(at::full({}, fault.empty() ? 0 : 1, options));
  MEZZO_CHECK(fault.empty(), "ShardedFeatures: {}: {}", name, fault);
  const auto wrong_ranks = counts_of(is_wrong.nonzero().reshape(-1));
  MEZZO_CHECK(wrong_ranks.empty(), "ShardedFeatures: {}: a wrong one on ranks {}", name,
              fmt::join(wrong_ranks, ", "));
  const auto different = group.ranks_that_differ(form);
  MEZZO_CHECK(
      different.empty(),
      "ShardedFeatures: {}: expected the same on all ranks, got another dtype or shape than "
      "rank 0's on ranks {}; {} on rank {}",
      name, fmt::join(different, ", "), form, group.rank());
}

std::string form_of_rows(const at::Tensor& rows, std::int64_t first_dimension) {
  return fmt::format(
      "{} [{}]", c10::toString(rows.scalar_type()),
      fmt::join(rows.sizes().slice(static_cast<std::size_t>(first_dimension)), ", "));
}

/// Why `ids` cannot be gathered from `num_rows` rows; empty if they can.
std::string fault_of_ids(const at::Tensor& ids, std::int64_t num_rows) {
  if (!ids.defined()) return "expected int32 or int64 [n], got an undefined tensor";
  if (ids.layout() != at::kStrided || ids.dim() != 1 ||
      (ids.scalar_type() != at::kInt && ids.scalar_type() != at::kLong)) {
    return fmt::format("expected int32 or int64 [n], got {} of {} dimensions",
                       c10::toString(ids.scalar_type()), ids.dim());
  }
  if (ids.numel() == 0) return {};
  const auto [lowest, highest] = at::aminmax(ids);
  const std::int64_t low = lowest.item().toLong(), high = highest.item().toLong();
  if (low >= 0 && high < num_rows) return {};
  return fmt::format("expected ids in [0, {}), got {}", num_rows, low < 0 ? low : high);
}

}  // namespace

ShardedFeatures::ShardedFeatures(at::Tensor rows, std::vector<std::int64_t> starts,
                                 ProcessGroup group)
    : part_(std::move(rows)), starts_(std::move(starts)), group_(std::move(group)) {}

ShardedFeatures ShardedFeatures::from_table(const at::Tensor& table, const ProcessGroup& group) {
  const std::string fault = fault_of_rows(table, group);
  agree_on_rows("table", fault, fault.empty() ? form_of_rows(table, 0) : "", group);
  const std::int64_t ranks = group.world_size();
  std::vector<std::int64_t> starts(static_cast<std::size_t>(ranks + 1));
  for (std::int64_t rank = 0; rank <= ranks; ++rank) {
    starts[static_cast<std::size_t>(rank)] = table.size(0) * rank / ranks;
  }
  const auto mine = static_cast<std::size_t>(group.rank());
  const at::Tensor share = table.detach().narrow(0, starts[mine], starts[mine + 1] - starts[mine]);
  return {share.clone(at::MemoryFormat::Contiguous), std::move(starts), group};
}

ShardedFeatures ShardedFeatures::from_part(const at::Tensor& rows, const ProcessGroup& group) {
  const std::string fault = fault_of_rows(rows, group);
  agree_on_rows("rows", fault, fault.empty() ? form_of_rows(rows, 1) : "", group);
  const auto counts =
      counts_of(group.all_gather(at::full({1}, rows.size(0), rows.options().dtype(at::kLong))));
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t count : counts) starts.push_back(starts.back() + count);
  return {rows.detach(), std::move(starts), group};
}

std::int64_t ShardedFeatures::num_rows() const {
  return starts_.back();
}

std::int64_t ShardedFeatures::first_row() const {
  return starts_[static_cast<std::size_t>(group_.rank())];
}

const at::Tensor& ShardedFeatures::part() const {
  return part_;
}

at::Tensor ShardedFeatures::gather(const at::Tensor& ids) const {
  const c10::AutoGradMode no_gradients(false);
  const std::int64_t ranks = group_.world_size();
  const auto options = part_.options().dtype(at::kLong);
  const std::string fault = fault_of_ids(ids, num_rows());
  const at::Tensor valid_ids = fault.empty() ? ids.to(options) : at::empty({0}, options);

  // Stable order of ids by owner. Empty shares have equal starts: the owner is the last rank whose
  // start is not above the id.
  const at::Tensor starts = at::tensor(starts_, at::kLong).slice(0, 1, ranks).to(options);
  const at::Tensor owner = at::searchsorted(starts, valid_ids, /*out_int32=*/false, /*right=*/true);
  const at::Tensor order = at::argsort(owner, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor counts = at::bincount(owner, {}, ranks);

  // A rank with invalid ids sends a flag with its counts, because the others would wait for it.
  const at::Tensor is_wrong = at::full({1}, fault.empty() ? 0 : 1, options);
  const at::Tensor table = group_.all_gather(at::cat({counts, is_wrong})).to(at::kCPU);
  MEZZO_CHECK(fault.empty(), "ShardedFeatures::gather: ids: {}", fault);
  const at::Tensor wrong_ranks = table.select(1, ranks).nonzero();
  MEZZO_CHECK(wrong_ranks.numel() == 0, "ShardedFeatures::gather: ids: wrong ones on ranks {}",
              fmt::join(counts_of(wrong_ranks.reshape(-1)), ", "));
  const auto asked = counts_of(table.select(0, group_.rank()).slice(0, 0, ranks));
  const auto served = counts_of(table.select(1, group_.rank()));

  const at::Tensor requests = group_.all_to_all(valid_ids.index_select(0, order), asked);
  const at::Tensor rows = part_.index_select(0, requests - first_row());
  const at::Tensor arrived = group_.all_to_all(rows, served);
  const at::Tensor place =
      at::empty_like(order).index_copy_(0, order, at::arange(order.numel(), options));
  return arrived.index_select(0, place);
}

}  // namespace mezzo::dist
