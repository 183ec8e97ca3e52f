#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "mezzo/core/export.h"
#include "mezzo/kernels/kernels.h"

namespace mezzo::kernels {

/// The loop that takes Args.
template <class Args>
using CpuKernel = void (*)(const Args&);

/// The kernels of one CPU instruction set.
struct CpuBackend {
  std::string_view name;
  KernelTable<CpuKernel, CpuKernelList> kernels;
  /// 16-bit numbers of `dtype` to float32; exact.
  void (*widen)(DType dtype, const void* from, float* to, std::int64_t count);
  /// float32 to 16-bit numbers of `dtype`: to nearest, ties to even; inf and NaN stay.
  void (*narrow)(DType dtype, const float* from, void* to, std::int64_t count);

  /// Runs the kernel that takes Args.
  template <class Args>
  void run(const Args& args) const {
    std::get<CpuKernel<Args>>(kernels)(args);
  }
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

}  // namespace mezzo::kernels
