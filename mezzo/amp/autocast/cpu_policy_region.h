#pragma once

#include <optional>
#include <thread>

#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>

#include "mezzo/amp/autocast/cpu_policy.h"

namespace mezzo::amp {

/// The dispatch key whose kernels are the policy's. libtorch registers nothing on it and runs it
/// before every other; while a thread does not include it, no operator sees the policy at all.
inline constexpr c10::DispatchKey kCpuPolicyKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Turns the policy on or off for the calling thread until it is destroyed. Open it inside the
/// Autocast region that it governs: regions nested more deeply are not its own. libtorch's
/// ThreadLocalState carries it to other threads together with autocast.
class CpuPolicyRegion {
 public:
  /// Throws InvalidArgument for a MEZZO_CPU_POLICY that is none.
  explicit CpuPolicyRegion(CpuPolicy policy);
  ~CpuPolicyRegion();

  CpuPolicyRegion(const CpuPolicyRegion&) = delete;
  CpuPolicyRegion& operator=(const CpuPolicyRegion&) = delete;

 private:
  std::thread::id thread_;
  bool previous_included_;
  int previous_nesting_;
};

/// The policy of the region that the calling thread is in.
CpuPolicy current_cpu_policy();

/// The 16-bit dtype of the calling thread's region if there `op_class` computes in float32.
/// Measures at the first call for the class and dtype.
std::optional<c10::ScalarType> dtype_kept_from(OpClass op_class);

}  // namespace mezzo::amp
