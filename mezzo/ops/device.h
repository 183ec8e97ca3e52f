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

// Where operators run. An operator is a template over OnCpu or OnCuda, chosen where it is
// registered (cpu.cpp, cuda.cpp): from the check of its operands to the order of its results the
// code is the same, and only what stands here differs. Internal to the library.

namespace mezzo {

/// Elements of the scratch that a thread of the CPU's kernel needs, each as wide as a double.
inline std::int64_t scratch_of(const MessageGradArgs& args) {
  return 2 * (args.of_lhs ? args.lhs : args.rhs).length + 1;
}
template <class Args>
std::int64_t scratch_of(const Args& args) {
  return head_scratch(args.heads, args.features);
}

/// Runs body(begin, end) over ranges of the rows of about equal work (rows plus slots) on
/// libtorch's threads. CPU only.
void parallel_rows(const Direction& direction, std::int64_t row_length,
                   const std::function<void(std::int64_t, std::int64_t)>& body);

/// Whether a result of so many numbers is written past the CPU's caches
/// (docs/decisions/0027-streamed-results.md).
bool streams_result(std::int64_t numbers, DType dtype);

/// Kernels of cpu_backend(), on libtorch's threads.
struct OnCpu {
  /// Runs the kernel that takes Args over all rows of `direction`. args: all but the row range and
  /// the scratch; row_length: elements of a row, by which threads are given work.
  template <class Args>
  static void run(const Args& args, const Direction& direction, std::int64_t row_length) {
    const CpuBackend& backend = cpu_backend();
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
  /// Likewise; rows with very many slots are shared by threads (hub_rows.cpp).
  static void run(const SpmmArgs& args, const Direction& direction, std::int64_t row_length);
  /// Likewise, with the shares of attn's gradient added in an order that the graph alone decides.
  static void run(const GATv2ScoresGradArgs& args, const Direction& direction,
                  std::int64_t row_length);
  /// args: all but the range of draws.
  static void run(const DropoutArgs& args, at::Device device);

  /// `layout` with tables that the kernels can read.
  static Layout layout(const Layout& layout, at::Device /*device*/) { return layout; }

  /// How many heads the backward of gat_attention takes in one pass: all, as its kernel does.
  static std::int64_t heads_of_pass(std::int64_t heads, std::int64_t /*bytes_of_head*/) {
    return heads;
  }

  /// Whether a kernel stores these results, one row an edge, by slot rather than by edge: rows
  /// shorter than a cache line, lest threads share lines
  /// (docs/decisions/0016-edge-results-by-slot.md).
  static bool stores_by_slot(const at::Tensor& rows);

  /// out[e] = rows[slots[e]]: what a kernel stored by slot in the order of the edges. rows: [E,
  /// ...] contiguous; slots: Topology::csr_slots() or csc_slots(), undefined for the same order,
  /// which gives `rows` itself.
  static at::Tensor by_edge(const at::Tensor& rows, const at::Tensor& slots);
  /// The way back: out[slots[e]] = rows[e].
  static at::Tensor by_slot(const at::Tensor& rows, const at::Tensor& slots);

  /// Whether a weighted sum takes less time, by_slot() included, where it reads these weights, one
  /// row an edge, by slot.
  static bool reads_by_slot(const at::Tensor& weights);
};

/// Kernels of cuda_kernels(), queued on libtorch's current stream of the device; nothing waits for
/// them. The functions are those of OnCpu. Throws InvalidArgument where the kernels are not loaded.
struct MEZZO_API OnCuda {
  template <class Args>
  static void run(Args args, const Direction& direction, std::int64_t /*row_length*/) {
    if (direction.num_rows == 0) return;
    args.row_begin = 0;
    args.row_end = direction.num_rows;
    launch(args, direction.device, direction.num_slots);
  }
  static void run(DropoutArgs args, at::Device device);

  /// A process-wide table for each device and distinct layout, made when first needed: one copy,
  /// which synchronises and which a stream under capture refuses (LogicError). Tables are never
  /// freed, for captured graphs read them.
  static Layout layout(const Layout& layout, at::Device device);

  /// As many as their numbers by slot, bytes_of_head each, are in 512 MiB, or one. A further pass
  /// costs little but where heads are narrow: the features are gathered by head anyhow.
  static std::int64_t heads_of_pass(std::int64_t heads, std::int64_t bytes_of_head);

  static bool stores_by_slot(const at::Tensor& /*rows*/) { return false; }
  static bool reads_by_slot(const at::Tensor& /*weights*/) { return false; }
  /// Of rows that are by slot already, for none others are asked for.
  static at::Tensor by_slot(const at::Tensor& rows, const at::Tensor& /*slots*/) { return rows; }
  static at::Tensor by_edge(const at::Tensor& rows, const at::Tensor& slots);

  /// The rows `ids` of `table`, bit for bit. table: [N, ...] contiguous, of any dtype; ids: int32
  /// or int64 [n] in [0, N), contiguous, on the table's device. Records no gradient.
  static at::Tensor gathered(const at::Tensor& table, const at::Tensor& ids);

  /// Runs the kernel that takes Args, complete, on `device`.
  template <class Args>
  static void launch(const Args& args, at::Device device, std::int64_t num_slots) {
    const auto& kernel = std::get<CudaKernel<Args>>(required_cuda_kernels());
    const Queue queue(device, kernel.workspace(args, num_slots));
    kernel.run(args, {queue.stream(), queue.workspace(), num_slots});
  }

 private:
  /// The device made current, its current stream and a workspace that lives as long as this (its
  /// memory goes to later work of the stream only).
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

/// Whether what is queued on the device's current stream is being captured into a CUDA graph; false
/// on the CPU.
MEZZO_API bool is_capturing(at::Device device);

}  // namespace mezzo
