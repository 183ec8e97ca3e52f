#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/process_group.h"

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

}  // namespace mezzo::dist::detail
