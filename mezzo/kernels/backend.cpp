#include "mezzo/kernels/backend.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/processor.h"

namespace mezzo::kernels {

extern const CpuBackend kScalarBackend;
#ifdef __x86_64__
extern const CpuBackend kAvx2Backend;
extern const CpuBackend kAvx512Backend;
extern const CpuBackend kAvx512BFloat16Kernels;
#endif

namespace {

#ifdef __x86_64__
const CpuBackend& avx512_bf16_kernels_of(DType dtype) {
  return dtype == DType::kBFloat16 ? kAvx512BFloat16Kernels : kAvx512Backend;
}

template <class Args>
void run_avx512_bf16(const Args& args) {
  if constexpr (requires { args.dtype; }) {
    avx512_bf16_kernels_of(args.dtype).run(args);
  } else {
    kAvx512Backend.run(args);
  }
}

/// avx512 with the kernels of bfloat16 from avx512_bf16.cpp.
constexpr CpuBackend avx512_bf16_backend() {
  CpuBackend backend{
      .name = "avx512_bf16",
      .kernels = {},
      .widen = [](DType dtype, const void* from, float* to,
                  std::int64_t count) { kAvx512Backend.widen(dtype, from, to, count); },
      .narrow =
          [](DType dtype, const float* from, void* to, std::int64_t count) {
            avx512_bf16_kernels_of(dtype).narrow(dtype, from, to, count);
          }};
  detail::for_each(CpuKernelList{}, [&]<class Args>() {
    std::get<CpuKernel<Args>>(backend.kernels) = &run_avx512_bf16<Args>;
  });
  return backend;
}
constexpr CpuBackend kAvx512Bf16Backend = avx512_bf16_backend();
#endif

PrefetchPlan plan_of_this_processor() {
  constexpr std::int64_t kLine = 64;
  // Prefetches occupy the few line fill buffers of the L1 cache; the L2 prefetcher follows long
  // rows by itself.
  if (is_intel()) {
    return {.bytes_in_flight = 64 * kLine,
            .fewest_entries = 4,
            .most_entries = 32,
            .bytes_of_row = kLeastBytesOfRow};
  }
  return {.bytes_in_flight = 256 * kLine,
          .fewest_entries = 16,
          .most_entries = 64,
          .bytes_of_row = std::numeric_limits<std::int64_t>::max()};
}

BackendStatus status(const CpuBackend& backend, std::string_view missing) {
  return {missing.empty() ? &backend : nullptr, backend.name, missing};
}

std::string backend_names() {
  std::string text;
  for (const BackendStatus& candidate : cpu_backends()) {
    text += (text.empty() ? "" : ", ") + std::string(candidate.name);
  }
  return text;
}

const CpuBackend& choose() {
  const std::string requested = environment_text("MEZZO_CPU_BACKEND");
  const CpuBackend* chosen = nullptr;
  for (const BackendStatus& candidate : cpu_backends()) {
    if (candidate.backend == nullptr) {
      detail::log("dispatch",
                  fmt::format("{} refused: cpu lacks {}", candidate.name, candidate.missing));
    }
    if (requested.empty()) {
      if (candidate.backend != nullptr) chosen = candidate.backend;
    } else if (candidate.name == requested) {
      MEZZO_CHECK(candidate.backend != nullptr,
                  "MEZZO_CPU_BACKEND: '{}' cannot run here: the cpu lacks {}", candidate.name,
                  candidate.missing);
      chosen = candidate.backend;
    }
  }
  MEZZO_CHECK(chosen != nullptr, "MEZZO_CPU_BACKEND: '{}' is not one of {}", requested,
              backend_names());
  detail::log("dispatch", fmt::format("{} chosen{}", chosen->name,
                                      requested.empty() ? "" : " by MEZZO_CPU_BACKEND"));
  return *chosen;
}

}  // namespace

const PrefetchPlan kPrefetchPlan = plan_of_this_processor();

std::span<const BackendStatus> cpu_backends() {
  static const std::vector<BackendStatus> all = {
      status(kScalarBackend, {}),
#ifdef __x86_64__
      status(kAvx2Backend, missing_avx2()),
      status(kAvx512Backend, missing_avx512()),
      status(kAvx512Bf16Backend, missing_avx512_bf16()),
#endif
  };
  return all;
}

const CpuBackend& cpu_backend() {
  static const CpuBackend& chosen = choose();
  return chosen;
}

}  // namespace mezzo::kernels
