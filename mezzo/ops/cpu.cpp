// Operators on the CPU: the partition of rows among threads.
#include <algorithm>
#include <atomic>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/ops/device.h"

namespace mezzo::detail {
namespace {

/// Rows plus edges of a block: some 10^5 elements, and few enough blocks that their partial
/// gradients of attn are small compared with the scores.
constexpr std::int64_t kBlockWork = 2048;

/// The first row of each block of about kBlockWork rows plus edges, then the number of rows. Blocks
/// depend on the graph only, so sums over blocks have the same bits for any number of threads.
std::vector<std::int64_t> row_blocks(const Direction& direction) {
  const auto work_before = [&](std::int64_t row) { return direction.indptr[row] + row; };
  std::vector<std::int64_t> starts = {0};
  for (std::int64_t row = 1; row <= direction.num_rows; ++row) {
    const bool full = work_before(row) - work_before(starts.back()) >= kBlockWork;
    if (full || row == direction.num_rows) starts.push_back(row);
  }
  return starts;
}

void* partial_sum(const at::Tensor& partial_sums, std::int64_t block) {
  return static_cast<char*>(partial_sums.mutable_data_ptr()) +
         block * partial_sums.size(1) * static_cast<std::int64_t>(partial_sums.element_size());
}

}  // namespace

void parallel_rows(const Direction& direction, std::int64_t row_length,
                   const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t* const indptr = direction.indptr;
  const std::int64_t num_rows = direction.num_rows;
  // Row r covers the work units [indptr[r] + r, indptr[r + 1] + r + 1): its edges and itself.
  const std::int64_t work = num_rows == 0 ? 0 : indptr[num_rows] + num_rows;
  const auto first_row = [&](std::int64_t unit) {
    std::int64_t low = 0, high = num_rows;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (indptr[middle] + middle < unit) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t from = first_row(begin), to = end == work ? num_rows : first_row(end);
    if (from < to) body(from, to);
  };
  // At least 2^15 elements a task; less does not pay for a thread.
  const std::int64_t grain = std::max<std::int64_t>(1, (std::int64_t{1} << 15) / (row_length + 1));
  const std::int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  // The cost of an edge depends on the caches, so a thread takes one of several chunks after
  // another.
  constexpr std::int64_t kChunksOfThread = 8;
  const std::int64_t chunks = std::min(threads * kChunksOfThread, work / grain);
  if (threads == 1 || chunks <= threads) return at::parallel_for(0, work, grain, run);
  std::atomic<std::int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t i = next++; i < chunks; i = next++) {
      run(work * i / chunks, work * (i + 1) / chunks);
    }
  });
}

void OnCpu::run(const kernels::GATv2ScoresGradArgs& args, const Direction& direction,
                std::int64_t row_length) {
  const std::vector<std::int64_t> starts = row_blocks(direction);
  const auto num_blocks = static_cast<std::int64_t>(starts.size()) - 1;
  const bool of_attn = args.attn_grad != nullptr;
  const at::Tensor partial_sums =
      at::zeros({of_attn ? num_blocks : 0, row_length}, accumulator_of(args.dtype));
  const kernels::CpuBackend& backend = kernels::cpu_backend();
  at::parallel_for(0, num_blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      kernels::GATv2ScoresGradArgs part = args;
      part.row_begin = starts[static_cast<std::size_t>(block)];
      part.row_end = starts[static_cast<std::size_t>(block) + 1];
      if (of_attn) part.attn_grad = partial_sum(partial_sums, block);
      backend.run(part);
    }
  });
  if (!of_attn) return;
  // Not at::sum, whose partition may depend on the number of threads.
  at::Tensor sum = at::from_blob(args.attn_grad, {row_length}, partial_sums.options());
  for (std::int64_t block = 0; block < num_blocks; ++block) sum.add_(partial_sums[block]);
}

bool streams_result(std::int64_t numbers, DType dtype) {
  constexpr std::int64_t kLeastBytes = 1 << 23;
  return numbers * static_cast<std::int64_t>(c10::elementSize(scalar_type_of(dtype))) >=
         kLeastBytes;
}

void OnCpu::run(const kernels::DropoutArgs& args, at::Device /*device*/) {
  const std::int64_t draws =
      (args.count + kernels::kElementsPerDraw - 1) / kernels::kElementsPerDraw;
  // Whole cache lines for a thread in any dtype: 8 draws are for 64 elements.
  constexpr std::int64_t kDraws = 8, kGrain = 512;
  const std::int64_t chunks = (draws + kDraws - 1) / kDraws;
  at::parallel_for(0, chunks, kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels::DropoutArgs part = args;
    part.out_streams = streams_result(args.count, args.dtype);
    part.draw_begin = begin * kDraws;
    part.draw_end = std::min(draws, end * kDraws);
    kernels::cpu_backend().run(part);
  });
}

}  // namespace mezzo::detail
