#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/hubs.h"

// Last step of row sums: adds the partial sums of a long row's chunks, `length` accumulators each,
// into its row of the result.

namespace mezzo::kernels::cuda {

struct HubSumTuning {
  static constexpr int kThreads = 256;
};

/// Output rows of `length` elements, each multiplied by its row's scale (accumulator type; null
/// for 1) and rounded once.
struct HubSums {
  Entries entries;
  std::int64_t num_rows = 0, num_entries = 0;
  const void* partials = nullptr;  ///< accumulator type [num_partials(), length]
  std::int64_t length = 0;
  const void* row_scale = nullptr;
  void* out = nullptr;
  bool out_is_accum = false;  ///< stored in the accumulator type
};

template <class T>
__global__ void __launch_bounds__(HubSumTuning::kThreads) hub_sums_kernel(HubSums a) {
  using Accum = typename T::Accum;
  const Hub hub = hub_beginning_in(a.entries, a.num_rows, a.num_entries, blockIdx.x);
  if (hub.row < 0) return;
  const auto* partials = static_cast<const Accum*>(a.partials);
  const auto* scales = static_cast<const Accum*>(a.row_scale);
  const Accum scale = scales != nullptr ? scales[hub.row] : Accum(1);
  for (std::int64_t i = threadIdx.x; i < a.length; i += HubSumTuning::kThreads) {
    Accum sum = 0;
    for (std::int64_t chunk = hub.first_chunk; chunk <= hub.last_chunk; ++chunk) {
      sum += partials[hub_partial(hub, chunk) * a.length + i];
    }
    store_number<T>(sum * scale, a.out, a.out_is_accum, hub.row * a.length + i);
  }
}

template <class T>
void launch_hub_sums(const char* kernel_name, const HubSums& sums, void* stream) {
  launch(kernel_name, &hub_sums_kernel<T>, {num_chunks(sums.num_entries)}, HubSumTuning::kThreads,
         stream, sums);
}

}  // namespace mezzo::kernels::cuda
