#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/cuda_kernels.h"
#include "mezzo/ops/arguments.h"
#include "mezzo/runtime/cuda_library.h"

// The devices of operators. An operator is a template over OnCpu (cpu.cpp) or OnCuda (cuda.cpp),
// which op.h chooses at registration. Only these two classes differ between devices.

namespace mezzo::detail {

/// The number of doubles of scratch memory that each CPU thread needs.
inline std::int64_t scratch_of(const kernels::MessageGradArgs& args) {
  return 2 * (args.of_lhs ? args.lhs : args.rhs).length + 1;
}
template <class Args>
std::int64_t scratch_of(const Args& args) {
  return kernels::head_scratch(args.heads, args.features);
}

/// Runs body(begin, end) on libtorch's threads over ranges of rows of about equal work (rows plus
/// edges). CPU only.
void parallel_rows(const Direction& direction, std::int64_t row_length,
                   const std::function<void(std::int64_t, std::int64_t)>& body);

/// Whether stores of a result of this size bypass the CPU's caches
/// (docs/decisions/0027-streamed-results.md).
bool streams_result(std::int64_t numbers, DType dtype);

/// Runs the kernels of cpu_backend() on libtorch's threads.
struct OnCpu {
  /// Runs the kernel of Args over all rows of `direction`. args: without row range and scratch;
  /// row_length: elements of a row, for the partition among threads.
  template <class Args>
  static void run(const Args& args, const Direction& direction, std::int64_t row_length) {
    const kernels::CpuBackend& backend = kernels::cpu_backend();
    [[maybe_unused]] const bool streams =
        streams_result(direction.num_rows * row_length, args.dtype);
    parallel_rows(direction, row_length, [&](std::int64_t begin, std::int64_t end) {
      Args part = args;
      if constexpr (requires(Args a) { a.out_streams; }) part.out_streams = streams;
      part.row_begin = begin;
      part.row_end = end;
      if constexpr (requires(Args a) { a.scratch; }) {
        const auto memory =
            std::make_unique_for_overwrite<double[]>(static_cast<std::size_t>(scratch_of(args)));
        part.scratch = memory.get();
        backend.run(part);
      } else {
        backend.run(part);
      }
    });
  }
  /// The same; threads share rows with very many edges (hub_rows.cpp).
  static void run(const kernels::SpmmArgs& args, const Direction& direction,
                  std::int64_t row_length);
  /// The same; the partial gradients of attn are added in an order that depends on the graph only.
  static void run(const kernels::GATv2ScoresGradArgs& args, const Direction& direction,
                  std::int64_t row_length);
  /// args: without the range of draws.
  static void run(const kernels::DropoutArgs& args, at::Device device);

  /// `layout` with tables in memory that the kernels can read.
  static kernels::Layout layout(const kernels::Layout& layout, at::Device /*device*/) {
    return layout;
  }

  /// The number of heads that the backward of gat_attention processes in one pass: all.
  static std::int64_t heads_of_pass(std::int64_t heads, std::int64_t /*bytes_of_head*/) {
    return heads;
  }

  /// Whether a kernel stores these results, one row an edge, in CSR order rather than edge-id
  /// order: true for rows shorter than a cache line, so that threads do not share lines
  /// (docs/decisions/0016-edge-results-by-entry.md).
  static bool stores_in_csr_order(const at::Tensor& rows);

  /// out[e] = rows[entries[e]]: from CSR order to edge-id order. rows: [E, ...] contiguous;
  /// entries: Topology::csr_entries() or csc_entries(). Returns `rows` itself if entries are
  /// undefined, that is, if the orders are equal.
  static at::Tensor to_edge_order(const at::Tensor& rows, const at::Tensor& entries);
  /// The inverse: out[entries[e]] = rows[e].
  static at::Tensor to_csr_order(const at::Tensor& rows, const at::Tensor& entries);

