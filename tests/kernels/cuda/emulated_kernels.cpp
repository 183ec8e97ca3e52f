#include "kernels/cuda/emulated_kernels.h"

#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "mezzo/kernels/cuda_kernels.h"

#include "kernels/guarded.h"

namespace mezzo::test {
namespace {

using cuda::EmulatedOrder;

template <class Args>
std::int64_t num_entries_of(const Args& args) {
  if constexpr (requires { args.entries; }) {
    return args.entries.indptr != nullptr ? args.entries.indptr[args.row_end] : args.row_end;
  } else {
    return 0;
  }
}

/// Runs a kernel of the table through the CPU interface.
template <EmulatedOrder order, class Args>
void emulated(const Args& args) {
  const auto& one = std::get<CudaKernel<Args>>(*mezzo_cuda_kernels());
  const std::int64_t num_entries = num_entries_of(args);
  // Allocators align memory for any type; the guard must be at the end.
  const auto size = static_cast<std::size_t>(one.workspace(args, num_entries));
  GuardedBytes workspace((size + 15) / 16 * 16);
  if (workspace.size() > 0) std::memset(workspace.data(), 0xFF, workspace.size());
  cuda::set_emulated_order(order);
  one.run(args, {.stream = nullptr, .workspace = workspace.data(), .num_entries = num_entries});
}

}  // namespace

template <EmulatedOrder order>
Kernels emulated_kernels() {
  Kernels kernels;
  kernels.name = order == EmulatedOrder::kForward   ? "CUDA forwards"
                 : order == EmulatedOrder::kReverse ? "CUDA backwards"
                                                    : "CUDA shuffled";
  mezzo::detail::for_each(KernelList{}, [&]<class Args>() {
    std::get<CpuKernel<Args>>(kernels.kernels) = emulated<order, Args>;
  });
  kernels.widen = cpu_backends()[0].backend->widen;
  kernels.narrow = cpu_backends()[0].backend->narrow;
  kernels.take_ranges = false;
  // Rows of more than 1024 edges use several blocks.
  kernels.hub_entries = {12, 12, 12, 12,  12,  12,   12,   12,  12,
                         40, 40, 40, 150, 150, 1024, 1025, 2300};
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
