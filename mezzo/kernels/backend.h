#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "mezzo/core/export.h"
#include "mezzo/kernels/kernels.h"

namespace mezzo::kernels {

/// The function that computes Args.
template <class Args>
using CpuKernel = void (*)(const Args&);

/// The kernels of one CPU instruction set.
struct CpuBackend {
  std::string_view name;
  KernelTable<CpuKernel, CpuKernelList> kernels;
  /// Converts numbers of `dtype`, one of DenseDTypes, to float32; exact.
  void (*widen)(DType dtype, const void* from, float* to, std::int64_t count);
  /// Rounds float32 to numbers of such a dtype: to nearest, ties to even; keeps inf and NaN.
  void (*narrow)(DType dtype, const float* from, void* to, std::int64_t count);

  /// Runs the kernel that takes Args.
  template <class Args>
  void run(const Args& args) const {
    std::get<CpuKernel<Args>>(kernels)(args);
  }
};

/// A compiled backend and whether this machine can run it.
struct BackendStatus {
  const CpuBackend* backend = nullptr;  ///< null if the machine cannot run it
  std::string_view name;
  std::string_view missing;  ///< the first missing CPU feature
};

/// All compiled backends, slowest first; `scalar` always runs.
MEZZO_API std::span<const BackendStatus> cpu_backends();

/// The backend in use: MEZZO_CPU_BACKEND if set, else the last of cpu_backends() that runs here.
/// Throws InvalidArgument if MEZZO_CPU_BACKEND is unknown or cannot run. Chosen once.
MEZZO_API const CpuBackend& cpu_backend();

}  // namespace mezzo::kernels
