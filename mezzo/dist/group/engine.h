#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"

namespace c10d {
class ProcessGroup;  // its header costs seconds
}

namespace mezzo::dist::detail {

/// The c10d group behind `group` (what ProcessGroup::engine() points to); null for one process.
c10::intrusive_ptr<c10d::ProcessGroup> engine_of(const ProcessGroup& group);

/// As what gradients of `dtype` travel.
at::ScalarType traffic_dtype(GradientTraffic traffic, at::ScalarType dtype);

/// What has travelled, divided by `divisor`, in a type of 32 bits or more: `sums` itself, changed,
/// or a wider copy.
at::Tensor divided(const at::Tensor& sums, std::int64_t divisor);

/// The sum over the ranks in place, under way; contiguous, several ranks. Unlike all_reduce_async()
/// 16-bit numbers travel, and are added, as such.
Work sum_in_own_dtype(const ProcessGroup& group, const at::Tensor& tensor);

}  // namespace mezzo::dist::detail
