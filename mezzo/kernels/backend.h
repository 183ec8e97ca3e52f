#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"
#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/dense.h"
#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/edge_softmax.h"
#include "mezzo/kernels/gatv2_scores.h"
#include "mezzo/kernels/message_grad.h"
#include "mezzo/kernels/sampling.h"
#include "mezzo/kernels/sddmm.h"
#include "mezzo/kernels/spmm.h"
#include "mezzo/kernels/weighted_grad.h"

namespace mezzo {

/// The kernels of one CPU instruction set.
struct CpuBackend {
  std::string_view name;
  void (*spmm)(const SpmmArgs&);
  void (*sddmm)(const SddmmArgs&);
  void (*message_grad)(const MessageGradArgs&);
  void (*softmax)(const SoftmaxArgs&);
  void (*softmax_grad)(const SoftmaxGradArgs&);
  void (*attention)(const AttentionArgs&);
  void (*attention_state)(const AttentionStateArgs&);
  void (*attention_grad)(const AttentionGradArgs&);
  void (*weighted_grad)(const WeightedGradArgs&);
  void (*gatv2_scores)(const GATv2ScoresArgs&);
  void (*gatv2_scores_grad)(const GATv2ScoresGradArgs&);
  void (*dropout)(const DropoutArgs&);
  void (*draw_int32)(const kernels::UniformDraws<std::int32_t>&);
  void (*draw_int64)(const kernels::UniformDraws<std::int64_t>&);
  void (*pack_panels)(const PackArgs&);
  void (*rows_product)(const RowsProductArgs&);
  void (*transposed_product)(const TransposedProductArgs&);
  /// 16-bit numbers of `dtype` to float32; exact.
  void (*widen)(DType dtype, const void* from, float* to, std::int64_t count);
  /// float32 to 16-bit numbers of `dtype`: to nearest, ties to even; inf and NaN stay.
  void (*narrow)(DType dtype, const float* from, void* to, std::int64_t count);
};

/// What became of one compiled backend on this machine.
struct BackendStatus {
  const CpuBackend* backend = nullptr;  ///< null where the machine cannot run it
  std::string_view name;
  std::string_view missing;  ///< the first CPU feature that is lacking
};

/// All compiled backends, slowest first; `scalar` always runs.
MEZZO_API std::span<const BackendStatus> cpu_backends();

/// The backend in use: the last one that runs here, or the one MEZZO_CPU_BACKEND names. Throws
/// InvalidArgument for a name that is unknown or that this machine cannot run. Chosen once.
MEZZO_API const CpuBackend& cpu_backend();

}  // namespace mezzo
