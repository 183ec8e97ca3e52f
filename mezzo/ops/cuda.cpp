// Operators on CUDA: kernels of libmezzo_cuda.so on the caller's device and stream. Memory, devices
// and streams come from libtorch, without CUDA's headers.
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/device.h"

namespace mezzo::detail {
namespace {

void* current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream stream = streams.getStream(device);
  return streams.getStreamNativeHandle(stream);
}

/// The tables of `layout`, concatenated.
std::vector<std::int64_t> tables_of(const kernels::Layout& layout) {
  std::vector<std::int64_t> numbers;
  for (const std::int64_t* table : {layout.lhs_offset, layout.rhs_offset, layout.out_offset}) {
    numbers.insert(numbers.end(), table, table + layout.num_groups);
  }
  return numbers;
}

/// `numbers` on the device; equal numbers share memory.
const std::int64_t* on_device(const std::vector<std::int64_t>& numbers, at::Device device) {
  using Tables = std::map<std::pair<c10::DeviceIndex, std::vector<std::int64_t>>, at::Tensor>;
  static std::mutex mutex;
  // Never destroyed: at exit CUDA may be gone already.
  static auto& tables = *new Tables;
  const std::lock_guard lock(mutex);
  const std::pair key(device.index(), numbers);
  if (const auto entry = tables.find(key); entry != tables.end()) {
    return entry->second.const_data_ptr<std::int64_t>();
  }
  if (is_capturing(device)) {
    raise<LogicError>(
        "the first operation with these broadcast shapes copies a table to {}, which cannot be "
        "captured: run the step once before capturing it",
        device.str());
  }
  const at::Tensor host = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), host.mutable_data_ptr<std::int64_t>());
  return tables.emplace(key, host.to(device)).first->second.const_data_ptr<std::int64_t>();
}

/// The operand whose whole rows edges gather for a sum, a maximum or a minimum, or null.
kernels::Operand* gathered_operand(kernels::SpmmArgs& args) {
  const auto reduce = traits_of(args.reduce);
  const bool weighs = args.op == BinaryOp::kMul && !reduce.selects;
  kernels::Operand* rows = nullptr;
  if (args.op == BinaryOp::kCopyLhs || (weighs && args.layout.rhs_step == 0)) rows = &args.lhs;
  if (args.op == BinaryOp::kCopyRhs || (weighs && args.layout.lhs_step == 0)) rows = &args.rhs;
  const bool whole = rows != nullptr && !reduce.multiplies && args.layout.num_groups == 1 &&
                     rows->length == args.layout.inner;
  return whole && rows->access == kernels::Access::kFirst && !rows->is_accum ? rows : nullptr;
}

/// pad_gathered() of the rows at `data`: [direction.num_others, heads, features].
at::Tensor pad(const void*& data, std::int64_t& padding, std::int64_t heads, std::int64_t features,
               DType dtype, const Direction& direction) {
  const std::int64_t rows = direction.num_others;
  const at::ScalarType type = scalar_type_of(dtype);
  const std::int64_t pack = 16 / static_cast<std::int64_t>(c10::elementSize(type));
  const std::int64_t missing = (pack - features % pack) % pack;
  const bool pays = rows > 0 && direction.num_entries >= OnCuda::kLeastEdgesOfRow * rows;
  if (missing == 0 || missing >= features || !pays) return {};
  // libtorch has no tensors of constant memory; this one is only read.
  const at::Tensor gathered = at::for_blob(const_cast<void*>(data), {rows, heads, features})
                                  .options(at::TensorOptions(direction.device).dtype(type))
                                  .target_device(direction.device)
                                  .make_tensor();
  at::Tensor copy = at::constant_pad_nd(gathered, {0, missing});
  data = copy.const_data_ptr();
  padding = missing;
  return copy;
}

}  // namespace

at::Tensor OnCuda::pad_gathered(kernels::SpmmArgs& args, const Direction& direction) {
  kernels::Operand* const rows = gathered_operand(args);
  if (rows == nullptr) return {};
  std::int64_t padding = 0;
  at::Tensor copy = pad(rows->data, padding, /*heads=*/1, rows->length, args.dtype, direction);
  rows->length += padding;
  return copy;
}

at::Tensor OnCuda::pad_gathered(kernels::WeightedGradArgs& args, const Direction& direction) {
  return pad(args.other, args.other_padding, args.heads, args.features, args.dtype, direction);
}

at::Tensor OnCuda::pad_gathered(kernels::AttentionArgs& args, const Direction& direction) {
  return pad(args.z, args.z_padding, args.heads, args.features, args.dtype, direction);
}

at::Tensor OnCuda::pad_gathered(kernels::AttentionGradArgs& args, const Direction& direction) {
  return pad(args.grad, args.grad_padding, args.heads, args.features, args.dtype, direction);
}

OnCuda::Queue::Queue(at::Device device, std::int64_t workspace_bytes)
    : guard_(device),
      stream_(current_stream(device)),
      workspace_(
          at::empty({workspace_bytes}, at::TensorOptions().dtype(at::kByte).device(device))) {}

void OnCuda::run(kernels::DropoutArgs args, at::Device device) {
  args.draw_begin = 0;
  args.draw_end = (args.count + kernels::kElementsPerDraw - 1) / kernels::kElementsPerDraw;
  launch(args, device, /*num_entries=*/0);
}

kernels::Layout OnCuda::layout(const kernels::Layout& layout, at::Device device) {
  if (layout.lhs_offset == nullptr) return layout;
  kernels::Layout result = layout;
  const std::int64_t* const tables = on_device(tables_of(layout), device);
  result.lhs_offset = tables;
  result.rhs_offset = tables + layout.num_groups;
  result.out_offset = tables + 2 * layout.num_groups;
  return result;
}

std::int64_t OnCuda::heads_of_pass(std::int64_t heads, std::int64_t bytes_of_head) {
  constexpr std::int64_t kMostBytes = std::int64_t{512} << 20;
  if (bytes_of_head == 0) return heads;
  return std::min(std::max<std::int64_t>(kMostBytes / bytes_of_head, 1), heads);
}

at::Tensor OnCuda::to_edge_order(const at::Tensor& rows, const at::Tensor& entries) {
  return entries.defined() ? gathered(rows, entries) : rows;
}

at::Tensor OnCuda::gathered(const at::Tensor& table, const at::Tensor& ids) {
  std::vector<std::int64_t> sizes = table.sizes().vec();
  sizes[0] = ids.numel();
  at::Tensor rows = at::empty(sizes, table.options());
  if (rows.numel() == 0) return rows;
  const kernels::CudaGatherArgs args{
      .table = table.const_data_ptr(),
      .ids = {ids.const_data_ptr(), ids.scalar_type() == at::kLong},
      .num_rows = ids.numel(),
      .row_bytes = static_cast<std::int64_t>(rows.nbytes()) / ids.numel(),
      .out = rows.mutable_data_ptr()};
  launch(args, table.device(), /*num_entries=*/0);
  return rows;
}

bool is_capturing(at::Device device) {
  if (!device.is_cuda()) return false;
  // Asks the driver, because libtorch's function needs CUDA's headers. Without a loaded driver
  // nothing is captured.
  using Query = int (*)(void* stream, int* status);
  static const auto query = [] {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    return driver == nullptr ? nullptr
                             : reinterpret_cast<Query>(::dlsym(driver, "cuStreamIsCapturing"));
  }();
  int status = 0;
  return query != nullptr && query(current_stream(device), &status) == 0 && status != 0;
}

}  // namespace mezzo::detail
