#pragma once

#include <optional>
#include <thread>

#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>

#include "mezzo/amp/autocast/cpu_policy.h"

namespace mezzo::amp {

/// The dispatch key of the policy's kernels. libtorch registers nothing on it and runs it before
/// all others. Threads that do not include it never run the policy.
inline constexpr c10::DispatchKey kCpuPolicyKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Turns the policy on or off for the calling thread until destroyed. Open it inside its Autocast
/// region: it does not apply to regions nested in that one. libtorch's ThreadLocalState carries it
/// to other threads together with autocast.
class CpuPolicyRegion {
 public:
  /// Throws InvalidArgument for an invalid MEZZO_CPU_POLICY.
  explicit CpuPolicyRegion(CpuPolicy policy);
  ~CpuPolicyRegion();

  CpuPolicyRegion(const CpuPolicyRegion&) = delete;
  CpuPolicyRegion& operator=(const CpuPolicyRegion&) = delete;

 private:
  std::thread::id thread_;
  bool previous_included_;
  int previous_nesting_;
};

/// The policy of the calling thread's region.
CpuPolicy current_cpu_policy();

/// The 16-bit dtype of the calling thread's region, if the policy applies.
std::optional<c10::ScalarType> region_dtype();

/// region_dtype() if `op_class` computes in float32 there; otherwise nullopt. Measures at the first
/// call for a class and dtype.
std::optional<c10::ScalarType> float32_output_dtype(OpClass op_class);

}  // namespace mezzo::amp
