#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"

namespace c10d {
class ProcessGroup;  // its header is slow to compile
}

namespace mezzo::dist::detail {

/// The c10d group behind `group` (see ProcessGroup::engine()); null for one process.
c10::intrusive_ptr<c10d::ProcessGroup> engine_of(const ProcessGroup& group);

/// The dtype for sending gradients of `dtype`.
at::ScalarType traffic_dtype(GradientTraffic traffic, at::ScalarType dtype);

/// Divides a reduced tensor by `divisor` in a dtype of at least 32 bits: in place, or in a
/// converted copy.
at::Tensor divided(const at::Tensor& sums, std::int64_t divisor);

/// Starts an in-place sum over the ranks; contiguous tensors, several ranks. Unlike
/// all_reduce_async() sends and adds 16-bit values in their own dtype.
Work sum_in_own_dtype(const ProcessGroup& group, const at::Tensor& tensor);

}  // namespace mezzo::dist::detail