  /// Whether a weighted sum is faster with these weights, one row an edge, in CSR order, including
  /// the time of to_csr_order().
  static bool reads_in_csr_order(const at::Tensor& weights);
};

/// Queues kernels of cuda_kernels() on libtorch's current stream of the device, without
/// synchronization. It has the functions of OnCpu. Throws InvalidArgument if the kernels are not
/// loaded.
struct MEZZO_API OnCuda {
  template <class Args>
  static void run(Args args, const Direction& direction, std::int64_t /*row_length*/) {
    if (direction.num_rows == 0) return;
    args.row_begin = 0;
    args.row_end = direction.num_rows;
    // The copy's memory is reused only for later work of the same stream.
    const at::Tensor copy = pad_gathered(args, direction);
    launch(args, direction.device, direction.num_entries);
  }
  static void run(kernels::DropoutArgs args, at::Device device);

  /// The process has one table for each device and distinct layout. The first use copies it, which
  /// synchronizes, and throws LogicError on a stream under capture. Tables are never freed, because
  /// captured graphs read them.
  static kernels::Layout layout(const kernels::Layout& layout, at::Device device);

  /// The number of heads that fit in 512 MiB at bytes_of_head each, at least one. Another pass
  /// costs little unless heads have few features, because features are gathered by head anyway.
  static std::int64_t heads_of_pass(std::int64_t heads, std::int64_t bytes_of_head);

  static bool stores_in_csr_order(const at::Tensor& /*rows*/) { return false; }
  static bool reads_in_csr_order(const at::Tensor& /*weights*/) { return false; }
  /// Called only for rows that are in CSR order already.
  static at::Tensor to_csr_order(const at::Tensor& rows, const at::Tensor& /*entries*/) {
    return rows;
  }
  static at::Tensor to_edge_order(const at::Tensor& rows, const at::Tensor& entries);

  /// table[ids]. table: [N, ...] contiguous, of any dtype; ids: int32 or int64 [n] in [0, N),
  /// contiguous, on the table's device. Records no gradient.
  static at::Tensor gathered(const at::Tensor& table, const at::Tensor& ids);

  /// Replaces the rows that edges gather by a copy, which it returns, with zeros after each head's
  /// features up to a multiple of 16 bytes: then kernels read them in packs of 16 bytes. Returns an
  /// undefined tensor, and changes nothing, if there is nothing to pad, if zeros would be half of a
  /// row, if there are fewer than kLeastEdgesOfRow edges for each of the rows, or for other
  /// kernels.
  static at::Tensor pad_gathered(kernels::SpmmArgs& args, const Direction& direction);
  static at::Tensor pad_gathered(kernels::WeightedGradArgs& args, const Direction& direction);
  static at::Tensor pad_gathered(kernels::AttentionArgs& args, const Direction& direction);
  static at::Tensor pad_gathered(kernels::AttentionGradArgs& args, const Direction& direction);
  template <class Args>
  static at::Tensor pad_gathered(Args& /*args*/, const Direction& /*direction*/) {
    return {};
  }
  /// The copy moves each row about four times; narrow packs cost an edge half a row or more.
  static constexpr std::int64_t kLeastEdgesOfRow = 8;

  /// Runs the kernel of Args, which are complete, on `device`.
  template <class Args>
  static void launch(const Args& args, at::Device device, std::int64_t num_entries) {
    const auto& kernel = std::get<kernels::CudaKernel<Args>>(required_cuda_kernels());
    const Queue queue(device, kernel.workspace(args, num_entries));
    kernel.run(args, {queue.stream(), queue.workspace(), num_entries});
  }

 private:
  /// Makes the device current and owns a workspace, whose memory libtorch reuses only for later
  /// work of the same stream.
  class Queue {
   public:
    Queue(at::Device device, std::int64_t workspace_bytes);
    void* stream() const { return stream_; }
    void* workspace() const { return workspace_.mutable_data_ptr(); }

   private:
    c10::DeviceGuard guard_;
    void* stream_;
    at::Tensor workspace_;
  };
};

/// Whether the device's current stream is being captured into a CUDA graph; false on the CPU.
MEZZO_API bool is_capturing(at::Device device);

}  // namespace mezzo::detail
