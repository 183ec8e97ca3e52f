#include "kernels/cuda/emulated_kernels.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "mezzo/kernels/cuda_kernels.h"

#include "kernels/guarded.h"

namespace mezzo::test {
namespace {

using cuda::EmulatedOrder;

template <class Args>
std::int64_t num_slots_of(const Args& args) {
  if constexpr (requires { args.slots; }) {
    return args.slots.indptr != nullptr ? args.slots.indptr[args.row_end] : args.row_end;
  } else {
    return 0;
  }
}

/// What the CPU's interface calls: runs a kernel of the table.
template <EmulatedOrder order, auto kernel, class Args>
void emulated(const Args& args) {
  const CudaKernel<Args>& one = mezzo_cuda_kernels()->*kernel;
  const std::int64_t num_slots = num_slots_of(args);
  // Allocators give memory for any type; the end is where it must be guarded.
  const auto size = static_cast<std::size_t>(one.workspace(args, num_slots));
  GuardedBytes workspace((size + 15) / 16 * 16);
  if (workspace.size() > 0) std::memset(workspace.data(), 0xFF, workspace.size());
  cuda::set_emulated_order(order);
  one.run(args, {.stream = nullptr, .workspace = workspace.data(), .num_slots = num_slots});
}

}  // namespace

template <EmulatedOrder order>
Kernels emulated_kernels() {
  Kernels kernels;
  kernels.name = order == EmulatedOrder::kForward   ? "CUDA forwards"
                 : order == EmulatedOrder::kReverse ? "CUDA backwards"
                                                    : "CUDA shuffled";
  kernels.spmm = emulated<order, &CudaKernels::spmm>;
  kernels.sddmm = emulated<order, &CudaKernels::sddmm>;
  kernels.message_grad = emulated<order, &CudaKernels::message_grad>;
  kernels.softmax = emulated<order, &CudaKernels::softmax>;
  kernels.softmax_grad = emulated<order, &CudaKernels::softmax_grad>;
  kernels.attention = emulated<order, &CudaKernels::attention>;
  kernels.attention_state = emulated<order, &CudaKernels::attention_state>;
  kernels.attention_grad = emulated<order, &CudaKernels::attention_grad>;
  kernels.weighted_grad = emulated<order, &CudaKernels::weighted_grad>;
  kernels.gatv2_scores = emulated<order, &CudaKernels::gatv2_scores>;
  kernels.gatv2_scores_grad = emulated<order, &CudaKernels::gatv2_scores_grad>;
  kernels.dropout = emulated<order, &CudaKernels::dropout>;
  kernels.widen = cpu_backends()[0].backend->widen;
  kernels.narrow = cpu_backends()[0].backend->narrow;
  kernels.take_ranges = false;
  // Rows of more than 1024 slots go to several blocks.
  kernels.hub_slots = {12, 12, 12, 12, 12, 12, 12, 12, 12, 40, 40, 40, 150, 150, 1025, 2300};
  return kernels;
}

template Kernels emulated_kernels<EmulatedOrder::kForward>();
template Kernels emulated_kernels<EmulatedOrder::kReverse>();
template Kernels emulated_kernels<EmulatedOrder::kShuffled>();

std::vector<Kernels> kernels_under_test() {
  return {emulated_kernels<EmulatedOrder::kForward>(), emulated_kernels<EmulatedOrder::kReverse>(),
          emulated_kernels<EmulatedOrder::kShuffled>()};
}

}  // namespace mezzo::test
